"""What a listener does next, as a pure state machine: events in, actions out. No I/O, no clock, no randomness.

::

    REGISTERING --registered--> CATCHING_UP --at the head--> POLLING
         ^                       |    ^                         |
         |                       |    +---- behind, or a gap ---+
         +---- not-registered ---+------------------------------+
    any of them: a retryable error -> Wait, then Register or Read; any other error -> Stop (ENDED)

:mod:`headrace.listener.listener` is the caller. Its duties: (1) carry out the actions of one answer in their order;
(2) hand back exactly one event for the last of them, unless that is :class:`Finish` or :class:`Stop`; (3) store what
:class:`Pin` names before going on; (4) draw the length of a :class:`Wait` from its number of failures.

The machine promises: sequence ids are delivered in order, each once, without a gap (RFD 5, "Listener agent").
What came twice is dropped. A gap in what the server sends is read again and never delivered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from headrace import errors
from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.wire.documents import EntryOut

Start = Literal["oldest", "head"] | int
"""Where a listener without a bookmark begins: the oldest retained entry, what comes after the head, or an entry's id."""


class State(StrEnum):
    """Where a listener stands."""

    REGISTERING = "registering"
    CATCHING_UP = "catching-up"
    POLLING = "polling"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Registered:
    """The server answered a registration with the feed's incarnation and bounds (sequence ids)."""

    incarnation: str
    oldest: int
    head: int


@dataclass(frozen=True, slots=True)
class Received:
    """The server answered a range or a poll. ``entries`` may be empty."""

    incarnation: str
    oldest: int
    head: int
    entries: Sequence[EntryOut]


@dataclass(frozen=True, slots=True)
class Failed:
    """The call that was asked for failed."""

    error: errors.HeadraceError


@dataclass(frozen=True, slots=True)
class Waited:
    """The wait that was asked for is over."""


Event = Registered | Received | Failed | Waited


@dataclass(frozen=True, slots=True)
class Register:
    """Register the listener; answer with Registered or Failed."""


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for the entries from ``first`` on; ``bookmark`` is what is known of the entry before it."""

    first: int
    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Poll:
    """Long poll for the entries after ``after``, which ``bookmark`` names."""

    after: int
    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Wait:
    """Back off after ``failures`` failures in a row without progress; ``error`` is the last of them."""

    failures: int
    error: errors.HeadraceError


@dataclass(frozen=True, slots=True)
class Pin:
    """The first place is decided: store it, so that a restart before the first entry begins at the same place."""

    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these to the consumer: the next sequence ids, without a gap. Never empty."""

    incarnation: str
    entries: Sequence[EntryOut]


@dataclass(frozen=True, slots=True)
class Finish:
    """All entries up to the head that a draining listener met have been delivered."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more can be delivered; ``error`` says why and what helps."""

    error: errors.HeadraceError


Action = Register | Read | Poll | Wait | Pin | Deliver | Finish | Stop


