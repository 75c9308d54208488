"""The redo pass: a replay moved on over the frames of a segment, whatever is damaged there. Opening and repair begin so.

It applies what is intact and yields everything else; what that means is for who opens, or who repairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from headrace.errors import JournalCorrupt
from headrace.log.files.adoption import tail_before
from headrace.log.files.scan import CHUNK_BYTES, Hole, Read, frame_or_hole
from headrace.log.replay import Replay
from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader, FrameKind
from headrace.wire.run import RUN_BYTES, intact_run


class Damaged(NamedTuple):
    """A frame of which only a header can be read, or that reaches beyond the end. It was not applied."""

    header: FrameHeader
    error: JournalCorrupt


class Adopted(NamedTuple):
    """Intact entries of a feed whose making can't be read: its tail was told from them before they were applied."""

    header: FrameHeader


class Unjoined(NamedTuple):
    """An intact frame that does not fit what was before it, or that says nothing readable. It was not applied."""

    header: FrameHeader
    error: JournalCorrupt


Seen = Callable[[Sequence[FrameHeader]], None]


def redo(  # noqa: PLR0917  # a range of bytes, and what is made of it
    read: Read, position: int, stop: int, replay: Replay, where: str, seen: Seen
) -> Iterator[Hole | Damaged | Adopted | Unjoined]:
    """Move ``replay`` on over the frames of ``position`` … ``stop`` - 1 in a file named ``where``; yield what is not plain.

    ``seen`` is told every header, damaged frames' too, in journal order, before anything is yielded of them. At a yield the
    replay is the caller's to change. Raises FormatTooNew.
    """
    size = RUN_BYTES
    while position < stop:
        run = intact_run(read(position, min(size, stop - position)), position)
        if run.headers:
            seen(run.headers)
            for header, payload in zip(*run, strict=True):
                yield from _apply(replay, header, payload)
            position = run.headers[-1].end
            continue
        # Damaged, or longer than what was read: looked at by itself.
        found = frame_or_hole(read, position, stop)
        if isinstance(found, Hole):
            yield found
            position = found.end
            continue
        header, data = found
        seen([header])
        try:
            Frame(data, where=where, header=header)
        except JournalCorrupt as error:
            yield Damaged(header, error)
        else:
            size = min(max(RUN_BYTES, 4 * header.size), CHUNK_BYTES)
            yield from _apply(replay, header, data[HEADER_SIZE : HEADER_SIZE + header.payload_size])
        position = header.end


def _apply(replay: Replay, header: FrameHeader, payload: bytes) -> Sequence[Adopted | Unjoined]:
    adopted: tuple[Adopted, ...] = ()
    try:
        if header.kind != FrameKind.ENTRIES:
            replay.apply(Frame.verified(header, payload))
            return ()
        if not replay.knows(header.region_id):
            replay.adopt(tail_before(Frame.verified(header, payload)))
            adopted = (Adopted(header),)
        replay.apply_entries(header, payload[: header.area_size])
    except JournalCorrupt as error:
        return (*adopted, Unjoined(header, error))
    return adopted
