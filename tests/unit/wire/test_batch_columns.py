"""Received batches as Arrow columns and checked: array operations, the plain loop and protobuf agree."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn, lsn_of
from headrace.errors import JournalCorrupt
from headrace.wire import batch_columns, varint
from headrace.wire import entry as wal_entry
from headrace.wire.batch import ReceivedBatch
from headrace.wire.batch_check import check_batch
from headrace.wire.generated import wal_pb2

TS = 1_800_000_000_000 << 18
CHECKS: Sequence[Callable[[ReceivedBatch], object]] = (
    check_batch,
    batch_columns.check,
    batch_columns.record_batch,
)
RIGHT = wal_entry.checksum(b"k", b"v")
OPS = ("put", "delete", "batch")


def batch_of(changes: list[Change], first: int = 1, tenant: str = "t") -> ReceivedBatch:
    """One append as our server stamps and sends it."""
    halves = [wal_entry.encode_half(change) for change in changes]
    body, lengths = wal_entry.stamp(
        halves,
        global_ts=TS + first,
        region_id=7,
        first_sequence_id=first,
        tenant=tenant,
        key_prefix=f"main:{tenant}:vmapi::vm:",
    )
    ends = [lsn_of(TS + first, 7, first, index) for index in (0, len(halves) - 1)]
    return ReceivedBatch(ends[0], ends[1], 0, 0, {}, memoryview(body), array("I", lengths))


def received(messages: Sequence[bytes]) -> ReceivedBatch:
    """A batch of entries that somebody else serialised."""
    fields = [b"\x0a" + varint.encode(len(message)) + message for message in messages]
    read = [wal_pb2.WalEntry.FromString(message).lsn for message in (messages[0], messages[-1])]
    first, last = map(Lsn.parse, read)
    return ReceivedBatch(
        first, last, 0, 0, {}, memoryview(b"".join(fields)), array("I", list(map(len, fields)))
    )


def foreign(number: int, key: bytes = b"k", value: bytes = b"v", **fields: Any) -> wal_pb2.WalEntry:
    """An entry as another implementation may write it: unpadded, and with what it likes."""
    given: dict[str, Any] = {
        "lsn": f"{TS + number:x}.7.{number}",
        "key": key,
        "value": value,
        "checksum": wal_entry.checksum(key, value),
    }
    return wal_pb2.WalEntry(**(given | fields))


def by_protobuf(batch: ReceivedBatch) -> list[dict[str, Any]]:
    """The oracle: each entry as a message, its fields as the columns are described."""
    return [
        {
            "lsn": message.lsn,
            "committed_at": message.committed_at_ms or None,
            "tenant_id": message.tenant_id,
            "key_prefix": message.key_prefix,
            "op": "patch" if message.patch else OPS[message.op_type],
            "key": message.key,
            "value": message.value,
            "hlc_ts": message.hlc_ts,
            "append_end": message.append_end,
            "source_tx": message.source_tx or None,
            "tx_index": message.tx_index,
            "tx_last": message.tx_last,
            "source_time": message.source_time_ms or None,
            "copy": message.copy,
            "control": message.control or None,
            "changed": list(message.changed) or None,
            "before": message.before if message.HasField("before") else None,
            "table": list(message.table) or None,
        }
        for message in batch.messages()
    ]


def rows(batches: ReceivedBatch | Sequence[ReceivedBatch], **asked: Any) -> list[dict[str, Any]]:
    found = batch_columns.record_batch(batches, **asked)
    found.validate(full=True)
    listed: list[dict[str, Any]] = found.to_pylist()
    for row in listed:
        for name in {"committed_at", "source_time"} & row.keys():
            row[name] = row[name] and round(row[name].timestamp() * 1000)
    return listed


texts = st.text(max_size=5)
changes = st.builds(
    Change,
    value=st.binary(max_size=200),
    key=st.one_of(st.none(), st.binary(min_size=1, max_size=140)),
    op=st.sampled_from(Op),
    source_tx=st.binary(max_size=3),
    tx_index=st.integers(0, 1 << 40),
    tx_last=st.booleans(),
    source_time_ms=st.one_of(st.just(0), st.integers(1, 1 << 43)),
    copy=st.booleans(),
    control=st.sampled_from(["", "schema"]),
    changed=st.lists(texts, max_size=3).map(tuple),
    before=st.one_of(st.none(), st.binary(max_size=4)),
    table=st.lists(texts, max_size=2).map(tuple),
)


@given(st.lists(st.lists(changes, min_size=1, max_size=8), min_size=1, max_size=4), texts)
def test_columns_are_what_protobuf_reads(appends: list[list[Change]], tenant: str) -> None:
    firsts = [0, *accumulate(map(len, appends))]
    batches = [batch_of(one, 1 + first, tenant) for one, first in zip(appends, firsts, strict=False)]
    wanted = [row for batch in batches for row in by_protobuf(batch)]
    assert rows(batches) == wanted
    assert rows(batches, names=("value", "lsn")) == [
        {"value": row["value"], "lsn": row["lsn"]} for row in wanted
    ]
    for batch in batches:
        check_batch(batch)
        batch_columns.check(batch)


def test_foreign_layouts_are_read_and_checked_too() -> None:
    plain = [foreign(number, value=b"%d" % number) for number in range(1, 6)]
    halves = [message.SerializeToString() for message in plain]
    key, value = b"\x32\x01k", b"\x3a\x01v"
    check = b"\x4a\x04" + wal_entry.checksum(b"k", b"v")
    lsn = f"{TS + 6:x}.7.6".encode()
    reversed_fields = check + value + key + b"\x0a" + bytes((len(lsn),)) + lsn
    twice = b"\x32\x03old" + foreign(7).SerializeToString()
    fixed = foreign(8).SerializeToString() + b"\xf9\x7f" + bytes(8)
    huge = foreign(9, hlc_ts=(1 << 64) - 1).SerializeToString()
    empty = foreign(10, key=b"", value=b"").SerializeToString()
    batch = received([*halves, reversed_fields, twice, fixed, huge, empty])
    check_batch(batch)
    batch_columns.check(batch)
    assert rows(batch) == by_protobuf(batch)
    assert [row["hlc_ts"] for row in rows(batch)][-2:] == [(1 << 64) - 1, 0]


@pytest.mark.parametrize("check", CHECKS)
def test_a_changed_byte_is_told_with_its_lsn(check: Callable[[ReceivedBatch], object]) -> None:
    source = random.Random(7)
    batch = batch_of([Change(b"value-%d" % number, key=b"key-%d" % number) for number in range(40)])
    starts = [0, *accumulate(batch.sizes)]
    for _ in range(30):
        index = source.randrange(40)
        data = bytearray(batch.body)
        what = source.choice((b"key-", b"value-"))
        data[data.index(what, starts[index])] ^= 1 << source.randrange(8)
        with pytest.raises(JournalCorrupt, match="does not fit its checksum") as caught:
            check(batch._replace(body=memoryview(bytes(data))))
        assert caught.value.members["lsn"] == str(lsn_of(TS + 1, 7, 1, index))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("checksum", [b"", b"abc", RIGHT[:3], RIGHT + b"x"])
def test_an_entry_without_a_right_checksum_does_not_pass(
    check: Callable[[ReceivedBatch], object], checksum: bytes
) -> None:
    messages = [foreign(1), foreign(2, checksum=checksum), foreign(3)]
    with pytest.raises(JournalCorrupt, match="checksum"):
        check(received([message.SerializeToString() for message in messages]))
    assert len(rows(received([message.SerializeToString() for message in messages]), verify=False)) == 3


@pytest.mark.parametrize("check", CHECKS)
def test_lsns_that_do_not_grow_are_told(check: Callable[[ReceivedBatch], object]) -> None:
    batch = batch_of([Change(b"v%d" % number, key=b"k") for number in range(4)])
    one, two, three, four = map(bytes, batch.entries())
    for order in ((one, three, two, four), (one, two, two, four), (one, four, three, two)):
        sizes = array("I", list(map(len, order)))
        with pytest.raises(JournalCorrupt, match="stands behind"):
            check(batch._replace(body=memoryview(b"".join(order)), sizes=sizes))
    unpadded = [foreign(number).SerializeToString() for number in (9, 10, 9)]
    with pytest.raises(JournalCorrupt, match="stands behind"):
        check(received(unpadded))


@pytest.mark.parametrize("check", CHECKS)
def test_lengths_that_add_up_and_are_wrong_are_told(check: Callable[[ReceivedBatch], object]) -> None:
    batch = batch_of([Change(b"v" * number, key=b"k") for number in range(1, 6)])
    for first, by in ((0, 1), (1, -1), (2, 30), (3, -40)):
        sizes = batch.sizes[:]
        sizes[first] += by
        sizes[first + 1] -= by
        with pytest.raises(JournalCorrupt):
            check(batch._replace(sizes=sizes))
        with pytest.raises(JournalCorrupt):
            list(batch._replace(sizes=sizes).messages())


def test_damaged_bytes_end_in_a_clear_error_or_do_no_harm_and_the_loop_says_the_same() -> None:
    source = random.Random(11)
    batch = batch_of(
        [Change(b"v" * source.randrange(50), key=b"k%d" % one, table=("d", "t")) for one in range(20)]
    )
    verdicts = []
    for _ in range(400):
        data = bytearray(batch.body)
        for _ in range(source.choice((1, 1, 4))):
            data[source.randrange(len(data))] = source.randrange(256)
        damaged = batch._replace(body=memoryview(bytes(data)))
        verdicts.append([_passes(check, damaged) for check in CHECKS])
        by_loop, by_arrays, as_columns = verdicts[-1]
        assert by_loop == by_arrays
        assert by_arrays or not as_columns
    assert len({tuple(found) for found in verdicts}) > 1, "nothing was damaged, or everything"


def _passes(check: Callable[[ReceivedBatch], object], batch: ReceivedBatch) -> bool:
    try:
        check(batch)
    except JournalCorrupt:
        return False
    return True


def test_no_batch_is_no_row() -> None:
    assert rows([]) == []