class Machine:
    """One listener of one feed. Feed it events; never share it.

    ``saved`` is the stored bookmark and wins over ``start``. ``drain``: finish at the head that the registration named.
    ``failures_max``: stop with the error after so many failures without progress; None never gives up.
    """

    def __init__(
        self, start: Start, saved: Bookmark | None, *, drain: bool = False, failures_max: int | None = None
    ) -> None:
        self.state = State.REGISTERING
        self._start = start
        self._place = saved
        self._drain = drain
        self._target: int | None = None
        self._failures = 0
        self._failures_max = failures_max

    def begin(self) -> list[Action]:
        """Return the first actions."""
        return [Register()]

    def take(self, event: Event) -> list[Action]:
        """Return what to do after ``event``. RuntimeError for an event that was not asked for."""
        match event, self.state:
            case Registered(), State.REGISTERING:
                return self._registered(event)
            case Received(), State.CATCHING_UP | State.POLLING:
                return self._received(event, self._placed())
            case Failed(error), State.REGISTERING | State.CATCHING_UP | State.POLLING:
                return self._failed(error)
            case Waited(), State.REGISTERING:
                return [Register()]
            case Waited(), State.CATCHING_UP:
                return [self._read()]
        raise RuntimeError(f"{type(event).__name__} does not fit the state {self.state}")

    def _registered(self, event: Registered) -> list[Action]:
        if self._target is None:
            self._target = event.head
        if self._place is None:
            before = {"oldest": event.oldest - 1, "head": event.head}.get(str(self._start))
            if before is None:
                before = int(self._start) - 1
                if refusal := _outside(before + 1, event):
                    return self._stop(refusal)
            self._place = Bookmark(event.incarnation, before)
            self.state = State.CATCHING_UP
            return [Pin(self._place), self._read()]
        if recreated := _recreated(event.incarnation, self._place):
            return self._stop(recreated)
        self.state = State.CATCHING_UP
        return [self._read()]

    def _received(self, event: Received, place: Bookmark) -> list[Action]:
        if recreated := _recreated(event.incarnation, place):
            return self._stop(recreated)
        if event.head < place.sequence_id:
            return self._stop(
                errors.BeyondHead(
                    f"the feed ends at {event.head}, below this listener's bookmark {place.sequence_id}",
                    head=event.head,
                )
            )
        fresh = next_entries(event.entries, place.sequence_id, event.oldest)
        actions: list[Action] = []
        if fresh:
            if place.lsn is not None and Lsn.parse(fresh[0].lsn) <= place.lsn:
                return self._stop(
                    errors.FeedRecreated(
                        f"entry {fresh[0].sequence_id} has the LSN {fresh[0].lsn}, not above {place.lsn} of this "
                        f"listener's bookmark {place.sequence_id}"
                    )
                )
            newest = fresh[-1]
            place = self._place = Bookmark(event.incarnation, newest.sequence_id, Lsn.parse(newest.lsn))
            self._failures = 0
            actions.append(Deliver(event.incarnation, fresh))
        return actions + self._after(event, place, progress=bool(fresh))

    def _after(self, event: Received, place: Bookmark, *, progress: bool) -> list[Action]:
        """Choose the next call after an answer was taken up to ``place``."""
        missing = event.head > place.sequence_id
        skipped = bool(event.entries) and event.entries[-1].sequence_id > place.sequence_id
        if self._drain and self._target is not None and place.sequence_id >= self._target:
            self.state = State.ENDED
            return [Finish()]
        if self.state is State.CATCHING_UP and missing and (skipped or not progress):
            # A range that lacks entries the feed has: asking again at once would hammer a server that is wrong.
            return self._failed(
                errors.Unavailable(
                    f"the server left out entry {place.sequence_id + 1}, though the feed ends at {event.head}",
                    hint="The entry is asked for again; if this goes on, look at the server's log.",
                )
            )
        if missing:
            self.state = State.CATCHING_UP
            return [self._read()]
        if self.state is State.POLLING:
            self._failures = 0  # a poll held to its time-out is a healthy server with nothing new
        self.state = State.POLLING
        return [Poll(place.sequence_id, place)]

    def _failed(self, error: errors.HeadraceError) -> list[Action]:
        unregistered = isinstance(error, errors.NotRegistered) and self.state is not State.REGISTERING
        if not error.retryable and not unregistered:
            return self._stop(error)
        self._failures += 1
        if self._failures_max is not None and self._failures > self._failures_max:
            return self._stop(error)
        self.state = (
            State.REGISTERING if unregistered or self.state is State.REGISTERING else State.CATCHING_UP
        )
        if unregistered and self._failures == 1:
            return [Register()]
        return [Wait(self._failures, error)]

    def _stop(self, error: errors.HeadraceError) -> list[Action]:
        self.state = State.ENDED
        return [Stop(error)]

    def _placed(self) -> Bookmark:
        if self._place is None:
            raise RuntimeError("no place before the registration is answered")
        return self._place

    def _read(self) -> Read:
        place = self._placed()
        return Read(place.sequence_id + 1, place)


def next_entries(entries: Sequence[EntryOut], last: int, oldest: int) -> Sequence[EntryOut]:
    """Return those of ``entries`` that follow ``last`` without a gap; what came before is dropped, what is beyond cut.

    A listener at 0 has read nothing: for it the feed begins where it begins, at ``oldest`` (a source that already counts
    goes on counting: RFD 5's example begins at 63). A range that retention dropped is an error of the server's, not this.
    """
    if last == 0 and entries and entries[0].sequence_id == oldest:
        last = oldest - 1
    if entries and entries[0].sequence_id == last + 1 and _dense(entries):
        return entries
    fresh: list[EntryOut] = []
    for entry in entries:
        if entry.sequence_id == last + 1:
            fresh.append(entry)
            last += 1
        elif entry.sequence_id > last:
            break
    return fresh


def _dense(entries: Sequence[EntryOut]) -> bool:
    first = entries[0].sequence_id
    return all(entry.sequence_id == first + index for index, entry in enumerate(entries))


def _recreated(incarnation: str, place: Bookmark) -> errors.HeadraceError | None:
    if incarnation == place.incarnation:
        return None
    return errors.FeedRecreated(
        f"the feed's incarnation is {incarnation}, this listener's bookmark {place.sequence_id} is of "
        f"{place.incarnation}"
    )


def _outside(first: int, bounds: Registered) -> errors.HeadraceError | None:
    """Refuse a named start outside the feed before it is pinned: a pinned place wins over every later choice."""
    holds = (
        f"the feed holds {bounds.oldest} to {bounds.head}" if bounds.head >= bounds.oldest else "it is empty"
    )
    if first > bounds.head + 1:
        return errors.BeyondHead(
            f"there is no entry {first} to start from: {holds}",
            hint="Start from oldest, from head, or from an entry that is there.",
            head=bounds.head,
        )
    if first < bounds.oldest:
        return errors.SequenceNotAvailable(
            f"entry {first} is not in the feed: {holds}",
            hint="Start from oldest, or take a snapshot of the publisher's state first.",
            oldest=bounds.oldest,
            head=bounds.head,
        )
    return None
