"""Whatever is done to the bytes of a real binlog, the decoder gives a value or says what is wrong; it never crashes."""

from __future__ import annotations

import contextlib
import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import RowsChanged, TableMap, TableMapped
from headrace.capture.binlog.kinds import EventKind
from headrace.errors import BinlogInvalid, BinlogUnsupported, TableStopped
from tests.golden.binlog_mariadb import CHARSETS, read_golden, row_decoder
from tests.scale import scaled, sized

FORMAT, *RAW = read_golden()
WITHOUT_CHECKSUMS = FORMAT[:9] + len(FORMAT).to_bytes(4, "little") + FORMAT[13:-5] + b"\0"
SHAPES = {
    event.table.table_id: event.table
    for decoder in [Decoder(CHARSETS)]
    for event in [decoder.decode(raw) for raw in (FORMAT, *RAW)]
    if isinstance(event, TableMapped)
}


def started() -> Decoder:
    """A decoder that looks at no checksum, so that damage gets past it."""
    decoder = Decoder(CHARSETS)
    decoder.decode(_summed(WITHOUT_CHECKSUMS))
    return decoder


def _summed(raw: bytes) -> bytes:
    return raw + zlib.crc32(raw).to_bytes(4, "little")


def look(raw: bytes, shapes: dict[int, TableMap]) -> None:
    """Any other error than these is a failure."""
    with contextlib.suppress(BinlogInvalid, BinlogUnsupported, TableStopped):
        event = started().decode(raw)
        if isinstance(event, RowsChanged) and event.table_id in shapes:
            row_decoder(shapes[event.table_id]).rows(event)


@settings(max_examples=sized(scaled(120), soak=scaled(400)))
@given(st.data())
def test_damaged_events_are_told(data: st.DataObject) -> None:
    event = bytearray(data.draw(st.sampled_from(RAW))[:-4])
    for _ in range(data.draw(st.integers(0, 3))):
        event[data.draw(st.integers(13, len(event) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(event)))
    event = event[: data.draw(st.sampled_from([cut, len(event)]))]
    event[9:13] = len(event).to_bytes(4, "little")
    look(bytes(event), SHAPES)


def test_every_truncation_is_told() -> None:
    for raw in RAW:
        for size in range(19, len(raw) - 4):
            cut = raw[:9] + size.to_bytes(4, "little") + raw[13:size]
            look(cut, SHAPES)


@settings(max_examples=sized(scaled(60), soak=scaled(200)))
@given(st.sampled_from([*EventKind, 0, 99, 255]), st.binary(max_size=60), st.sampled_from([0, 0x80]))
def test_any_bytes_of_any_kind_are_told(kind: int, body: bytes, flags: int) -> None:
    header = bytes(4) + bytes([kind]) + bytes(4) + (19 + len(body)).to_bytes(4, "little") + bytes(4)
    look(header + bytes([flags, 0]) + body, {})
