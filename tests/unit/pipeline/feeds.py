"""A feed held in memory, answered as a server answers it: whole stored frames, a bounded number in one answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headrace.client.http import FramesRange
from headrace.entries.entry import Change
from headrace.errors import FeedRecreated, SequenceLost, SequenceNotAvailable
from headrace.wire import entry as wal_entry
from headrace.wire.documents import FeedView
from headrace.wire.frame import Frame, FrameHeader, FrameKind, encode_frame

TS = 1_800_000_000_000 << 18


@dataclass
class StoredFeed:
    """Appends make frames; ``asked`` notes every range that was asked for."""

    name: str = "f::1"
    incarnation: str = "first-life"
    first_id: int = 1
    frames_max: int = 1_000
    dropped: int = 0
    frames_stored: list[Frame] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def next_id(self) -> int:
        return self.frames_stored[-1].header.last_sequence_id + 1 if self.frames_stored else self.first_id

    def append(self, *changes: Change, global_ts: int | None = None) -> None:
        """Store an append of these changes."""
        stamp = global_ts if global_ts is not None else TS + self.next_id
        body, lengths = wal_entry.stamp(
            [wal_entry.encode_half(change) for change in changes],
            global_ts=stamp,
            region_id=7,
            first_sequence_id=self.next_id,
            tenant="t",
            key_prefix=f"main:t:{self.name}:",
        )
        header = FrameHeader(
            FrameKind.ENTRIES,
            0x100,
            self.next_id,
            stamp,
            1,
            bytes(16),
            7,
            len(changes),
            0,
            len(body),
            0,
        )
        self.frames_stored.append(Frame(encode_frame(header, b"", body, lengths)))

    def add(self, count: int, *, tx: str = "", last: bool = True) -> None:
        """Store one append of ``count`` entries: of a transaction ``tx`` that ends with it or goes on, or of none."""
        self.append(
            *[
                Change(
                    value=b"{}",
                    key=b"%d" % (self.next_id + index),
                    source_tx=tx.encode(),
                    tx_last=bool(tx) and last and index == count - 1,
                )
                for index in range(count)
            ]
        )

    def lsn(self, sequence_id: int) -> str:
        """The LSN of an entry, empty where there is none."""
        for frame in self.frames_stored:
            if frame.header.first_sequence_id <= sequence_id <= frame.header.last_sequence_id:
                return str(frame.header.lsn(sequence_id - frame.header.first_sequence_id))
        return ""

    def drop_before(self, sequence_id: int) -> None:
        """Forget what stands below, as retention does."""
        self.frames_stored = [
            one for one in self.frames_stored if one.header.first_sequence_id >= sequence_id
        ]
        self.dropped = sequence_id - 1

    def lose(self, first: int, last: int) -> None:
        """Skip these whole appends, as a repair of a damaged journal does, which begins another incarnation."""
        self.frames_stored = [
            one for one in self.frames_stored if not first <= one.header.first_sequence_id <= last
        ]
        self.lost.append((first, last))
        self.incarnation += "-repaired"

    def reborn(self) -> StoredFeed:
        """The same entries in another incarnation."""
        return replace(self, incarnation="second-life")

    def first_since(self, feed: str, ms: int) -> int:
        assert feed == self.name
        if self.dropped and self.frames_stored[0].header.global_ts >> 18 > ms:
            raise SequenceNotAvailable(f"entries of {feed} since then are no longer retained")
        for frame in self.frames_stored:
            if frame.header.global_ts >> 18 >= ms:
                return frame.header.first_sequence_id
        return self.next_id

    def feed(self, name: str) -> FeedView:
        assert name == self.name
        head = self.next_id - 1
        oldest = self.frames_stored[0].header.first_sequence_id if self.frames_stored else self.next_id
        return FeedView(
            change_feed_id=name,
            region_id=7,
            tenant_id="t",
            incarnation=self.incarnation,
            owner="agent",
            epoch=1,
            first_sequence_id=self.first_id if self.frames_stored or self.dropped else 0,
            oldest_sequence_id=oldest,
            head_sequence_id=head,
            next_sequence_id=self.next_id,
            newest_lsn=self.lsn(head),
            quarantined=False,
            listeners=[],
        )

    def frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        assert feed == self.name
        self.asked.append((first, last))
        if incarnation is not None and incarnation != self.incarnation:
            raise FeedRecreated
        if lsn is not None and self.lsn(first - 1) not in {lsn, ""}:
            raise FeedRecreated
        if first <= self.dropped:
            raise SequenceNotAvailable(f"the entries of {feed} from {first} on are no longer retained")
        gaps = [gap for gap in self.lost if gap[0] <= last and gap[1] >= first]
        if gaps and gaps[0][0] <= first:
            raise SequenceLost(
                f"the entries {gaps[0][0]} to {gaps[0][1]} of {feed} were damaged, and a repair skipped them",
                lost_first=gaps[0][0],
                lost_last=gaps[0][1],
            )
        last = gaps[0][0] - 1 if gaps else last
        found = [
            frame
            for frame in self.frames_stored
            if frame.header.first_sequence_id <= last and frame.header.last_sequence_id >= first
        ][: self.frames_max]
        data = b"".join(
            encode_frame(
                frame.header, frame.area.tobytes(), frame.body.tobytes(), frame.lengths_bytes.tobytes()
            )
            for frame in found
        )
        return FramesRange(data, self.incarnation, self.next_id - 1, self.first_id)
