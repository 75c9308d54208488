"""Control frames: changes of state that order or fence, made durable by the same writer as the entries.

A control frame's body is one JSON document: what happened, and the feed's whole tail afterwards. So each one also repairs
what an older one said.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from headrace.errors import JournalCorrupt
from headrace.log.tail import FeedTail
from headrace.runtime.typed_json import decode_json
from headrace.wire.frame import FrameHeader, FrameKind

NO_DIGEST: Final = bytes(16)
"""In a frame that no producer sent."""


class ControlKind(StrEnum):
    """What a control frame says happened."""

    FEED_MADE = "feed-made"
    REGISTERED = "registered"
    TAKEN_OVER = "taken-over"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    CONFIGURED = "configured"
    REPAIRED = "repaired"
    REBUILT = "rebuilt"


class Control(msgspec.Struct, frozen=True, rename="kebab"):
    """The body of a control frame. ``kind`` of a later version may be one that this one doesn't know."""

    kind: str
    feed: FeedTail

    def encode(self) -> bytes:
        """Return the JSON body."""
        return msgspec.json.encode(self)


def control_header(position: int, global_ts: int, tail: FeedTail, body_size: int) -> FrameHeader:
    """Return the header of a control frame that says what ``tail`` is from there on."""
    return FrameHeader(
        FrameKind.CONTROL, position, tail.next_sequence_id, global_ts, tail.epoch,
        NO_DIGEST, tail.region_id, 0, 0, body_size, 0,
    )  # fmt: skip


def decode_control(body: bytes | memoryview) -> Control:
    """Read a control frame's body; JournalCorrupt if it is not one."""
    try:
        return decode_json(body, Control)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalCorrupt(f"a control frame's body can't be read: {error}") from None
