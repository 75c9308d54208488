"""Frames back into tails: what opening a journal does with everything after its last segment start. Pure."""

from __future__ import annotations

import base64

from headrace.errors import JournalCorrupt
from headrace.log.control import decode_control
from headrace.log.tail import FeedTail, JournalState
from headrace.wire.frame import Area, Frame, FrameHeader, FrameKind, decode_area


class Replay:
    """A journal's state, moved on frame by frame. ``state`` is the caller's to read at any time."""

    def __init__(self, state: JournalState) -> None:
        """Begin at the state of a segment start, which is taken over and changed."""
        self.state = state
        self.gaps_allowed = False
        """True once something that happened can't be read any more: a feed may then jump, for readers only."""
        self._names = {tail.region_id: name for name, tail in state.feeds.items()}

    def apply(self, frame: Frame) -> None:
        """Move on over an intact frame; JournalCorrupt if it does not join on to what was before."""
        header = frame.header
        self.state.global_ts = max(self.state.global_ts, header.last_global_ts)
        if header.kind == FrameKind.CONTROL:
            self.adopt(decode_control(frame.body).feed)
            return
        if header.kind == FrameKind.SKIPPED:
            self._skip(header)
            return
        area = decode_area(frame.area)
        source = base64.b64encode(area.get(Area.SOURCE_POSITION, b"")).decode()
        tail = self._joined(header)
        self.state.feeds[tail.name] = tail.after(header, area.get(Area.PRODUCER, b"").decode(), source)

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
        self.state.global_ts = max(self.state.global_ts, header.last_global_ts)
        tail = self._joined(header)
        self.state.feeds[tail.name] = tail.after_damaged(header)

    def knows(self, region_id: int) -> bool:
        """Tell whether the feed of this region was made by what was replayed."""
        return region_id in self._names

    def adopt(self, tail: FeedTail) -> None:
        """Take in a feed whose making can't be read any more."""
        self.state.feeds[tail.name] = tail
        self._names[tail.region_id] = tail.name
        self.state.next_region_id = max(self.state.next_region_id, tail.region_id + 1)

    def _skip(self, header: FrameHeader) -> None:
        """Move on over what a repair skipped; the control frames that it wrote behind bring the feeds up to date."""
        self.gaps_allowed = True
        if header.count and header.region_id in self._names:
            tail = self._joined(header)
            self.state.feeds[tail.name] = tail.after_damaged(header)

    def _joined(self, header: FrameHeader) -> FeedTail:
        """The tail of the frame's feed, which the frame must join on to."""
        tail = self._tail(header)
        joins = header.first_sequence_id == tail.next_sequence_id or not tail.first_sequence_id
        if not joins and not self.gaps_allowed:
            raise JournalCorrupt(
                f"the frame at position {header.position:#x} begins at sequence id {header.first_sequence_id} of "
                f"{tail.name}, where {tail.next_sequence_id} is next",
                position=header.position,
            )
        return tail

    def _tail(self, header: FrameHeader) -> FeedTail:
        name = self._names.get(header.region_id)
        if name is None:
            raise JournalCorrupt(
                f"the frame at position {header.position:#x} is of region {header.region_id}, which was never made",
                position=header.position,
            )
        return self.state.feeds[name]
