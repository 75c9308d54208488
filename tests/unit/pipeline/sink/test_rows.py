"""Rows become entries in the declared order, or the batch is refused and the row named."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.entries.entry import Change, Op
from headrace.errors import BatchTooLarge, RowUnfit
from headrace.pipeline.sink import rows
from headrace.pipeline.sink.options import OrderKey, SinkOptions, SinkTarget
from headrace.wire.entry import encode_half
from headrace.wire.halves import split_halves

TARGET = SinkTarget(server="http://127.0.0.1:1", grpc="127.0.0.1:1", agent_id="a")


def options(*order: OrderKey, feed_column: str = "") -> SinkOptions:
    feed = "" if feed_column else "f"
    return SinkOptions(target=TARGET, order=order or (OrderKey("n"),), feed=feed, feed_column=feed_column)


def table(count: int = 3, **columns: Any) -> pa.Table:
    given = {"n": list(range(count)), "key": [f"k{n}" for n in range(count)], "value": ["{}"] * count}
    return pa.table(given | columns)


def halves_of(part: rows.FeedRows) -> list[bytes]:
    return split_halves(
        *part.entries, entries_max=rows.ENTRIES_MAX, entry_bytes_max=rows.ENTRY_BYTES_MAX
    ).halves


def keys_of(given: pa.Table, *order: OrderKey) -> list[str]:
    """The keys in the order of the append; they have two characters."""
    (part,) = rows.feed_rows(given, options(*order), 7)
    return [half[4:6].decode() for half in halves_of(part)]


def test_every_member_reaches_the_entry() -> None:
    given = table(
        4,
        key=[b"k0", b"\xff1", b"k2", b"k3"],
        value=['{"a": "ä"}', '{"b":1}', None, '{"was":1}'],
        op=[None, "patch", "delete", "delete"],
        table=[["main", "t"], None, None, ["x"]],
    )
    (part,) = rows.feed_rows(given, options(), 7)
    assert (part.feed, part.rows) == ("f", 4)
    assert halves_of(part) == [
        encode_half(change)
        for change in (
            Change('{"a": "ä"}'.encode(), key=b"k0", table=("main", "t")),
            Change(b'{"b":1}', key=b"\xff1", op=Op.PATCH),
            Change(b"{}", key=b"k2", op=Op.DELETE),
            Change(b'{"was":1}', key=b"k3", op=Op.DELETE, table=("x",)),
        )
    ]


def test_bytes_are_taken_as_they_are() -> None:
    (part,) = rows.feed_rows(table(1, value=[b"\x00\xffno json"]), options(), 7)
    assert halves_of(part) == [encode_half(Change(b"\x00\xffno json", key=b"k0"))]


@pytest.mark.parametrize(
    "values",
    [
        [3, None, 1, 2],
        ["c", None, "a", "b"],
        [b"c", None, b"a", b"b"],
        [Decimal("10.0"), None, Decimal("9.9"), Decimal("9.91")],
        [datetime(2026, 1, day, tzinfo=UTC) if day else None for day in (3, 0, 1, 2)],
        [3.0, None, -1.0, 2.5],
    ],
    ids=["int", "string", "binary", "decimal", "timestamp", "double"],
)
def test_rows_stand_in_the_declared_order(values: list[Any]) -> None:
    given = table(4, by=values)
    assert keys_of(given, OrderKey("by")) == ["k2", "k3", "k0", "k1"]
    assert keys_of(given, OrderKey("by", descending=True)) == ["k0", "k3", "k2", "k1"]


def test_the_second_column_orders_what_the_first_leaves_equal() -> None:
    given = table(4, a=[1, 0, 1, 0], b=[1, 1, 2, 2])
    assert keys_of(given, OrderKey("a"), OrderKey("b", descending=True)) == ["k3", "k1", "k2", "k0"]


def test_an_ordinal_is_another_number_in_each_row() -> None:
    for ordinals in ([1, 2, 1], [1, 2, None]):
        with pytest.raises(RowUnfit, match="ordinal must be another number in each row"):
            rows.feed_rows(table(ordinal=ordinals), options(OrderKey("ordinal")), 7)
    assert keys_of(table(ordinal=[5, 9, 2]), OrderKey("ordinal")) == ["k2", "k0", "k1"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"key": ["k0", None, "k2"]}, "the feed f, batch 7: a row has no key"),
        ({"key": ["k0", "\0x", "k2"]}, "the feed f, batch 7, key .*: a key may not begin with a zero byte"),
        ({"value": ["{}", "[1]", "{}"]}, "batch 7, key k1: the value is not a JSON object"),
        ({"value": ["{}", '{"a":', "{}"]}, "batch 7, key k1: the value is not a JSON object"),
        ({"value": ["{}", None, "{}"]}, "batch 7, key k1: a put has no value"),
        ({"op": ["put", "upsert", "put"]}, "batch 7, key k1: op is 'upsert'"),
        ({"table": [["t"], [], ["t"]]}, "batch 7, key k1: table must be names, or null"),
        ({"table": [["t"], ["t", None], ["t"]]}, "batch 7, key k1: table must be names, or null"),
    ],
)
def test_a_row_that_can_be_no_entry_is_named(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(RowUnfit, match=message):
        rows.feed_rows(table(**columns), options(), 7)


def test_an_entry_of_more_than_a_mebibyte_is_named() -> None:
    large = '{"a":"' + "x" * rows.ENTRY_BYTES_MAX + '"}'
    with pytest.raises(RowUnfit, match=r"key k1: the entry takes 1,048,\d+ bytes; the most is 1,048,576"):
        rows.feed_rows(table(value=["{}", large, "{}"]), options(), 7)


def test_more_than_an_append_takes_is_refused_with_the_batch() -> None:
    with pytest.raises(BatchTooLarge, match=r"the feed f, batch 7: 50001 rows; one append takes 50000"):
        rows.feed_rows(table(rows.ENTRIES_MAX + 1), options(), 7)
    value = b"x" * (1 << 20 - 1)
    with pytest.raises(BatchTooLarge, match=r"batch 7: its 33 entries have 17,\d{3},\d{3} bytes"):
        rows.feed_rows(table(33, value=[value] * 33), options(), 7)
    with pytest.raises(BatchTooLarge, match=r"batch 7: a task has more than 134,217,728 bytes"):
        rows.collect((table(33, value=[value] * 33).to_batches()[0] for _ in range(9)), 7)


def test_rows_of_several_feeds_are_an_append_each() -> None:
    given = table(4, to=["b", "a", "b", "a"], n=[4, 3, 2, 1])
    first, second = rows.feed_rows(given, options(feed_column="to"), 7)
    assert [(part.feed, part.rows) for part in (first, second)] == [("a", 2), ("b", 2)]
    assert [half[4:6] for half in halves_of(second)] == [b"k2", b"k0"]
    with pytest.raises(RowUnfit, match="batch 7: 1 rows have no feed in to"):
        rows.feed_rows(table(2, to=["a", None]), options(feed_column="to"), 7)
    with pytest.raises(RowUnfit, match=r"batch 7: to: change-feed-id: 'a b' is not a valid name"):
        rows.feed_rows(table(2, to=["a", "a b"]), options(feed_column="to"), 7)


def test_a_task_without_rows_has_nothing_to_append() -> None:
    assert rows.collect(table().slice(0, 0).to_batches(), 7) is None
