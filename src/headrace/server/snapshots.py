"""Where publishers serve their snapshots, and tickets for them: the answer is an address, never the snapshot itself.

What a publisher says of its snapshots stands with the epoch of its registration, so that it ends with a takeover. Listeners
are only sent to origins that the operator allows: an address comes from whoever may publish.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from headrace.access import tickets
from headrace.access.exposure import is_loopback_name
from headrace.entries.feed import check_agent_id
from headrace.errors import (
    HeadraceError,
    InvalidRequest,
    NoSnapshot,
    SequenceNotAvailable,
    SnapshotForbidden,
    Usage,
)
from headrace.log.log import Log
from headrace.log.metadata.contract import SnapshotRow
from headrace.log.tail import FeedTail
from headrace.runtime.clock import Clock

ISSUER: Final = "headrace"
TICKET_S: Final = 3600
"""How long a ticket is good: a cut fetch asks for another one."""
URL_CHARS_MAX: Final = 1000
"""Longest snapshot-url."""
PATH: Final = "/snapshot"
"""Where every publisher serves its snapshots: listeners are sent to no other path, wherever it leads."""
_PRINTABLE: Final = re.compile(r"[\x21-\x7e]+")
_PORTS: Final = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Where an address leads: what ``--snapshot-allow`` names."""

    scheme: str
    host: str
    port: int


class SnapshotAsk(NamedTuple):
    """What a listener wants. ``at_least``: the least sequence id that the snapshot must stand for."""

    listener_id: str
    at_least: int | None = None
    snapshot_id: str | None = None


def parse_origins(given: Sequence[str]) -> tuple[Origin, ...]:
    """Return the origins of ``--snapshot-allow``; Usage for one that is none."""
    found: list[Origin] = []
    for text in given:
        bare = text.rstrip("/")
        try:
            if urlsplit(bare).path:
                raise ValueError(text)
            found.append(_origin(bare))
        except ValueError:
            raise Usage(
                f"--snapshot-allow: {text[:200]!r} is no origin", hint="Write https://HOST:PORT."
            ) from None
    return tuple(found)


def check_snapshot_url(text: str) -> str:
    """Return ``text`` if listeners can be sent to it; InvalidRequest."""
    try:
        _origin(text)
        if len(text) <= URL_CHARS_MAX and urlsplit(text).path == PATH:
            return text
    except ValueError:
        pass
    raise InvalidRequest(
        f"snapshot-url: {text[:80]!r} is no address that listeners can be sent to",
        hint="Write https://HOST:PORT/snapshot, without anything behind it.",
        member="snapshot-url",
    )


class Snapshots:
    """The snapshots of all publishers of one log. ``allowed``: where listeners may be sent.

    None allowed: to their own machine, if ``local``: the server is reached from this machine alone, so that it is the same
    one; else nowhere.
    """

    def __init__(
        self, log: Log, clock: Clock, allowed: Sequence[Origin] = (), *, local: bool = False
    ) -> None:
        self._log = log
        self._clock = clock
        self._allowed = frozenset(allowed)
        self._local = local

    async def registered(self, tail: FeedTail, url: str | None) -> str | None:
        """Note what a publisher said at its registration, durably; returns the key of its tickets, None without ``url``.

        The key is that of the registration's epoch: the same instance gets it again, another one gets a new one.
        """
        metadata = self._log.metadata
        if url is None and (tail.shared or await asyncio.to_thread(metadata.snapshot, tail.name) is None):
            return None
        fresh = urlsafe_b64encode(secrets.token_bytes(tickets.KEY_BYTES)).rstrip(b"=").decode()
        said = SnapshotRow(tail.name, tail.incarnation, tail.epoch, url, fresh)
        stands = await asyncio.to_thread(metadata.keep_snapshot, said)
        if url is None:
            return None
        # A takeover was faster: whoever asks now gets a key that is good for nothing, and is fenced at its first append.
        return stands.ticket_key if stands.epoch == tail.epoch else fresh

    async def address(self, feed: str, ask: SnapshotAsk) -> str:
        """Return where ``ask`` is answered, with a ticket for it.

        Raises FeedNotFound, NoSnapshot, SnapshotForbidden, InvalidRequest.
        """
        check_agent_id(ask.listener_id, "listener-id")
        if ask.snapshot_id is not None:
            check_agent_id(ask.snapshot_id, "snapshot-id")
        await self._log.find(feed)
        await self._log.refresh()
        row = await self._standing(feed)
        if row is None or row.url is None:
            raise NoSnapshot(f"the publisher of {feed} offers no snapshot")
        if not self._is_allowed(row.url):
            raise SnapshotForbidden(
                f"the publisher of {feed} serves its snapshots at {row.url}, which is not allowed here",
                hint="Give the server --snapshot-allow with that origin if it is right.",
            )
        now = self._clock.wall_ms() // 1000
        given = {"at-least": ask.at_least, "snapshot-id": ask.snapshot_id}
        wanted = {name: value for name, value in given.items() if value is not None}
        claims = {
            "iss": ISSUER,
            "feed": feed,
            "listener": ask.listener_id,
            **wanted,
            "url": row.url,
            "iat": now,
            "exp": now + TICKET_S,
        }
        ticket = tickets.sign(claims, urlsafe_b64decode(row.ticket_key + "=" * (-len(row.ticket_key) % 4)))
        query = {"change-feed-id": feed, "listener-id": ask.listener_id, **wanted, "ticket": ticket}
        return f"{row.url}?{urlencode(query)}"

    async def complete(self, error: SequenceNotAvailable, feed: str) -> None:
        """Add to a refusal where the snapshot is that helps, if the publisher offers one. Raises nothing."""
        try:
            row = await self._standing(feed)
        except HeadraceError:
            return  # the refusal itself is what the reader must hear
        if row is not None and row.url is not None and self._is_allowed(row.url):
            error.members["snapshot"] = f"/feeds/{quote(feed, safe='')}/snapshot"

    async def _standing(self, feed: str) -> SnapshotRow | None:
        row = await asyncio.to_thread(self._log.metadata.snapshot, feed)
        tail = self._log.tail(feed)
        if row is None or (row.incarnation, row.epoch) != (tail.incarnation, tail.epoch):
            return None
        return row

    def _is_allowed(self, url: str) -> bool:
        origin = _origin(url)
        if urlsplit(url).path != PATH:  # of a registration with an earlier version
            return False
        return origin in self._allowed if self._allowed else self._local and is_loopback_name(origin.host)


def _origin(url: str) -> Origin:
    """Return where ``url`` leads; ValueError unless it is plainly scheme, host, port and path."""
    if not _PRINTABLE.fullmatch(url) or any(sign in url for sign in "?#@\\"):
        raise ValueError(url)
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(url)
    return Origin(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
