"""The file store: segments + mark in one data folder, owned by one process. See ``log/contract.py`` for the promises."""

from __future__ import annotations

import contextlib
import errno
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    DataFolderLocked,
    JournalCorrupt,
    JournalLoss,
    SequenceNotAvailable,
    StoreUnavailable,
    WriterStopped,
)
from headrace.log.contract import Begin, Group, SegmentView
from headrace.log.files.index import OpenIndex
from headrace.log.files.mark import MarkFile
from headrace.log.files.pending import PENDING_NAME
from headrace.log.files.recovery import recover
from headrace.log.files.removals import Removals
from headrace.log.files.reserve import Reserve
from headrace.log.files.segment import SUFFIX, SegmentFile, file_name, place_of
from headrace.log.tail import FeedTail, JournalState
from headrace.runtime.disk import Disk, DiskFile, SyncFailed
from headrace.runtime.logs import get_logger
from headrace.wire.frame import FIRST_POSITION, Frame, FrameKind
from headrace.wire.mark import Mark
from headrace.wire.segment import FramePlace

logger = get_logger("log")

SEGMENT_BYTES: Final = 128 << 20
"""A journal segment takes frames up to this size; retention drops whole segments."""


class FileStore:
    """A data folder's journal. Opening it recovers what a crash left; see ``recovery.py``."""

    several_servers: ClassVar[bool] = False

    def __init__(
        self,
        folder: Path,
        *,
        disk: Disk | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        disk_reserve_bytes: int | None = 0,
    ) -> None:
        """Open the journal in ``folder``, made if it isn't there.

        ``disk_reserve_bytes``: below that much free space nothing is appended; None for the larger of 1 GB and 5 % of the
        volume.
        Raises DataFolderLocked, FormatTooNew, JournalLoss, JournalCorrupt, StoreUnavailable; no entry was touched then.
        """
        self._disk = disk if disk is not None else Disk()
        self._segment_bytes = segment_bytes
        self._folder = folder
        self._journal = folder / "journal"
        self._callbacks: list[Callable[[], None]] = []
        self._guard = threading.Lock()
        self._stopped: str | None = None
        self.alarms: list[str] = []
        self._mark: MarkFile | None = None
        self._segments: list[SegmentFile] = []
        self._removals = Removals(self._disk)
        self._lock: DiskFile | None = None
        try:
            self._disk.make_folder(self._journal)
            self._lock = self._take_lock(folder / "lock")
            self._keep_names()
            self._reserve = Reserve(self._disk, self._journal, disk_reserve_bytes)
            self._open()
        except OSError as error:
            self.close()
            raise StoreUnavailable(
                f"{folder}: this data folder can't be used: {error}",
                hint="Check its owner, its rights and the free space on its volume.",
            ) from error
        except BaseException:
            self.close()
            raise

    def _keep_names(self) -> None:
        """Make durable what an earlier process made and named, in case it was killed before it could.

        Else a power failure could take away the name of a segment that this process has appended to.
        """
        for above in reversed(self._folder.absolute().parents):
            with contextlib.suppress(PermissionError):  # then somebody else made what is in it
                self._disk.sync_folder(above)
        self._disk.sync_folder(self._folder)
        self._disk.sync_folder(self._journal)

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
            MarkFile.create(self._disk, mark_path, Mark(0, FIRST_POSITION, 0))
        self._mark = MarkFile(self._disk, mark_path)
        if not paths:
            if self._mark.current.end != FIRST_POSITION:
                raise JournalLoss(f"{self._journal}: no journal segment is there, but the mark names an end")
            self._segments = [SegmentFile.create(self._disk, self._journal, FIRST_POSITION, JournalState())]
        else:
            self._open_segments(paths)
        found = recover(self._disk, self._open_segment, self._mark, self._folder)
        self.alarms += found.alarms
        self._stopped = found.blocked
        state = found.replay.state
        self._end = found.end
        self._global_ts = max(state.global_ts, self._mark.current.global_ts)
        self._next_region_id = state.next_region_id
        self._tails = dict(state.feeds)
        self._index: OpenIndex = found.index
        self._open_segment.use_index(found.index)
        self._forget_dropped()
        for draft in self._disk.list(self._journal, ".tmp"):  # a crash came while a segment was made
            self._disk.remove(draft)

    def _open_segments(self, paths: Sequence[Path]) -> None:
        for path, later in zip(paths, [*paths[1:], None], strict=True):
            try:
                end = int(later.stem, 16) if later is not None else None
            except ValueError:
                raise JournalCorrupt(f"{later}: not a name of a journal segment") from None
            segment = SegmentFile(self._disk, path, end)
            self._segments.append(segment)
            if end is not None and segment.first_position + segment.frame_bytes() < end:
                raise JournalLoss(
                    f"{path}: the journal has a gap from position "
                    f"{segment.first_position + segment.frame_bytes():#x} to {end:#x}"
                )

    @property
    def _open_segment(self) -> SegmentFile:
        return self._segments[-1]

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
            self._write(data)
            self._mark.store(self._end + len(data), group.global_ts)
        with self._guard:
            self._end += len(data)
            self._open_segment.end = self._end
            self._global_ts = group.global_ts
            self._next_region_id = group.next_region_id
            for header, _ in group.frames:
                if header.kind == FrameKind.ENTRIES:
                    self._index.add(place_of(header))
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

    def _write(self, data: bytes) -> None:
        try:
            filled = self._end - self._open_segment.first_position
            if filled and filled + len(data) > self._segment_bytes:
                self._roll()
            self._open_segment.write(self._end, data)
        except OSError as error:
            self._undo(error)
        try:
            self._open_segment.sync()
        except OSError as error:
            raise self._stop(f"the disk did not confirm a write: {error}") from error

    def _undo(self, error: OSError) -> None:
        """A write failed before its sync: cut it off again, so that nothing of it can ever be read.

        A failed sync stops the writer whatever its reason, and so does a segment that was begun but not taken into use.
        """
        begun = self._journal / file_name(self._end)
        half_made = begun != self._open_segment.path and self._disk.exists(begun)
        full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG} and not isinstance(error, SyncFailed)
        if half_made or not full:
            raise self._stop(f"the disk refused a write: {error}") from error
        try:
            self._open_segment.cut(self._end)
            self._open_segment.sync()
        except OSError as second:
            raise self._stop(f"the disk refused to cut off a failed write: {second}") from error
        raise StoreUnavailable(f"the disk is full: {error}") from error

    def _stop(self, reason: str) -> WriterStopped:
        self._stopped = reason
        logger.error("the writer has stopped for good", reason=reason)
        return WriterStopped(f"no append is taken: {reason}")

    def _roll(self) -> None:
        """Seal the open segment and begin the next one with the state that it continues from."""
        sealed = self._open_segment
        sealed.seal(list(self._index))
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
        fresh = SegmentFile.create(self._disk, self._journal, self._end, state)
        index = OpenIndex()
        fresh.use_index(index)
        with self._guard:
            sealed.use_index(None)
            self._index = index
            self._segments = [*self._segments, fresh]

    def drop_before(self, position: int) -> int:
        """Drop whole segments that end at or below ``position``; only the writer's thread may call it."""
        while len(self._segments) > 1 and self._segments[0].end <= position:
            self._removals.add(self._segments[0].path)
            with self._guard:  # not closed: a reader may be in it; it closes when the last one lets go
                self._segments = self._segments[1:]
                self._forget_dropped()
        self._removals.finish()
        return self.oldest_position()

    def roll(self) -> None:
        """Seal the open segment if it holds a frame, and begin the next one; only the writer's thread may call it."""
        if self._stopped is not None:
            raise WriterStopped(f"the journal takes no more: {self._stopped}")
        if self._end > self._open_segment.first_position:
            try:
                self._roll()
            except OSError as error:
                self._undo(error)

    def _forget_dropped(self) -> None:
        """What the oldest segment continues from is what was dropped before it, and nothing else was.

        (A tail may say more: a segment's removal that failed, or that a power failure undid, brings its entries back.)
        """
        feeds = self._segments[0].state.feeds
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
        return self._segments[0].first_position

    def places(self, region_id: int, first: int, last: int, *, frames_max: int) -> Sequence[FramePlace]:
        """Return the frames of a feed that overlap sequence ids ``first`` … ``last``, oldest first."""
        with self._guard:
            segments, found = self._segments, list[FramePlace]()
            at = bisect_right(segments, first, key=lambda segment: _next_at_start(segment, region_id)) - 1
            for segment in segments[max(0, at) :]:
                if len(found) >= frames_max or _next_at_start(segment, region_id) > last:
                    break
                found += segment.index().places(region_id, first, last, frames_max=frames_max - len(found))
            return found

    def read(self, places: Sequence[FramePlace]) -> Sequence[Frame]:
        """Return whole verified frames; JournalCorrupt (naming position, feed, range) if one is damaged."""
        return [self._segment_at(place.position).frame_at(place) for place in places]

    def walk(self, position: int, *, bytes_max: int) -> Sequence[Frame]:
        """Return the frames of all feeds from ``position`` on in journal order, up to ``bytes_max`` or one frame."""
        end = self._end
        if position >= end:
            return []
        segment = self._segment_at(position)
        return segment.frames_from(position, min(segment.end, end), bytes_max)

    def _segment_at(self, position: int) -> SegmentFile:
        segments = self._segments
        at = bisect_right(segments, position, key=lambda segment: segment.first_position) - 1
        if at < 0:
            raise SequenceNotAvailable(
                f"the journal's oldest retained position is {segments[0].first_position:#x}, {position:#x} was dropped"
            )
        return segments[at]

    def seek(self, global_ts: int) -> int:
        """Return the position of the first retained frame with an entry at ``global_ts`` or later; the end if none."""
        segments = self._segments
        at = bisect_left(segments, global_ts, key=lambda segment: segment.state.global_ts) - 1
        for segment in segments[max(0, at) :]:
            found = segment.seek(global_ts, min(segment.end, self._end))
            if found is not None:
                return found
        return self._end

    def segments(self) -> Sequence[SegmentView]:
        """Return the journal's segments, oldest first."""
        with self._guard:
            segments, now = self._segments, self._global_ts
        clocks = [*(segment.state.global_ts for segment in segments[1:]), now]
        return [
            SegmentView(
                segment.first_position, segment.end, segment.file_bytes(), clock, segment is segments[-1]
            )
            for segment, clock in zip(segments, clocks, strict=True)
        ]

    def dropped_lsn(self) -> Lsn:
        """Return the newest LSN that was dropped; ZERO if none ever was."""
        dropped = [Lsn.parse(tail.newest_lsn) for tail in self._segments[0].state.feeds.values()]
        return max(dropped, default=ZERO)

    def on_moved(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` from the writer's thread whenever the visible end has moved."""
        self._callbacks.append(callback)

    def not_writable(self) -> str | None:
        """Return why no append can be taken until a repair or a restart, or None."""
        return self._stopped

    def close(self) -> None:
        """Let go of files and locks."""
        for segment in self._segments:
            segment.close()
        if self._mark is not None:
            self._mark.close()
            self._mark = None
        if self._lock is not None:
            self._lock.close()


def _next_at_start(segment: SegmentFile, region_id: int) -> int:
    """The feed's next sequence id where this segment begins; 0 if the feed was not there yet."""
    return segment.next_ids.get(region_id, 0)
