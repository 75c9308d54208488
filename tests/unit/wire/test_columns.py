"""Frames as Arrow columns: array operations agree with protobuf on everything, and refuse what is damaged."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change, Op
from headrace.errors import JournalCorrupt
from headrace.wire import columns, varint
from headrace.wire import entry as wal_entry
from headrace.wire.frame import Frame, FrameHeader, FrameKind, encode_frame, frames_of
from headrace.wire.generated import wal_pb2

TS = 1_800_000_000_000 << 18
FEED = "vmapi::vm"


def header(first: int, count: int, global_ts: int = TS, region_id: int = 7) -> FrameHeader:
    return FrameHeader(FrameKind.ENTRIES, 0x100, first, global_ts, 1, bytes(16), region_id, count, 0, 0, 0)


def frame(
    changes: list[Change], first: int = 1, *, global_ts: int = TS, tenant: str = "t", area: bytes = b""
) -> bytes:
    """One append as our server stamps it."""
    body, lengths = wal_entry.stamp(
        [wal_entry.encode_half(change) for change in changes],
        global_ts=global_ts,
        region_id=7,
        first_sequence_id=first,
        tenant=tenant,
        key_prefix=f"main:{tenant}:{FEED}:",
    )
    return _sealed(header(first, len(changes), global_ts), body, lengths, area)


def foreign_frame(bodies: list[bytes], first: int = 1) -> bytes:
    """A frame of WalEntry messages that somebody else serialised."""
    fields = [b"\x0a" + varint.encode(len(body)) + body for body in bodies]
    lengths = array("I", [len(field) for field in fields])
    return _sealed(header(first, len(bodies)), b"".join(fields), lengths.tobytes())


def _sealed(head: FrameHeader, body: bytes, lengths: bytes, area: bytes = b"") -> bytes:
    sized = head._replace(area_size=len(area), body_size=len(body))
    return encode_frame(sized, area, body, lengths)


def by_protobuf(data: bytes) -> list[dict[str, Any]]:
    """The oracle: every entry of every frame, read by protobuf."""
    rows = []
    for whole in frames_of(data):
        for index, stored in enumerate(whole.entries()):
            message = wal_entry.message_of(stored)
            lsn = whole.header.lsn(index)
            op = "patch" if message.patch else ["put", "delete", "batch"][message.op_type]
            rows.append(
                {
                    "feed": FEED,
                    "sequence_id": whole.header.first_sequence_id + index,
                    "lsn": message.lsn,
                    "commit_ts": lsn.global_ts,
                    "committed_at": lsn.committed_at_ms,
                    "tenant_id": message.tenant_id,
                    "op": op,
                    "key": message.key,
                    "value": message.value,
                    "control": message.control or None,
                    "table": list(message.table) or None,
                    "source_tx": message.source_tx or None,
                    "tx_last": message.tx_last,
                    "append_end": message.append_end,
                    "copy": message.copy,
                    "source_time": message.source_time_ms or None,
                }
            )
    return rows


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The batch as rows, its times as milliseconds (Python's datetime ends at the year 9999)."""
    batch.validate(full=True)
    plain = pa.Table.from_batches([batch])
    for name in ("committed_at", "source_time"):
        if name in plain.column_names:
            at = plain.column_names.index(name)
            ms = pa.compute.divide(plain[name].cast(pa.int64()), 1000)
            plain = plain.set_column(at, name, ms)
    return plain.to_pylist()  # type: ignore[no-any-return]  # pyarrow ships no types


texts = st.text(max_size=12)
changes = st.builds(
    Change,
    value=st.one_of(st.binary(max_size=40), st.binary(min_size=120, max_size=400)),
    key=st.one_of(st.none(), st.binary(max_size=200)),
    op=st.sampled_from(Op),
    source_tx=st.binary(max_size=10),
    tx_index=st.integers(0, (1 << 64) - 1),
    tx_last=st.booleans(),
    source_time_ms=st.one_of(st.just(0), st.integers(1, columns._MS_MAX)),
    copy=st.booleans(),
    control=texts,
    changed=st.lists(texts, max_size=3).map(tuple),
    before=st.one_of(st.none(), st.binary(max_size=150)),
    table=st.lists(texts, max_size=3).map(tuple),
)
appends = st.lists(changes, min_size=1, max_size=6)


@given(
    st.lists(appends, max_size=4),
    st.sampled_from([1, 63, 0xFFFFFFFE, 1 << 40]),
    st.sampled_from([TS, 5, 1 << 50]),
    st.sampled_from(["t", "a-tenant", "x" * 150]),
)
def test_what_our_server_stamps_reads_as_protobuf_reads_it(
    batches: list[list[Change]], first: int, global_ts: int, tenant: str
) -> None:
    data = b""
    for batch in batches:
        data += frame(batch, first, global_ts=global_ts, tenant=tenant, area=b"\x09\x00\x00\x00\x00\x00")
        first += len(batch)
    got = columns.record_batch(data, feed=FEED)
    assert got.schema.equals(columns.SCHEMA)
    assert rows_of(got) == by_protobuf(data)


