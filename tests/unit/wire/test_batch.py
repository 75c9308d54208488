"""Batches: every entry from the start on is in exactly one, in order, within the bounds; and they are read as written."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.wire.batch import (
    Batch,
    Heartbeat,
    ReceivedBatch,
    StreamError,
    batches_of,
    decode_response,
    encode_batch,
    encode_error,
    encode_heartbeat,
)
from headrace.wire.compression import (
    NONE,
    PLAIN_BYTES_MAX,
    SNAPPY,
    ZSTD,
    CompressionTerms,
    choose,
    compress,
    decompress,
)
from headrace.wire.entry import encode_half, stamp
from headrace.wire.frame import FIRST_POSITION, HEADER_SIZE, Frame, FrameHeader, FrameKind, encode_frame
from headrace.wire.generated import wal_pb2
from tests.scale import scaled

TS = 1_760_000_000_000 << 18


def frames(counts: Sequence[int], *, value: int = 10, first: int = 1) -> list[Frame]:
    """Frames of so many entries each (0: a control frame), of two feeds in turn."""
    found: list[Frame] = []
    position = FIRST_POSITION
    following = {1: first, 2: first}
    for number, count in enumerate(counts):
        region, stamped_at = number % 2 + 1, TS + 4 * number
        area, body, lengths = b"area" * (number % 3), b"{}", b""
        if count:
            halves = [encode_half(Change(b"v" * value, key=b"%d" % index)) for index in range(count)]
            body, lengths = stamp(
                halves, global_ts=stamped_at, region_id=region, first_sequence_id=following[region],
                tenant="t", key_prefix="r:t:f:",
            )  # fmt: skip
        kind = FrameKind.ENTRIES if count else FrameKind.CONTROL
        header = FrameHeader(
            kind, position, following[region], stamped_at, 1, bytes(16), region, count, 0, 0, 0
        )
        following[region] += count
        found.append(Frame(encode_frame(header, area, body, lengths)))
        position = found[-1].header.end
    return found


def lsns_of(batches: Sequence[Batch]) -> list[str]:
    found = []
    for batch in batches:
        entries = wal_pb2.WalBatch.FromString(b"".join(batch.bodies)).entries
        assert len(entries) == batch.entries
        assert (entries[0].lsn, entries[-1].lsn) == (str(batch.first_lsn), str(batch.last_lsn))
        found += [entry.lsn for entry in entries]
    return found


def all_lsns(given: Sequence[Frame]) -> list[str]:
    return [str(frame.header.lsn(index)) for frame in given for index in range(frame.header.count)]


def test_every_entry_is_in_one_batch_whatever_the_bounds_and_the_start() -> None:
    source = random.Random(11)
    for _ in range(scaled(60)):
        given = frames(
            [source.choice((0, 1, 1, 2, 7, 40)) for _ in range(12)], first=source.choice((1, 0xFFFFFFF0))
        )
        expected = all_lsns(given)
        entries_max, bytes_max = source.choice((1, 3, 10, 1000)), source.choice((1, 200, 1000, 1 << 20))
        start = Lsn.parse(source.choice(expected)) if expected and source.random() < 0.7 else ZERO
        batches = list(batches_of(given, start=start, entries_max=entries_max, bytes_max=bytes_max))
        assert lsns_of(batches) == [lsn for lsn in expected if lsn >= str(start)]
        for batch in batches:
            assert batch.entries <= entries_max
            assert batch.size <= bytes_max or batch.entries == 1
            assert batch.size == sum(map(len, batch.bodies))
        positions = [
            place for batch in batches for place in {batch.first_position: 0, batch.last_position: 0}
        ]
        assert positions == sorted(positions)


def test_a_start_between_entries_begins_at_the_next_one() -> None:
    given = frames([3, 3])
    between = given[0].header.lsn(1)
    assert lsns_of(list(batches_of(given, start=between)))[0] == str(between)
    before = between._replace(region_id=0)
    assert lsns_of(list(batches_of(given, start=before)))[0] == str(given[0].header.lsn(0))
    later = given[0].header.lsn(2)._replace(region_id=9)
    assert lsns_of(list(batches_of(given, start=later)))[0] == str(given[1].header.lsn(0))


def test_control_frames_alone_make_no_batch() -> None:
    assert list(batches_of(frames([0, 0]))) == []


def test_positions_are_where_the_entries_stand() -> None:
    given = frames([5])
    (first, second) = batches_of(given, entries_max=3)
    sizes = list(given[0].lengths)
    body_at = given[0].header.position + HEADER_SIZE + given[0].header.area_size
    assert first.first_position == body_at
    assert first.last_position == body_at + sum(sizes[:2])
    assert second.first_position == body_at + sum(sizes[:3])
    assert second.last_position == body_at + sum(sizes[:4])


def test_a_batch_is_read_as_written_by_us_and_by_protobuf() -> None:
    (batch,) = batches_of(frames([3, 0, 2]))
    data = encode_batch(batch, incarnations={2: "second", 1: "first"}, want_lengths=True)
    received = decode_response(data)
    assert isinstance(received, ReceivedBatch)
    assert (received.first_lsn, received.last_lsn) == (batch.first_lsn, batch.last_lsn)
    assert (received.first_position, received.last_position) == (batch.first_position, batch.last_position)
    assert received.incarnations == {1: "first", 2: "second"}
    message = wal_pb2.WalResponse.FromString(data).batch
    assert list(received.messages()) == list(message.entries)
    assert len(message.entries) == 5
    assert message.compression == wal_pb2.NONE
    assert [len(entry) for entry in received.entries()] == list(received.sizes)


def test_heartbeats_and_errors_are_read_as_written() -> None:
    assert decode_response(encode_heartbeat(Heartbeat(Lsn(5, 6, 7)))) == Heartbeat(Lsn(5, 6, 7))
    assert decode_response(encode_error("over")) == StreamError("over")


@pytest.mark.parametrize("cut", [1, 20, 90, -1])
def test_what_is_torn_is_never_taken_for_a_batch(cut: int) -> None:
    (batch,) = batches_of(frames([3]))
    data = encode_batch(batch, incarnations={}, want_lengths=True)
    with pytest.raises(JournalCorrupt):
        decode_response(data[:cut])


@pytest.mark.parametrize("compression", [NONE, SNAPPY, ZSTD])
@pytest.mark.parametrize("want_lengths", [True, False])
def test_a_batch_is_read_in_every_form(compression: int, want_lengths: bool) -> None:
    (batch,) = batches_of(frames([3, 40]))
    data = encode_batch(batch, incarnations={7: "x"}, want_lengths=want_lengths, compression=compression)
    message = wal_pb2.WalResponse.FromString(data).batch
    assert message.compression == compression
    assert bool(message.entries) == (compression == NONE)
    assert bool(message.entry_lengths) == want_lengths
    found = decode_response(data)
    assert isinstance(found, ReceivedBatch)
    assert bytes(found.body) == b"".join(batch.bodies)
    assert found.sizes.tobytes() == b"".join(batch.lengths)
    for cut in range(1, len(data)):
        with pytest.raises(JournalCorrupt):
            decode_response(data[:cut])


@pytest.mark.parametrize("compression", [SNAPPY, ZSTD])
def test_what_would_get_larger_is_sent_as_it_is(compression: int) -> None:
    (batch,) = batches_of(frames([1]))
    small = batch._replace(bodies=[batch.bodies[0][:0]], size=0)
    message = wal_pb2.WalResponse.FromString(
        encode_batch(small, incarnations={}, want_lengths=True, compression=compression)
    )
    assert message.batch.compression == NONE


@pytest.mark.parametrize("compression", [SNAPPY, ZSTD])
def test_a_compressed_batch_that_says_it_is_huge_is_not_opened(compression: int) -> None:
    packed = bytearray(compress(compression, bytes(PLAIN_BYTES_MAX + 1)))
    with pytest.raises(JournalCorrupt, match="say that they are"):
        decompress(compression, bytes(packed))
    with pytest.raises(JournalCorrupt, match="can't be read"):
        decompress(compression, b"\xff\x01 no such data")


@pytest.mark.parametrize(
    ("accepted", "size", "kind"),
    [
        ((), 1 << 20, NONE),
        ((SNAPPY, ZSTD), 4 << 10, NONE),
        ((SNAPPY, ZSTD), (4 << 10) + 1, SNAPPY),
        ((SNAPPY, ZSTD), 64 << 10, SNAPPY),
        ((SNAPPY, ZSTD), (64 << 10) + 1, ZSTD),
        ((SNAPPY,), 1 << 20, SNAPPY),
        ((ZSTD,), 64 << 10, NONE),
        ((ZSTD,), (64 << 10) + 1, ZSTD),
        ((NONE, 17), 1 << 20, NONE),
    ],
)
def test_the_compression_goes_by_what_is_accepted_and_by_size(
    accepted: tuple[int, ...], size: int, kind: int
) -> None:
    assert choose(accepted, size, CompressionTerms()) == kind
