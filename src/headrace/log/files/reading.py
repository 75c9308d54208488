"""Frames read back from a segment's bytes, verified: those of a feed at places that an index names, or all in a row.

Bytes come from ``read(position, size)``, which returns fewer at the end of what there is; ``where`` names the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt, SequenceLost
from headrace.log.files.index import place_of
from headrace.log.files.scan import Read, header_at
from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader, FrameKind, parse_header
from headrace.wire.run import RUN_BYTES, intact_run
from headrace.wire.segment import FramePlace

GAP_BYTES_MAX: Final = 4 << 10
"""Bytes of other feeds that are read as well rather than read around."""


def frames_at(read: Read, places: Sequence[FramePlace], where: str) -> list[Frame]:
    """Return the whole verified frames of ``places``; those that stand near each other are read together.

    A frame's second header serves where only the first is damaged. JournalCorrupt if a frame is damaged, or another one
    stands at its place.
    """
    frames: list[Frame] = []
    data, base = b"", 0
    for number, place in enumerate(places):
        begin = place.position - base
        if not 0 <= begin <= len(data) - place.size:
            data, base, begin = read(place.position, _span(places, number)), place.position, 0
        run = intact_run(data[begin : begin + place.size], place.position)
        if run.headers and place_of(run.headers[0]) == place:
            frames.append(Frame.verified(run.headers[0], run.payloads[0]))
        else:
            frames.append(_hurt_frame_at(read, place, where))
    return frames


def _span(places: Sequence[FramePlace], number: int) -> int:
    """Return how many bytes to read from a place on: up to the last one of those that follow closely."""
    first = places[number]
    end = first.position + first.size
    for at in range(number + 1, len(places)):
        place = places[at]
        reach = place.position + place.size - first.position
        if not 0 <= place.position - end <= GAP_BYTES_MAX or reach > RUN_BYTES:
            break
        end = first.position + reach
    return end - first.position


def _hurt_frame_at(read: Read, place: FramePlace, where: str) -> Frame:
    """Return a frame that is not all as it was written, if its second header makes up for the first."""
    data = read(place.position, place.size)
    header = parse_header(data) or parse_header(data[-HEADER_SIZE:])
    if header is None:
        raise JournalCorrupt(
            f"{where}: both headers of the frame at position {place.position:#x} (region {place.region_id}, "
            f"sequence ids {place.first_sequence_id} to {place.first_sequence_id + place.count - 1}) are damaged",
            position=place.position,
        )
    if place_of(header) != place:
        raise JournalCorrupt(
            f"{where}: another frame stands at position {place.position:#x}", position=place.position
        )
    return Frame(data, where=where, header=header)


def frames_from(read: Read, position: int, stop: int, bytes_max: int, where: str) -> list[Frame]:
    """Return the verified frames of ``position`` … ``stop`` - 1: up to ``bytes_max`` bytes, at least one.

    Ends before a damaged frame, so that what stands before it can be had; JournalCorrupt if that is the first.
    SequenceLost if the first is one that a repair skipped, with ``resume_lsn`` and ``resume_position`` to go on from.
    """
    data = read(position, min(max(bytes_max, HEADER_SIZE), stop - position))
    run = intact_run(data, position)
    frames = run.frames()
    if FrameKind.SKIPPED in {header.kind for header in run.headers}:
        lost = next((at for at, header in enumerate(run.headers) if _is_lost(header)), len(frames))
        if lost == 0:
            raise _lost(run.headers[0], where)
        frames = frames[:lost]
    if not frames and position < stop:
        frames.append(_frame_from(read, position, stop, where))
    return frames


def _frame_from(read: Read, position: int, stop: int, where: str) -> Frame:
    """Return the frame at ``position``, which is damaged, or longer than what is read at a time."""
    header = header_at(read, position, stop)
    if header is None:
        raise JournalCorrupt(
            f"{where}: both headers of the frame at position {position:#x} are damaged", position=position
        )
    if _is_lost(header):
        raise _lost(header, where)
    return frames_at(read, [place_of(header)], where)[0]


def _is_lost(header: FrameHeader) -> bool:
    """Tell whether a repair put this frame where entries are lost, or where nobody knows what was."""
    return header.kind == FrameKind.SKIPPED and (header.count > 0 or not header.region_id)


def _lost(header: FrameHeader, where: str) -> SequenceLost:
    """What who walks over all feeds is told there."""
    return SequenceLost(
        f"{where}: what stood at position {header.position:#x} was damaged, and a repair skipped it",
        position=header.position,
        resume_position=header.end,
        resume_lsn=str(Lsn(header.last_global_ts + 1, 0, 0)),
    )