@st.composite
def foreign_entries(draw: st.DrawFn) -> bytes:
    """A WalEntry with its fields in any order, some repeated, some unknown."""
    message = wal_pb2.WalEntry(
        lsn=str(header(1, 1).lsn(0)),
        committed_at_ms=draw(st.integers(0, (1 << 64) - 1)),
        tenant_id=draw(texts),
        op_type=draw(st.sampled_from([wal_pb2.OP_PUT, wal_pb2.OP_DELETE, wal_pb2.OP_BATCH])),
        key=draw(st.binary(max_size=200)),
        value=draw(st.binary(max_size=200)),
        hlc_ts=draw(st.integers(0, (1 << 64) - 1)),
        tx_last=draw(st.booleans()),
        control=draw(texts),
        table=draw(st.lists(texts, max_size=3)),
        before=draw(st.binary(max_size=5)),
    )
    unknown = [
        varint.tag(50, 2) + b"\x03abc",
        varint.tag(9000, 0) + b"\x01",
        varint.tag(51, 5) + b"1234",
        varint.tag(52, 1) + b"12345678",
        varint.tag(7, 0) + b"\x05",  # a known number with another wire type
        varint.tag(103, 0) + b"\x80\x80\x00",  # a false of three bytes
        varint.tag(106, 2) + b"\x05again",
        b"\xba\x00\x03xyz",  # field 7, its tag in two bytes
    ]
    parts = [_field(message, field.name) for field, _ in message.ListFields()]
    parts += draw(st.lists(st.sampled_from(unknown), max_size=4))
    random.Random(draw(st.integers(0, 1 << 20))).shuffle(parts)
    return b"".join(parts)


def _field(message: wal_pb2.WalEntry, name: str) -> bytes:
    alone = wal_pb2.WalEntry()
    if name == "table":
        alone.table.extend(message.table)
    else:
        setattr(alone, name, getattr(message, name))
    return alone.SerializeToString()


@given(st.lists(foreign_entries(), min_size=1, max_size=8), st.lists(changes, max_size=3))
def test_what_others_laid_out_reads_as_protobuf_reads_it(bodies: list[bytes], ours: list[Change]) -> None:
    data = foreign_frame(bodies) + (frame(ours, first=1 + len(bodies)) if ours else b"")
    assert rows_of(columns.record_batch(data, feed=FEED)) == by_protobuf(data)


def test_first_and_last_frame_are_trimmed() -> None:
    data = b"".join(frame([Change(b"v", b"k")] * 10, first) for first in (1, 11, 21))
    got = columns.record_batch(data, feed=FEED, first=8, last=22)
    assert got["sequence_id"].to_pylist() == list(range(8, 23))
    assert got["append_end"].to_pylist().count(True) == 2
    assert columns.record_batch(data, feed=FEED, first=31).num_rows == 0


def test_named_columns_come_alone_and_in_the_order_asked_for() -> None:
    data = frame([Change(b"v", b"k", table=("main", "t"))])
    got = columns.record_batch(data, feed=FEED, names=["table", "sequence_id"])
    assert got.to_pylist() == [{"table": ["main", "t"], "sequence_id": 1}]


def test_nothing_and_control_frames_give_no_rows() -> None:
    control = _sealed(header(5, 0)._replace(kind=FrameKind.CONTROL), b"{}", b"")
    for data in (b"", control):
        got = columns.record_batch(data, feed=FEED)
        assert got.num_rows == 0
        assert got.schema.equals(columns.SCHEMA)


def test_damage_is_named() -> None:
    good = frame([Change(b"value", b"key")])
    for at in range(100, len(good) - 96, 7):
        broken = bytearray(good)
        broken[at] ^= 0x40
        with pytest.raises(JournalCorrupt, match="the server at x"):
            columns.record_batch(bytes(broken), feed=FEED, where="the server at x")
    short = _sealed(header(1, 1), Frame(good).body.tobytes(), array("I", [1]).tobytes())
    with pytest.raises(JournalCorrupt, match="don't add up"):
        columns.record_batch(short, feed=FEED)


@pytest.mark.parametrize(
    "body",
    [
        b"\x28\x00",  # no LSN
        b"\x0a\x01x\x28\x09",  # no such op
        b"\x0a\x01x\x28\x00\xd2\x06\x02\xff\xfe",  # a control name that is no text
        b"\x0a\x01x\x28\x00\x3a\x7fx",  # a value that ends beyond its entry
    ],
    ids=["no-lsn", "op", "utf8", "overrun"],
)
def test_what_is_no_entry_is_refused(body: bytes) -> None:
    data = foreign_frame([body])
    with pytest.raises(JournalCorrupt):
        columns.record_batch(data, feed=FEED)
