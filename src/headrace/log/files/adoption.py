"""A feed whose making can't be read any more, told from its entries: so that damage in one frame hides no other."""

from __future__ import annotations

import uuid
from typing import Final

from headrace.log.tail import FeedTail
from headrace.wire.entry import decode_entry
from headrace.wire.frame import Area, Frame, decode_area

_NAMESPACE: Final = uuid.UUID("6f1d3a52-7c0e-5d43-9b1a-0a3f5f0e7c11")


def tail_before(frame: Frame) -> FeedTail:
    """Return the tail of the frame's feed as it must have been before this intact frame of entries.

    Each entry carries tenant and feed name, the frame its producer and epoch. The incarnation is lost: one is made from
    what is known, the same at each opening, so that readers who knew another find out.
    """
    header = frame.header
    entry = decode_entry(next(iter(frame.entries())), header.first_sequence_id)
    _, tenant, name = entry.key_prefix.split(":", 2)
    producer = decode_area(frame.area).get(Area.PRODUCER, b"").decode()
    return FeedTail(
        name=name.removesuffix(":"),
        region_id=header.region_id,
        tenant=tenant,
        incarnation=str(uuid.uuid5(_NAMESPACE, f"{entry.key_prefix}{header.region_id}")),
        owner=producer,
        instance="",
        epoch=header.epoch,
        next_sequence_id=header.first_sequence_id,
        agents={producer: header.epoch},
    )
