"""What a listener's state machine is told (events) and what it asks for (actions). Values only; see ``machine.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.wire.documents import EntryOut

Start = Literal["oldest", "head", "snapshot"] | int | datetime
"""Where a listener without a bookmark begins: the oldest retained entry, what comes after the head, the publisher's
snapshot, an entry's id, or the first entry committed at a time (with a zone) or later."""


class State(StrEnum):
    """Where a listener stands."""

    REGISTERING = "registering"
    CATCHING_UP = "catching-up"
    POLLING = "polling"
    HYDRATING = "hydrating"
    ENDED = "ended"


# -- events -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """The server answered a registration with the feed's incarnation and bounds (sequence ids)."""

    incarnation: str
    oldest: int
    head: int


@dataclass(frozen=True, slots=True)
class Located:
    """The server said where a time falls: behind the sequence id ``after``."""

    incarnation: str
    head: int
    after: int


@dataclass(frozen=True, slots=True)
class Received:
    """The server answered a range. ``entries`` may be empty.

    ``last``, ``last_lsn``: how far it has looked, past what a filter took away; only a filtered machine asks.
    """

    incarnation: str
    oldest: int
    head: int
    entries: Sequence[EntryOut]
    last: int | None = None
    last_lsn: Lsn | None = None


@dataclass(frozen=True, slots=True)
class Polled:
    """The server answered the long poll. ``entries`` is empty at its time-out; ``last``, ``last_lsn`` as in Received."""

    incarnation: str
    oldest: int
    head: int
    entries: Sequence[EntryOut]
    last: int | None = None
    last_lsn: Lsn | None = None


@dataclass(frozen=True, slots=True)
class Leased:
    """The server took or renewed the hydration lease."""

    incarnation: str
    oldest: int
    head: int


@dataclass(frozen=True, slots=True)
class BeingMade:
    """The publisher is still making the snapshot, and asks to be left alone for ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Found:
    """A snapshot is there: ``sequence_id`` is the last entry whose effect is in it; nothing of it was applied yet."""

    snapshot_id: str
    sequence_id: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Applied:
    """The consumer has the whole snapshot, its end checked, and has done with it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The call that was asked for failed. ``progress``: some of what it was to bring did come before."""

    error: HeadraceError
    progress: bool = False


@dataclass(frozen=True, slots=True)
class PollFailed:
    """The long poll failed."""

    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Waited:
    """The wait that was asked for is over."""


Event = (
    Registered
    | Located
    | Received
    | Polled
    | Leased
    | BeingMade
    | Found
    | Applied
    | Failed
    | PollFailed
    | Waited
)


# -- actions ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Register:
    """Register the listener; answer with Registered or Failed."""


@dataclass(frozen=True, slots=True)
class Locate:
    """Ask behind which entry ``time`` falls. Located or Failed."""

    time: datetime


@dataclass(frozen=True, slots=True)
class Read:
    """Ask for the entries from ``first`` on; ``bookmark`` is what is known of the entry before it. Received or Failed."""

    first: int
    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Poll:
    """Long poll, beside all else, for the entries after ``after``, which ``bookmark`` names. Polled or PollFailed."""

    after: int
    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Wait:
    """Back off after ``failures`` failures in a row without progress; ``error`` is the last of them. Waited."""

    failures: int
    error: HeadraceError


@dataclass(frozen=True, slots=True)
class Pause:
    """Leave the publisher alone for ``seconds``, as it asks. Waited."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lease:
    """Take or renew the hydration lease, and keep renewing it until EndLease. Leased or Failed.

    ``sequence_id``: what the snapshot ``snapshot_id`` stands for; None while there is none yet.
    """

    snapshot_id: str | None = None
    sequence_id: int | None = None


@dataclass(frozen=True, slots=True)
class Fetch:
    """Ask for a snapshot that stands for ``at_least``, or for the one named, whose bytes so far still count.

    BeingMade, Found or Failed.
    """

    at_least: int
    snapshot_id: str | None = None


@dataclass(frozen=True, slots=True)
class Apply:
    """Hand the rest of the snapshot that was found to the consumer. Applied or Failed."""


@dataclass(frozen=True, slots=True)
class EndLease:
    """Give the hydration lease back. Nothing is answered."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A place is decided without an entry: store it, so that a restart begins there."""

    bookmark: Bookmark


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these to the consumer: the next sequence ids that it wants. Never empty; without a filter, without a gap.

    ``place``: where a consumer stands that has done with them, past what a filter took away behind them.
    """

    incarnation: str
    entries: Sequence[EntryOut]
    place: Bookmark


@dataclass(frozen=True, slots=True)
class Pass:
    """A filter took away all up to ``place``: store it in time, once the consumer has done with what came before."""

    place: Bookmark


@dataclass(frozen=True, slots=True)
class Finish:
    """All entries up to the head that a draining listener met have been delivered."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more can be delivered; ``error`` says why and what helps."""

    error: HeadraceError


Call = Register | Locate | Read | Poll | Wait | Pause | Lease | Fetch
"""Actions that an event answers, except :class:`Apply`, which needs the consumer."""
Action = Call | Apply | EndLease | Pin | Deliver | Pass | Finish | Stop
