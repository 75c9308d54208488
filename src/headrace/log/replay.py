"""Frames back into tails: what opening a journal does with everything after its last segment start. Pure."""

from __future__ import annotations

import base64

import msgspec

from headrace.errors import JournalCorrupt
from headrace.log.control import decode_control
from headrace.log.tail import FeedTail, JournalState
from headrace.wire.frame import Area, Frame, FrameHeader, FrameKind, decode_area


class _Ahead:
    """What frames of entries say of one feed that its tail doesn't say yet. Of each producer, only the last one counts."""

    __slots__ = ("first_sequence_id", "frames", "newest", "next_sequence_id")

    def __init__(self, tail: FeedTail) -> None:
        self.first_sequence_id = tail.first_sequence_id
        self.next_sequence_id = tail.next_sequence_id
        self.newest: FrameHeader | None = None
        self.frames: dict[str, tuple[FrameHeader, bytes]] = {}

    def over(self, tail: FeedTail) -> FeedTail:
        """Return the tail behind all those frames."""
        if self.newest is None:
            return tail
        for producer, (header, source_position) in self.frames.items():
            tail = tail.after(header, producer, base64.b64encode(source_position).decode())
        return msgspec.structs.replace(
            tail,
            next_sequence_id=self.next_sequence_id,
            newest_lsn=str(self.newest.lsn(self.newest.count - 1)),
            first_sequence_id=self.first_sequence_id,
        )


class Replay:
    """A journal's state, moved on frame by frame.

    Opening a journal does this for every frame of its last segment, so a frame of entries leaves only a note; the tails are
    made from the notes when :attr:`state` is asked for.
    """

    def __init__(self, state: JournalState) -> None:
        """Begin at the state of a segment start, which is taken over and changed."""
        self._state = state
        self._ahead: dict[int, _Ahead] = {}
        self._area: tuple[bytes, str, bytes] = (b"", "", b"")
        self.gaps_allowed = False
        """True once something that happened can't be read any more: a feed may then jump, for readers only."""
        self._names = {tail.region_id: name for name, tail in state.feeds.items()}

    @property
    def state(self) -> JournalState:
        """The state behind all frames so far; the caller's to read, and to change until the next frame."""
        for region_id, ahead in self._ahead.items():
            name = self._names[region_id]
            self._state.feeds[name] = ahead.over(self._state.feeds[name])
        self._ahead.clear()
        return self._state

    def apply(self, frame: Frame) -> None:
        """Move on over an intact frame; JournalCorrupt if it does not join on to what was before."""
        header = frame.header
        if header.kind == FrameKind.ENTRIES:
            self.apply_entries(header, bytes(frame.area))
            return
        state = self.state
        state.global_ts = max(state.global_ts, header.last_global_ts)
        if header.kind == FrameKind.CONTROL:
            self.adopt(decode_control(frame.body).feed)
        elif header.kind == FrameKind.SKIPPED:
            self._skip(header)

    def apply_entries(self, header: FrameHeader, area: bytes) -> None:
        """Move on over an intact frame of entries; JournalCorrupt as :meth:`apply` does."""
        first, count = header.first_sequence_id, header.count
        stamp = header.global_ts if (first & 0xFFFFFFFF) + count <= 1 << 32 else header.last_global_ts
        self._state.global_ts = max(self._state.global_ts, stamp)
        if area != self._area[0]:
            values = decode_area(area)
            producer = values.get(Area.PRODUCER, b"").decode()
            self._area = area, producer, values.get(Area.SOURCE_POSITION, b"")
        ahead = self._ahead.get(header.region_id)
        if ahead is None:
            ahead = self._ahead[header.region_id] = _Ahead(self._tail(header))
        if first != ahead.next_sequence_id and ahead.first_sequence_id and not self.gaps_allowed:
            raise self._gap(header, ahead.next_sequence_id)
        ahead.next_sequence_id = first + count
        ahead.first_sequence_id = ahead.first_sequence_id or first
        ahead.newest = header
        if self._area[1]:  # empty in a frame that was rebuilt from a backup: nobody knows whose it was
            ahead.frames[self._area[1]] = header, self._area[2]

    def apply_damaged(self, header: FrameHeader) -> None:
        """Move on over an entries frame whose payload is damaged: see :meth:`FeedTail.after_damaged`.

        JournalCorrupt for a control frame: what it changed is lost, so no append may be judged after it.
        """
        if header.kind == FrameKind.SKIPPED:
            self._skip(header)
            return
        if header.kind == FrameKind.CONTROL:
            raise JournalCorrupt(
                f"the control frame at position {header.position:#x} (region {header.region_id}) is damaged",
                position=header.position,
            )
        state = self.state
        state.global_ts = max(state.global_ts, header.last_global_ts)
        tail = self._joined(header)
        state.feeds[tail.name] = tail.after_damaged(header)

    def knows(self, region_id: int) -> bool:
        """Tell whether the feed of this region was made by what was replayed."""
        return region_id in self._names

    def adopt(self, tail: FeedTail) -> None:
        """Take in a feed as a control frame says it is, or one whose making can't be read any more."""
        state = self.state
        state.feeds[tail.name] = tail
        self._names[tail.region_id] = tail.name
        state.next_region_id = max(state.next_region_id, tail.region_id + 1)

    def _skip(self, header: FrameHeader) -> None:
        """Move on over what a repair skipped; the control frames that it wrote behind bring the feeds up to date."""
        self.gaps_allowed = True
        state = self.state
        if header.count and header.region_id in self._names:
            tail = self._joined(header)
            state.feeds[tail.name] = tail.after_damaged(header)

    def _joined(self, header: FrameHeader) -> FeedTail:
        """The tail of the frame's feed, which the frame must join on to."""
        tail = self._tail(header)
        joins = header.first_sequence_id == tail.next_sequence_id or not tail.first_sequence_id
        if not joins and not self.gaps_allowed:
            raise self._gap(header, tail.next_sequence_id)
        return tail

    def _gap(self, header: FrameHeader, wanted: int) -> JournalCorrupt:
        return JournalCorrupt(
            f"the frame at position {header.position:#x} begins at sequence id {header.first_sequence_id} of "
            f"{self._names[header.region_id]}, where {wanted} is next",
            position=header.position,
        )

    def _tail(self, header: FrameHeader) -> FeedTail:
        name = self._names.get(header.region_id)
        if name is None:
            raise JournalCorrupt(
                f"the frame at position {header.position:#x} is of region {header.region_id}, which was never made",
                position=header.position,
            )
        return self._state.feeds[name]
