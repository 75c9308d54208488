"""The words of the options ``start`` and ``end`` -> a sequence id in a feed: LSN, sequence id, time, oldest, head. Pure.

What has to be looked up is asked of the server through :class:`Lookup`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, Protocol

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.wire.documents import ms_of_rfc3339

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SEQUENCE_ID_MAX: Final = (1 << 63) - 1
_LSN_MAX: Final = (1 << 128) - 1
_FORMS: Final = "a sequence id, an LSN, an RFC 3339 time with a zone, oldest or head"


class Instant(NamedTuple):
    """A time, UTC microseconds since 1970."""

    us: int


Found = int | Lsn | Instant
"""A sequence id, an LSN or a time: what has to be looked up in a feed."""
Moment = Literal["oldest", "head"] | Found
"""A place in words, read."""


class Lookup(Protocol):
    """What finds places in a feed. Both return the sequence id of the first such entry, head + 1 if there is none.

    SequenceNotAvailable where it is, or may be, one that retention has dropped.
    """

    def first_since(self, feed: str, ms: int) -> int:
        """Return the first entry committed at ``ms`` (UTC milliseconds) or later."""

    def first_from_lsn(self, feed: str, lsn: Lsn) -> int:
        """Return the first entry whose LSN is ``lsn`` or greater."""


def read_moment(text: str, option: str) -> Moment:
    """Read what ``option`` says; InvalidRequest, naming the option, if it is none of the forms."""
    match text:
        case "oldest" | "head":
            return text
    if text.isascii() and text.isdecimal() and 1 <= int(text) <= _SEQUENCE_ID_MAX:
        return int(text)
    try:
        return Instant(time_us(text)) if ":" in text else Lsn.parse(text)
    except (InvalidRequest, ValueError):
        raise InvalidRequest(f"option {option}: {text[:80]!r} is not {_FORMS}", member=option) from None


def time_us(text: str) -> int:
    """Return UTC microseconds of an RFC 3339 time with a zone, cut below them; ValueError for anything else."""
    ms_of_rfc3339(text)
    return (datetime.fromisoformat(text.upper()) - _EPOCH) // timedelta(microseconds=1)


def first_of(moment: Found, feed: str, lookup: Lookup) -> int:
    """Return the first entry that a read from ``moment`` on gives."""
    match moment:
        case Lsn():
            return lookup.first_from_lsn(feed, moment)
        case Instant():
            return lookup.first_since(feed, max(0, -(-moment.us // 1000)))
    return moment


def last_of(moment: Found, feed: str, lookup: Lookup) -> int:
    """Return the last entry that a read up to ``moment`` gives: it is inclusive."""
    match moment:
        case Lsn():
            return lookup.first_from_lsn(feed, Lsn.from_int(min(_LSN_MAX, int(moment) + 1))) - 1
        case Instant():
            return lookup.first_since(feed, max(0, moment.us // 1000 + 1)) - 1
    return moment
