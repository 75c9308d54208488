"""What a store must do, and nothing more: one compare-and-set on the journal's end makes it fit for several servers.

The rules (``rules``) decide; a store keeps bytes. Both stores pass ``tests/contract``. All calls are blocking and are
made from worker threads, save :meth:`Store.tail`, :meth:`Store.tails`, :meth:`Store.end`, :meth:`Store.oldest_position`,
:meth:`Store.dropped_lsn`, :meth:`Store.not_writable` and :meth:`Store.unreachable`, which answer from memory.
:meth:`Store.begin`, :meth:`Store.put` and :meth:`Store.abandon` are called only by the one writer of a process.

Where several servers share a store, what is answered from memory may be behind what another server has appended, never
ahead of what is durable: :meth:`Store.refresh` before a refusal that rests on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeVar

from headrace.entries.lsn import Lsn
from headrace.log.tail import FeedTail
from headrace.runtime.histogram import Histogram
from headrace.wire.frame import Frame, FrameHeader
from headrace.wire.segment import FramePlace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Begin:
    """Where the journal stands: what a group of appends is judged on.

    ``end`` is the position of the next frame, ``global_ts`` the newest given, ``tails`` those of the feeds asked for that
    exist.
    """

    end: int
    global_ts: int
    next_region_id: int
    tails: Mapping[str, FeedTail]


@dataclass(slots=True)
class Group:
    """Frames to write at ``begin.end``, in order, and the tails once they are there."""

    frames: list[tuple[FrameHeader, bytes]] = field(default_factory=list)
    tails: dict[str, FeedTail] = field(default_factory=dict)
    global_ts: int = 0
    next_region_id: int = 1


class SegmentView(NamedTuple):
    """A journal segment as retention sees it: frames from ``first_position`` to below ``end``.

    ``size``: bytes that it takes in the store. ``newest_global_ts``: the clock after its newest frame, so nothing in it is
    younger. ``is_open``: it still takes frames, and can't be dropped.
    """

    first_position: int
    end: int
    size: int
    newest_global_ts: int
    is_open: bool


class Store(Protocol):
    """A journal's bytes."""

    several_servers: ClassVar[bool]
    """Whether others may append to this journal as well, so that :meth:`refresh` can find something."""
    syncs: Histogram
    """How many seconds it took, each time, to make a group durable: the fsync of a folder, the COMMIT of a database."""

    def begin(self, feeds: Collection[str]) -> Begin:
        """Return the journal's end and clock, and the tails of ``feeds``. Ends in :meth:`put` or in :meth:`abandon`.

        Raises StoreUnavailable, WriterStopped, and JournalCorrupt with ``change_feed_id`` if that feed's state is damaged:
        the other feeds can be asked for without it.
        """

    def put(self, begin: Begin, group: Group) -> None:
        """Write the group's frames if the end is still ``begin.end``, durably, and only then make them visible.

        Raises StoreUnavailable (nothing was written, unless its ``side_effects`` say ``possible``), or WriterStopped
        (durability unknown: no append before a restart).
        """

    def abandon(self, begin: Begin) -> None:
        """Give up a group that was begun, without a write; nothing happens if it was put or given up already."""

    def refresh(self) -> None:
        """Bring :meth:`tail`, :meth:`tails` and :meth:`end` up to all that is durable at this moment, whoever appended it.

        Raises StoreUnavailable if that can't be found out.
        """

    def tail(self, feed: str) -> FeedTail | None:
        """Return the durable tail of ``feed``; None if there is no such feed."""

    def tails(self) -> Sequence[FeedTail]:
        """Return the durable tails of all feeds, by region id."""

    def end(self) -> int:
        """Return the visible end: the position after the last durable frame."""

    def oldest_position(self) -> int:
        """Return the position of the oldest retained frame (the end if there is none)."""

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> Sequence[FramePlace]:
        """Return the frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first."""

    def read(self, places: Sequence[FramePlace]) -> Sequence[Frame]:
        """Return whole verified frames; JournalCorrupt (naming position, feed, range) if one is damaged.

        SequenceNotAvailable if one was dropped meanwhile.
        """

    def walk(self, position: int, *, bytes_max: int) -> Sequence[Frame]:
        """Return the frames of all feeds from ``position`` on in journal order: up to ``bytes_max`` bytes, at least one
        if there is any below the visible end.

        Ends before a damaged frame; JournalCorrupt if that is the first, SequenceNotAvailable below the oldest position.
        Ends before a frame that a repair skipped; if that is the first, SequenceLost with ``resume_lsn`` and
        ``resume_position``, from which a later walk can go on. A frame of another kind than ENTRIES holds none.
        """

    def seek(self, global_ts: int) -> int:
        """Return the position of the first retained frame with an entry at ``global_ts`` or later; the end if there is none.

        Positions, LSNs and clock grow together, so a walk from there meets every retained LSN of that time or later, and no
        earlier one. Frames without entries may stand in between, on either side.
        """

    def segments(self) -> Sequence[SegmentView]:
        """Return the journal's segments, oldest first; the last is the open one."""

    def drop_before(self, position: int, *, look: Callable[[], int] | None = None) -> int:
        """Drop whole segments that end at or below ``position``, oldest first; returns the new oldest position.

        ``look``, if given, is asked first, while nobody is in :meth:`without_drops`, at no server: what it answers bounds
        ``position`` further. It may read the store; what it raises is raised, and nothing is dropped then.

        Only from the one writer of a process, unless the store is one of several servers: that guards itself, and appends
        go on meanwhile. The newest dropped LSN, of the journal and of each feed, is known afterwards,
        here and after a restart. A crash at any step leaves a journal without a hole. Raises StoreUnavailable if what was
        dropped could not be removed: it is not served any more, and the next call begins with it.
        """

    def without_drops(self, work: Callable[[], T]) -> T:
        """Return ``work()``, done while nothing can be dropped, by no server: for who begins to hold.

        What ``work`` finds retained, and then notes durably as held, is seen by whoever drops afterwards. Keep it short:
        a drop waits for it. It may be called twice.
        """

    def roll(self) -> None:
        """Seal the open segment if it holds a frame, and begin the next one: what was sealed can be dropped later.

        Only from the one writer of a process. No position, LSN or clock moves and no tail changes; :meth:`segments` lists
        one more, the new open one, which begins at :meth:`end`. Nothing happens where no frame stands in the open segment.
        Raises as :meth:`put` does. A store whose segments are no files keeps the places where they begin.
        """

    def index_bytes(self) -> int:
        """Return how much memory of this process finds frames, about, in bytes; 0 where a database finds them."""

    def dropped_lsn(self) -> Lsn:
        """Return the newest LSN that was dropped; ZERO if none ever was."""

    def on_moved(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` (from any thread) whenever the visible end has moved: how readers wait for more."""

    def not_writable(self) -> str | None:
        """Return why no append can be taken until a repair or a restart, or None."""

    def has_clear_room(self) -> bool:
        """Return whether the disk has so much more than its reserve that an alarm about it can be cleared.

        True where a store keeps no reserve.
        """

    def check_room(self, size: int) -> None:
        """Raise DiskReserve if ``size`` more bytes would leave less than the reserve; never where a store keeps none."""

    def unreachable(self) -> str | None:
        """Return why the store can't be used at this moment, which passes by itself, or None."""

    def close(self) -> None:
        """Let go of files and locks."""
