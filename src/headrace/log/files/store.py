"""The file store: segments + mark in one data folder, owned by one process. See ``log/contract.py`` for the promises."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    DataFolderLocked,
    JournalCorrupt,
    JournalLoss,
    StoreUnavailable,
    WriterStopped,
)
from headrace.log.contract import Begin, Group, SegmentView, T
from headrace.log.files.cache import SegmentCache
from headrace.log.files.index import OpenIndex
from headrace.log.files.mark import MarkFile
from headrace.log.files.names import keep_names
from headrace.log.files.pending import PENDING_NAME
from headrace.log.files.recovery import recover
from headrace.log.files.removals import Removals
from headrace.log.files.reserve import Reserve
from headrace.log.files.segment import SUFFIX, file_name
from headrace.log.files.segments import Segments
from headrace.log.tail import FeedTail, JournalState
from headrace.runtime.disk import Disk, DiskFile, SyncFailed
from headrace.runtime.histogram import SECONDS, Histogram
from headrace.runtime.logs import get_logger
from headrace.wire.frame import FIRST_POSITION, Frame
from headrace.wire.mark import Mark
from headrace.wire.segment import FramePlace

logger = get_logger("log")

SEGMENT_BYTES: Final = 128 << 20
"""A journal segment takes frames up to this size; retention drops whole segments."""
SEGMENT_FRAMES_MAX: Final = 1 << 17
"""A journal segment takes so many frames, however small and of whatever kind: the open one's index is then at most 3.5 MB,
and opening a journal reads no more frames than these (or one group, if that has more)."""

_PASSING: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.ENFILE}


class _CutOff(StoreUnavailable):
    """There is no room now, and what was written of a group was cut off again: nothing of it stands."""


class FileStore:
    """A data folder's journal. Opening it recovers what a crash left; see ``recovery.py``."""

    several_servers: ClassVar[bool] = False

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        segment_frames_max: int = SEGMENT_FRAMES_MAX,
        disk_reserve_bytes: int | None = 0,
    ) -> None:
        """Open the journal in ``folder``, made if it isn't there.

        ``disk_reserve_bytes``: below that much free space nothing is appended; None for the larger of 1 GB and 5 % of the
        volume.
        Raises DataFolderLocked, FormatTooNew, JournalLoss, JournalCorrupt, StoreUnavailable; no entry was touched then.
        """
        self._disk = disk if disk is not None else Disk()
        self._segment_bytes, self._segment_frames_max = segment_bytes, segment_frames_max
        self._folder, self.syncs = folder, Histogram(SECONDS)
        self._journal = folder / "journal"
        self._callbacks: list[Callable[[], None]] = []
        self._guard, self._holding = threading.Lock(), threading.Lock()
        self._stopped: str | None = None
        self.alarms: list[str] = []
        self._mark: MarkFile | None = None
        self._segments = Segments(SegmentCache(self._disk), self._journal)
        self._removals = Removals(self._disk)
        self._lock: DiskFile | None = None
        try:
            self._disk.make_folder(self._journal)
            self._lock = self._take_lock(folder / "lock")
            keep_names(self._disk, self._folder, self._journal)
            self._reserve = Reserve(self._disk, self._journal, disk_reserve_bytes)
            self._open()
        except OSError as error:
            self._let_go()
            raise StoreUnavailable(
                f"{folder}: this data folder can't be used: {error}",
                hint="Check its owner, its rights and the free space on its volume.",
            ) from error
        except BaseException:
            self._let_go()
            raise

    def _take_lock(self, path: Path) -> DiskFile:
        lock = self._disk.open(path, create=True)
        if not lock.lock():
            lock.close()
            raise DataFolderLocked(f"{self._folder}: another process owns this data folder")
        return lock

    def _open(self) -> None:
        mark_path = self._folder / "mark"
        if self._disk.exists(self._folder / PENDING_NAME):
            raise JournalCorrupt(
                f"{self._folder}: a repair of this journal was begun and not finished",
                hint="Run `headrace log repair` again; it goes on where it was.",
            )
        paths = self._disk.list(self._journal, SUFFIX)
        if not self._disk.exists(mark_path):
            if paths:
                raise JournalCorrupt(f"{mark_path}: the mark is missing beside {len(paths)} journal segments")
            MarkFile.create(self._disk, mark_path, Mark(1, FIRST_POSITION, 0))
        self._mark = MarkFile(self._disk, mark_path)
        if not paths:
            if self._mark.current.end != FIRST_POSITION:
                raise JournalLoss(f"{self._journal}: no journal segment is there, but the mark names an end")
            self._segments.add(self._segments.begin(FIRST_POSITION, JournalState()))
        else:
            self._segments.open(paths)
        found = recover(self._disk, self._segments.newest, self._mark, self._folder)
        self.alarms += found.alarms
        self._stopped = found.blocked
        state = found.replay.state
        self._end = found.end
        self._global_ts = max(state.global_ts, self._mark.current.global_ts)
        self._next_region_id = state.next_region_id
        self._tails = dict(state.feeds)
        self._index: OpenIndex = found.index
        self._segments.newest.use_index(found.index)
        self._forget_dropped(self._segments.dropped())
        for draft in self._disk.list(self._journal, ".tmp"):  # a crash came while a segment was made
            self._disk.remove(draft)

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin(self, feeds: Collection[str]) -> Begin:
        """Return the journal's end and clock, and the tails of ``feeds`` that exist."""
        if self._stopped is not None:
            raise WriterStopped(f"no append is taken: {self._stopped}")
        tails = {name: self._tails[name] for name in feeds if name in self._tails}
        return Begin(self._end, self._global_ts, self._next_region_id, tails)

    def put(self, begin: Begin, group: Group) -> None:
        """Write, sync, move the mark, then show: in this order. See the contract for what each failure means."""
        if self._stopped is not None or self._mark is None:
            raise WriterStopped(f"no append is taken: {self._stopped or 'the store is closed'}")
        if begin.end != self._end:
            raise StoreUnavailable(f"the journal's end moved from {begin.end:#x} to {self._end:#x}")
        data = b"".join(frame for _, frame in group.frames)
        if data:
            self._reserve.check(len(data))
            self._write(data, len(group.frames))
        with self._failing_closed():
            if data:
                self._mark.store(self._end + len(data), group.global_ts)
            with self._guard:
                self._end += len(data)
                self._segments.newest.end = self._end
                self._global_ts = group.global_ts
                self._next_region_id = group.next_region_id
                self._index.extend(header for header, _ in group.frames)
                self._tails.update(group.tails)
        for callback in self._callbacks:
            try:
                callback()
            except Exception:  # the group is durable and visible: its writers must hear so
                logger.exception("a callback failed")

    def abandon(self, begin: Begin) -> None:
        """Nothing was taken at :meth:`begin`, so there is nothing to give back."""

    def refresh(self) -> None:
        """Nobody else appends to this journal, so what is known is always all there is."""

    def unreachable(self) -> str | None:
        """Return None: a folder does not go away and come back."""
        return None

    def _write(self, data: bytes, frames: int) -> None:
        with self._failing_closed():
            try:
                filled = self._end - self._segments.newest.first_position
                is_full = filled + len(data) > self._segment_bytes
                if filled and (is_full or self._index.frames + frames > self._segment_frames_max):
                    self._roll()
                self._segments.newest.write(self._end, data)
            except OSError as error:
                raise self._undone(error) from error
            try:
                with self.syncs.timed():
                    self._segments.newest.sync()
            except OSError as error:
                raise self._stop(f"the disk did not confirm a write: {error}") from error

    @contextlib.contextmanager
    def _failing_closed(self) -> Iterator[None]:
        """Stop the writer whatever goes wrong in here, but for a full disk's write that was cut off again.

        What stands on the disk and what is held in memory may differ then: only an opening brings them together.
        """
        try:
            yield
        except _CutOff:
            raise
        except Exception as error:
            if self._stopped is not None:
                raise
            raise self._stop(f"the writer failed: {error!r}") from error
        except BaseException as error:
            self._stop(f"the writer was interrupted: {error!r}")
            raise

    def _undone(self, error: OSError) -> StoreUnavailable | WriterStopped:
        """A write failed before its sync: cut it off again, so that nothing of it can ever be read; returns the refusal.

        A failed sync stops the writer whatever its reason, and so does a segment that was begun but not taken into use.
        """
        begun = self._journal / file_name(self._end)
        half_made = begun != self._segments.newest.path and self._disk.exists(begun)
        if half_made or error.errno not in _PASSING or isinstance(error, SyncFailed):
            return self._stop(f"the disk refused a write: {error}")
        try:
            self._segments.newest.cut(self._end)
            self._segments.newest.sync()
        except OSError as second:
            return self._stop(f"the disk refused to cut off a failed write: {second}")
        return _CutOff(f"there is no room: {error}")

    def _stop(self, reason: str) -> WriterStopped:
        self._stopped = reason
        logger.error("the writer has stopped for good", reason=reason)
        return WriterStopped(f"no append is taken: {reason}")

    def _roll(self) -> None:
        """Seal the open segment and begin the next one with the state that it continues from."""
        self._segments.newest.seal(self._index)
        if self._mark is not None:
            self._mark.sync()
        state = JournalState(
            global_ts=self._global_ts,
            next_region_id=self._next_region_id,
            dropped_lsn=max(
                (tail.dropped_lsn for tail in self._tails.values()), default=JournalState().dropped_lsn
            ),
            feeds=dict(self._tails),
        )
        fresh, index = self._segments.begin(self._end, state), OpenIndex()
        fresh.use_index(index)
        with self._guard:
            self._index = index
            self._segments.add(fresh)

    def drop_before(self, position: int, *, look: Callable[[], int] | None = None) -> int:
        """Drop whole segments that end at or below ``position``; only the writer's thread may call it."""
        with self._holding:
            position = min(position, look()) if look is not None else position
            while len(self._segments) > 1 and self._segments.oldest.end <= position:
                try:
                    dropped = self._segments.behind_oldest()
                except OSError as error:
                    raise StoreUnavailable(f"a segment can't be dropped: {error}") from error
                with self._guard:  # first: who misses an entry must find it dropped
                    self._forget_dropped(dropped)
                self._removals.add(self._segments.drop_oldest())
        self._removals.finish()
        return self.oldest_position()

    def without_drops(self, work: Callable[[], T]) -> T:
        """Return ``work()``, done while nothing is dropped."""
        with self._holding:
            return work()

    def roll(self) -> None:
        """Seal the open segment if it holds a frame, and begin the next one; only the writer's thread may call it."""
        if self._stopped is not None:
            raise WriterStopped(f"the journal takes no more: {self._stopped}")
        if self._end > self._segments.newest.first_position:
            with self._failing_closed():
                try:
                    self._roll()
                except OSError as error:
                    raise self._undone(error) from error

    def _forget_dropped(self, feeds: Mapping[str, FeedTail]) -> None:
        """What the oldest segment continues from, ``feeds``, is what was dropped before it, and nothing else was.

        (A tail may say more: a segment's removal that failed, or that a power failure undid, brings its entries back.)
        """
        self._dropped_lsn = Lsn.parse(max((tail.newest_lsn for tail in feeds.values()), default=str(ZERO)))
        for name, tail in self._tails.items():
            then = feeds.get(name)
            number, lsn = 0, str(ZERO)
            if then is not None and then.first_sequence_id and then.region_id == tail.region_id:
                number, lsn = then.next_sequence_id - 1, then.newest_lsn
            if number != tail.dropped_sequence_id:
                self._tails[name] = msgspec.structs.replace(tail, dropped_sequence_id=number, dropped_lsn=lsn)

    # -- reading ------------------------------------------------------------------------------------------------------

    def tail(self, feed: str) -> FeedTail | None:
        """Return the durable tail of ``feed``; None if there is no such feed."""
        return self._tails.get(feed)

    def tails(self) -> Sequence[FeedTail]:
        """Return the durable tails of all feeds, by region id."""
        with self._guard:
            return sorted(self._tails.values(), key=lambda tail: tail.region_id)

    def end(self) -> int:
        """Return the visible end."""
        return self._end

    def oldest_position(self) -> int:
        """Return the position of the oldest retained frame (the end if there is none)."""
        return self._segments.oldest.first_position

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> Sequence[FramePlace]:
        """Return the frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first.

        Appends go on meanwhile, even if a lost index must be made again for it.
        """
        return self._segments.places(region_id, first, last, frames_max=frames_max)

    def read(self, places: Sequence[FramePlace]) -> Sequence[Frame]:
        """Return whole verified frames; JournalCorrupt (naming position, feed, range) if one is damaged."""
        return self._segments.read(places)

    def walk(self, position: int, *, bytes_max: int) -> Sequence[Frame]:
        """Return the frames of all feeds from ``position`` on in journal order, up to ``bytes_max`` or one frame."""
        end = self._end
        if position >= end:
            return []
        segment = self._segments.at(position)
        return segment.frames_from(position, min(segment.end, end), bytes_max)

    def seek(self, global_ts: int) -> int:
        """Return the position of the first retained frame with an entry at ``global_ts`` or later; the end if none."""
        return self._segments.seek(global_ts, self._end)

    def segments(self) -> Sequence[SegmentView]:
        """Return the journal's segments, oldest first."""
        with self._guard:
            row, clock = self._segments.row(), self._global_ts
        return self._segments.views(row, clock)

    def index_bytes(self) -> int:
        """Return how much memory finds frames, about, in bytes: at most 16 MB however long the journal is."""
        return self._segments.index_bytes()

    def dropped_lsn(self) -> Lsn:
        """Return the newest LSN that was dropped; ZERO if none ever was."""
        return self._dropped_lsn

    def on_moved(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` from the writer's thread whenever the visible end has moved."""
        self._callbacks.append(callback)

    def not_writable(self) -> str | None:
        """Return why no append can be taken until a repair or a restart, or None."""
        return self._stopped

    def has_clear_room(self) -> bool:
        """Return whether the volume has clearly more room than the reserve: see ``reserve.py``."""
        return self._reserve.has_clear_room()

    def check_room(self, size: int) -> None:
        """Raise DiskReserve if ``size`` more bytes would leave less than the reserve."""
        self._reserve.check(size)

    def close(self) -> None:
        """Let go of files and locks. After a clean stop both copies of the mark name the journal's end, durably."""
        try:
            if self._mark is not None and self._stopped is None:
                self._mark.settle(self._end, self._global_ts)
        except OSError as error:  # all that it tells of is durable: the next opening finds it
            logger.warning("the mark could not be made durable", reason=str(error))
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._segments.close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._lock is not None:
            self._lock.close()
