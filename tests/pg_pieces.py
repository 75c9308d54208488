"""Pieces of stored frames for tests of output plugins, and what the plugins have to say of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.entries.entry import Change
from headrace.server.pg.output.contract import Piece, Rendered
from headrace.server.pg.output.registry import OUTPUTS
from headrace.wire.entry import encode_half, message_of, stamp
from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader, FrameKind, encode_frame
from headrace.wire.rendering import entry_out

FEED = "vmapi::vm"
INCARNATION = "0b8e9d3c-5d0f-4a55-8a6e-0f2f6f6f0001"
GLOBAL_TS = (1_795_000_000_123 << 18) + 7
REGION_ID = 3
XID = 731


class GivenSchemas:
    """Schemas that a test knows by heart: (feed, database, table) -> (sequence id, version, value), ascending."""

    def __init__(self, schemas: Mapping[tuple[str, str, str], Sequence[tuple[int, int, bytes]]]) -> None:
        self._schemas = schemas
        self.asked = 0

    def newest(self, feed: str, database: str, table: str, below: int) -> bytes | None:
        self.asked += 1
        found = [value for at, _, value in self._schemas.get((feed, database, table), ()) if at < below]
        return found[-1] if found else None

    def version(self, feed: str, database: str, table: str, version: int) -> bytes | None:
        self.asked += 1
        found = [value for _, one, value in self._schemas.get((feed, database, table), ()) if one == version]
        return found[-1] if found else None


class Place(NamedTuple):
    """Where a frame stands."""

    first: int = 1
    position: int = 0x100
    global_ts: int = GLOBAL_TS


BEGIN = Place()


def frame_of(changes: Sequence[Change], place: Place = BEGIN) -> Frame:
    """Return a frame of these changes, as the writer lays it out."""
    body, lengths = stamp(
        [encode_half(change) for change in changes],
        global_ts=place.global_ts,
        region_id=REGION_ID,
        first_sequence_id=place.first,
        tenant="default",
        key_prefix=f"local:default:{FEED}:",
    )
    header = FrameHeader(
        FrameKind.ENTRIES, place.position, place.first, place.global_ts, 1, bytes(16), REGION_ID,
        len(changes), 0, len(body), 0,
    )  # fmt: skip
    return Frame(encode_frame(header, b"", body, lengths))


def piece_of(frame: Frame, wanted: Sequence[int] | None = None) -> Piece:
    """Return all of a frame as one whole transaction."""
    return Piece(FEED, INCARNATION, frame, 0, frame.header.count - 1, True, True, XID, wanted)


def rendered(
    plugin: str,
    changes: Sequence[Change],
    options: Mapping[str, str] | None = None,
    *,
    place: Place = BEGIN,
    wanted: Sequence[int] | None = None,
    schemas: GivenSchemas | None = None,
) -> Rendered:
    """Return what a new output of this plugin makes of one whole transaction."""
    output = OUTPUTS[plugin](options or {}, schemas or GivenSchemas({}))
    return output.render(piece_of(frame_of(changes, place), wanted))


def documents(payloads: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return JSON lines as values."""
    return [json.loads(payload) for payload in payloads]


def http_lines(frame: Frame) -> list[dict[str, Any]]:
    """Return what HTTP gives of each entry, with the two members that lines have besides."""
    at = frame.header.position + HEADER_SIZE + frame.header.area_size
    found = []
    for sequence_id, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
        entry = json.loads(msgspec.json.encode(entry_out(message_of(stored), sequence_id)))
        found.append({"feed": FEED, "local-lsn": f"{at >> 32:X}/{at & 0xFFFFFFFF:X}", **entry})
        at += len(stored)
    return found
