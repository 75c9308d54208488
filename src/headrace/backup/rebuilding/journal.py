"""Writes the frames of a rebuilt journal into a data folder, by the store that the server uses, in groups synced once each.

A frame says less than the one that the server had written, because the archive does not have it: no producer, no epoch, no
digest, no source position (``docs/formats/frame.md``). Entries are the archived bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from headrace.backup.rebuilding.appends import StoredAppend
from headrace.entries.lsn import Lsn
from headrace.errors import RestoreInexact, TooLarge
from headrace.log.contract import Group
from headrace.log.control import NO_DIGEST, Control, ControlKind, control_header
from headrace.log.files.mark import MarkFile
from headrace.log.files.segment import file_name
from headrace.log.files.store import FileStore
from headrace.log.rules import GROUP_BYTES_MAX
from headrace.log.tail import FeedTail, JournalState
from headrace.runtime.disk import Disk
from headrace.wire.entry import message_of
from headrace.wire.frame import (
    FIRST_POSITION,
    FRAME_BYTES_MAX,
    Area,
    FrameHeader,
    FrameKind,
    encode_area,
    encode_frame,
)
from headrace.wire.mark import Mark

BEGIN_POSITION: Final = 2 * FIRST_POSITION
"""Position of the first frame. Not that of a new journal's: a repair would take its start for one that says nothing."""


class JournalWriter:
    """A journal under way. :meth:`finish` makes it whole; closing it before leaves a folder that is to be removed."""

    def __init__(self, folder: Path, state: JournalState, *, segment_bytes: int, disk: Disk) -> None:
        """Begin the journal in ``folder``, which has none. StoreUnavailable."""
        self._folder, self._disk = folder, disk
        journal = folder / "journal"
        disk.make_folder(journal)
        start = state.start_at(BEGIN_POSITION)
        disk.write_whole(journal / file_name(BEGIN_POSITION), start.encode())
        MarkFile.create(disk, folder / "mark", Mark(1, BEGIN_POSITION, state.global_ts))
        self._store = FileStore(folder, disk=disk, segment_bytes=segment_bytes)
        self._group_bytes = min(segment_bytes, GROUP_BYTES_MAX)
        self._tails = {tail.region_id: tail for tail in self._store.tails()}
        self._unnamed = set(self._tails)
        self._dropped = Lsn.parse(state.dropped_lsn)
        self._begin = self._store.begin(())
        self._group = Group(global_ts=self._begin.global_ts, next_region_id=self._begin.next_region_id)
        self._end = self._begin.end
        self.entries = self.frames = 0
        self.server_regions: set[str] = set()
        """Names of the server's region that the entries have."""

    @property
    def frame_bytes(self) -> int:
        """Bytes of all frames so far."""
        return self._end - BEGIN_POSITION

    def add(self, append: StoredAppend) -> None:
        """Write an append. RestoreInexact if it does not follow what its feed has; StoreUnavailable, WriterStopped."""
        tail = self._tails[append.region_id]
        self._check_kept(append)
        if append.region_id in self._unnamed:
            tail = self._named(tail, append)
        if append.first_sequence_id != tail.next_sequence_id and tail.first_sequence_id:
            raise RestoreInexact(
                f"the archive goes on with sequence id {append.first_sequence_id} of {tail.name}, where "
                f"{tail.next_sequence_id} is next"
            )
        ends = append.transaction_ends
        area = encode_area({Area.TRANSACTION_ENDS: ends} if ends else {})
        header = FrameHeader(
            FrameKind.ENTRIES, self._end, append.first_sequence_id, append.global_ts, 0, NO_DIGEST, append.region_id,
            append.count, len(area), len(append.body), 0,
        )  # fmt: skip
        if header.size > FRAME_BYTES_MAX:
            raise TooLarge(
                f"an append of {tail.name} makes a frame of {header.size} bytes; the most is {FRAME_BYTES_MAX}"
            )
        self._put(header, encode_frame(header, area, append.body, append.lengths))
        self._group.global_ts = max(self._group.global_ts, header.last_global_ts)
        self._move(
            msgspec.structs.replace(
                tail,
                next_sequence_id=append.next_sequence_id,
                newest_lsn=str(header.lsn(append.count - 1)),
                first_sequence_id=tail.first_sequence_id or append.first_sequence_id,
            )
        )
        self.entries += append.count
        self.frames += 1
        if self._end - self._begin.end >= self._group_bytes:
            self._flush()

    def finish(self, clock: int) -> list[FeedTail]:
        """Write what each feed is from here on, set the clock, and close the journal; returns the feeds.

        RestoreInexact if it does not open again as it was written.
        """
        for tail in sorted(self._tails.values(), key=lambda tail: tail.region_id):
            clock += 1
            body = Control(ControlKind.REBUILT, tail).encode()
            header = control_header(self._end, clock, tail, len(body))
            self._put(header, encode_frame(header, b"", body, b""))
            self._group.tails[tail.name] = tail
        self._group.global_ts = clock
        self._flush()
        tails, end, folder = list(self._store.tails()), self._end, self._folder
        self.close()
        opened = FileStore(folder, disk=self._disk)
        try:
            problem = opened.not_writable() or "; ".join(opened.alarms)
            if problem or (list(opened.tails()), opened.end(), opened.begin(()).global_ts) != (
                tails,
                end,
                clock,
            ):
                raise RestoreInexact(
                    f"the journal does not open as it was written: {problem or 'it ends elsewhere'}"
                )
        finally:
            opened.close()
        return tails

    def close(self) -> None:
        """Let go of the folder."""
        self._store.close()

    def _named(self, tail: FeedTail, append: StoredAppend) -> FeedTail:
        """Compare the feed with what its first entry says, and take the tenant from there."""
        size = int.from_bytes(append.lengths[:4], "little")
        prefix = message_of(memoryview(append.body)[:size]).key_prefix
        region, _, rest = prefix.partition(":")
        tenant, _, name = rest.partition(":")
        if name != f"{tail.name}:":
            raise RestoreInexact(
                f"the entry {append.first_sequence_id} of {tail.name} has another feed's key prefix: {prefix[:200]!r}"
            )
        self.server_regions.add(region)
        self._unnamed.discard(append.region_id)
        return msgspec.structs.replace(tail, tenant=tenant)

    def _check_kept(self, append: StoredAppend) -> None:
        """RestoreInexact if the journal's start takes the append for dropped: it could be read, but no stream got it."""
        first = Lsn(append.global_ts, append.region_id, append.first_sequence_id & 0xFFFFFFFF)
        if first <= self._dropped:
            raise RestoreInexact(
                f"lsn={first} is not above lsn={self._dropped}, the newest that is not in the journal"
            )

    def _put(self, header: FrameHeader, frame: bytes) -> None:
        self._group.frames.append((header, frame))
        self._end += len(frame)

    def _move(self, tail: FeedTail) -> None:
        self._tails[tail.region_id] = tail
        self._group.tails[tail.name] = tail

    def _flush(self) -> None:
        self._store.put(self._begin, self._group)
        self._begin = self._store.begin(())
        self._group = Group(global_ts=self._begin.global_ts, next_region_id=self._begin.next_region_id)
