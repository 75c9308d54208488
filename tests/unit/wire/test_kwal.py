"""KWAL segments: written as the format says, read back as they were."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, InvalidRequest, JournalCorrupt, SegmentCorrupt
from headrace.wire import varint
from headrace.wire.batch import ReceivedBatch, batches_of, decode_response, encode_batch
from headrace.wire.frame import Frame
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal import SegmentName, SegmentWriter, decode_head, places_of
from tests.kwal import TS, bytes_of, numbered, sealed, stamped
from tests.unit.wire.test_columns import frame


def by_hand(data: bytes) -> list[bytes]:
    """The oracle: the format's own words, one after the other."""
    assert data[:6] == b"KWAL\x00\x01"
    at = 6
    numbers = []
    for _ in range(3):
        number, at = varint.decode(data, at)
        numbers.append(number)
    entries = []
    for _ in range(numbers[2]):
        size, at = varint.decode(data, at)
        entries.append(data[at : at + size])
        at += size
    assert data[at:] == zlib.crc32(data[:at]).to_bytes(4, "big")
    lsns = [int(Lsn.parse(wal_pb2.WalEntry.FromString(entry).lsn)) for entry in entries]
    assert [lsns[0], lsns[-1]] == numbers[:2]
    return entries


@given(st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=4), min_size=1, max_size=5))
def test_a_segment_is_what_the_format_says(values: list[list[bytes]]) -> None:
    appends, first = [], 63
    for append in values:
        appends.append(stamped([Change(value, key=b"k") for value in append], first, ts=TS + first))
        first += len(append)
    segment = sealed(appends)
    data = bytes_of(segment)
    entries = by_hand(data)
    assert len(data) == segment.size
    assert segment.crc == zlib.crc32(data[:-4])
    # The stored bytes themselves, less the tag: nothing is encoded anew.
    assert b"".join(b"\x0a" + varint.encode(len(entry)) + entry for entry in entries) == b"".join(
        append.body for append in appends
    )
    head = decode_head(data, "x")
    assert (head.first, head.last, head.entries) == (*segment.name, len(entries))
    assert [data[start:end] for _, start, end in places_of(data, head, "x")] == entries


def test_the_writer_knows_its_size_and_refuses_what_does_not_follow() -> None:
    writer = SegmentWriter()
    first, second = numbered(1, 3), numbered(4, 2)
    writer.add(*first)
    writer.add(*second)
    size, entries = writer.size, writer.entries
    with pytest.raises(JournalCorrupt, match="stands behind"):
        writer.add(*second)
    third = numbered(6, 1)
    with pytest.raises(JournalCorrupt, match="not as long"):
        writer.add(third.body + b"x", *third[1:])
    with pytest.raises(JournalCorrupt, match="begins no entry"):
        writer.add(b"x" + third.body, *third[1:])
    assert (writer.size, writer.entries) == (size, entries)
    segment = writer.seal()
    assert segment.size - size == len(segment.pieces[0]) - 6, "but for the numbers in its head"
    assert segment.entries == 5
    with pytest.raises(ValueError, match="an entry at least"):
        SegmentWriter().seal()


def test_a_received_batch_is_added_as_it_comes() -> None:
    stored = Frame(frame([Change(b"x" * 90, key=b"k")] * 7, 5))
    writer = SegmentWriter()
    for batch in batches_of([stored], entries_max=3):
        received = decode_response(encode_batch(batch, incarnations={7: "life"}, want_lengths=True))
        assert isinstance(received, ReceivedBatch)
        writer.add(received.body, received.sizes, received.first_lsn, received.last_lsn)
    segment = writer.seal()
    assert segment.name == (stored.header.lsn(0), stored.header.lsn(6))
    assert [b"\x0a" + varint.encode(len(one)) + one for one in by_hand(bytes_of(segment))] == list(
        stored.entries()
    )


def test_names() -> None:
    name = SegmentName(Lsn(TS, 7, 1), Lsn(TS + 5, 2, 9))
    text = f"kdb-wal-{TS:016x}.0000000007.0000000001-{TS + 5:016x}.0000000002.0000000009.bin"
    assert str(name) == text
    assert name.manifest == text.removesuffix(".bin") + ".manifest.json"
    assert SegmentName.parse(text) == name
    assert SegmentName.parse(f"kdb-wal-{TS:x}.7.1-{TS + 5:x}.2.9.bin") == name, "RFC-010 does not pad"
    for wrong in (
        "kdb-wal-1.1.1.bin",
        "kdb-wal-2.1.1-1.1.1.bin",
        "x",
        text + ".tmp",
        "kdb-wal-1.1.1-1.1.z.bin",
    ):
        with pytest.raises(InvalidRequest):
            SegmentName.parse(wrong)


def test_a_head_that_is_none_is_refused() -> None:
    data = bytes_of(sealed([numbered(1, 2)]))
    with pytest.raises(FormatTooNew, match=r"b\.bin"):
        decode_head(data[:4] + b"\x00\x02" + data[6:], "b.bin")
    for wrong in (
        b"",
        b"KWAL",
        b"KWAX" + data[4:],
        b"KWAL\x00\x00" + data[6:],
        data[:9],
        data[:6] + b"\x80" * 40,
    ):
        with pytest.raises(SegmentCorrupt, match=r"b\.bin"):
            decode_head(wrong, "b.bin")
    none = data[:6] + b"\x01\x01\x00"
    with pytest.raises(SegmentCorrupt, match="0 entries"):
        decode_head(none, "b.bin")
