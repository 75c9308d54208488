"""The subscribers' places as one server knows them, and the least of those that hold. In memory; nothing here blocks."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from headrace.entries.lsn import Lsn
from headrace.log.metadata.contract import SubscriberRow
from headrace.log.retention.plan import Terms

STALE_MAX: Final = 1024
"""Outdated places kept in the heap beside as many as there are subscribers: bounds its memory."""


class Subscriber(NamedTuple):
    """Who subscribes: the token's subject (``anonymous`` without one), and the name it gave itself (empty if none)."""

    subject: str
    subscriber_id: str

    @property
    def name(self) -> str:
        """Return it as retention and metrics name it: ``subject/subscriber_id``."""
        return f"{self.subject}/{self.subscriber_id}" if self.subscriber_id else self.subject


class _Known(NamedTuple):
    """``noted``: the number of the call that said so last."""

    lsn: Lsn
    seen_at_ms: int
    noted: int


class Places:
    """Where each subscriber is. Used from any thread.

    The least place costs no look at all the others: they are in a heap, in which an outdated place stays until it is on top.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._known: dict[Subscriber, _Known] = {}
        self._heap: list[tuple[Lsn, Subscriber]] = []
        self._expired: set[Subscriber] = set()
        """Those that are not in the heap, because they held nothing when it was looked at."""
        self._looked_ms = 0
        self._count = 0

    def get(self, who: Subscriber) -> Lsn | None:
        """Return where ``who`` is; None if it is not known."""
        known = self._known.get(who)
        return known.lsn if known is not None else None

    def note(self, rows: Iterable[SubscriberRow]) -> None:
        """Take over what was just written of some subscribers that have moved."""
        with self._guard:
            self._note(rows)

    def begin(self, row: SubscriberRow, since: int) -> None:
        """Take over where one begins, read after :attr:`count` was ``since``.

        It may be further back than what was known then: its row had gone meanwhile.
        """
        with self._guard:
            self._note([row], since=since)

    @property
    def count(self) -> int:
        """The number of calls so far: for :meth:`replace`."""
        return self._count

    def replace(self, rows: Collection[SubscriberRow], since: int, keep: Collection[Subscriber]) -> None:
        """Take over all that is stored, read after :attr:`count` was ``since``; who is not there is forgotten.

        Save those of ``keep``, and those noted meanwhile.
        """
        with self._guard:
            there = {Subscriber(row.subject, row.subscriber_id) for row in rows}
            for who, known in list(self._known.items()):
                if who not in there and who not in keep and known.noted <= since:
                    del self._known[who]
                    self._expired.discard(who)
            self._note(rows, since=since)

    def least(self, terms: Terms) -> Lsn | None:
        """Return the least place of those that hold at ``terms``; None if nobody does."""
        with self._guard:
            if terms.now_ms < self._looked_ms or len(self._heap) > len(self._known) + STALE_MAX:
                self._build()  # the clock was set back: who had expired may hold again
            self._looked_ms = terms.now_ms
            while self._heap:
                lsn, who = self._heap[0]
                known = self._known.get(who)
                if known is not None and known.lsn == lsn:
                    if terms.expires_at(known.seen_at_ms) > terms.now_ms:
                        return lsn
                    self._expired.add(who)
                heapq.heappop(self._heap)
            return None

    def _note(self, rows: Iterable[SubscriberRow], since: int = -1) -> None:
        """What was noted after ``since`` only moves forward; what is older is replaced."""
        self._count += 1
        for row in rows:
            who = Subscriber(row.subject, row.subscriber_id)
            lsn, seen_at_ms = Lsn.parse(row.lsn), row.seen_at_ms
            known = self._known.get(who)
            if known is not None and known.noted > since:
                lsn, seen_at_ms = max(lsn, known.lsn), max(seen_at_ms, known.seen_at_ms)
            self._known[who] = _Known(lsn, seen_at_ms, self._count)
            if known is None or known.lsn != lsn or who in self._expired:
                self._expired.discard(who)
                heapq.heappush(self._heap, (lsn, who))

    def _build(self) -> None:
        self._expired.clear()
        self._heap = [(known.lsn, who) for who, known in self._known.items()]
        heapq.heapify(self._heap)
