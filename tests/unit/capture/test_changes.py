"""Entries of a captured feed: keys, control entries, what is too large, and what has no form."""

from __future__ import annotations

import pytest

from headrace.capture.changes import (
    APPEND_BYTES_MAX,
    APPEND_ENTRIES_MAX,
    RowPair,
    TransactionEntries,
)
from headrace.capture.control import (
    ENTRY_BYTES_MAX,
    ControlEntry,
    copy_begin_entry,
    copy_end_entry,
    ddl_entry,
    schema_entry,
    stopped_entry,
    watermark_entry,
)
from headrace.capture.position import POSITION_BYTES_MAX
from headrace.capture.row_form import RowForm
from headrace.entries.entry import Change, Op
from headrace.errors import TableStopped
from headrace.server import encoding
from headrace.server.grpc.append_requests import SOURCE_POSITION_BYTES_MAX
from headrace.server.grpc.face import MESSAGE_BYTES_MAX
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, Dml, MessageType, Timestamp, Watermark
from headrace.wire.entry import change_of
from headrace.wire.generated import wal_pb2
from headrace.wire.halves import split_halves
from headrace.wire.keyed import join_fields
from tests.simple_tables import BUILD_TS, column, table

TS = 447984084414103554
ORDERS = table("shop.orders", "id", column("note", "text", nullable=True), version=7, key=("id",))
FORM = RowForm(ORDERS)
MIB = 1 << 20


def transaction(*, parts: int = 0, entries: int = 0) -> TransactionEntries:
    return TransactionEntries("0-1-100", TS, BUILD_TS, 1_760_000_000_123, parts=parts, entries=entries)


def entries_of(fields: list[bytes]) -> list[Change]:
    """What a server makes of them, its checks included."""
    joined = join_fields(fields)
    found = split_halves(*joined, entries_max=encoding.ENTRIES_MAX, entry_bytes_max=encoding.ENTRY_BYTES_MAX)
    return [change_of(wal_pb2.WalEntry.FromString(half)) for half in found.halves]


def kinds_of(entries: list[Change]) -> list[tuple[str, bytes | None]]:
    """Type and key of each row's message."""
    return [(json_codec.decode(entry.value).type.value, entry.key) for entry in entries]


def test_rows_of_a_transaction() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a")), (("1", "a"), ("1", None))])
    made.add_part(FORM, [(("1", None), None)])
    insert, update, delete = entries_of(made.end())
    assert json_codec.decode(insert.value) == Dml(
        MessageType.INSERT, "shop", "orders", 33, TS, BUILD_TS, 7, {"id": "1", "note": "a"}
    )
    assert json_codec.decode(update.value) == Dml(
        MessageType.UPDATE,
        "shop",
        "orders",
        33,
        TS,
        BUILD_TS,
        7,
        {"id": "1", "note": None},
        {"id": "1", "note": "a"},
    )
    assert (delete.op, delete.key, delete.table) == (Op.DELETE, b'["shop","orders","1"]', ("shop", "orders"))
    assert [one.tx_index for one in (insert, update, delete)] == [0, 1, 2]
    assert [one.tx_last for one in (insert, update, delete)] == [False, False, True]
    assert {(one.source_tx, one.source_time_ms, one.copy) for one in (insert, update, delete)} == {
        (b"0-1-100", 1_760_000_000_123, False)
    }


def test_another_key_is_another_row() -> None:
    made = transaction()
    made.add_part(FORM, [(("1", "a"), ("2", "a"))])
    assert kinds_of(entries_of(made.end())) == [
        ("DELETE", b'["shop","orders","1"]'),
        ("INSERT", b'["shop","orders","2"]'),
    ]
    assert (made.parts_taken, made.entries_taken) == (1, 2)


def test_keys_are_the_handle_keys_values_in_its_order() -> None:
    schema = table("shop.é", "a", column("t", "timestamp"), "b", key=("t", "a"))
    moment = Timestamp("UTC", "2020-02-20 02:20:20")
    assert RowForm(schema, [2]).key_of(('<"', moment, "3")) == (
        '["shop","é","2020-02-20 02:20:20","<\\""]'.encode()
    )


def test_a_large_transaction_goes_on_where_it_was_cut() -> None:
    made = transaction()
    for first in (0, 2, 4):
        made.add_part(FORM, [(None, (str(first), "a")), (None, (str(first + 1), "a"))])
    cut = made.take()
    assert (len(cut), made.count, made.parts_taken, made.entries_taken) == (4, 2, 2, 4), (
        "the last part is held back"
    )
    again = transaction(parts=made.parts_taken, entries=made.entries_taken)
    again.add_part(FORM, [(None, ("4", "a")), (None, ("5", "a"))])
    rest = again.end()
    assert rest == made.end()
    assert [(one.tx_index, one.tx_last) for one in entries_of(cut + rest)] == [
        (index, index == 5) for index in range(6)
    ]


def test_a_large_part_comes_in_pieces_and_goes_on_within_it() -> None:
    rows: list[RowPair] = [(None, (str(number), "a")) for number in range(6)]
    made = transaction()
    made.add_part(FORM, rows[:1])
    size = made.bytes
    assert made.add_piece(FORM, rows, 1, bytes_max=2 * size) == 3
    assert made.add_piece(FORM, rows, 3, bytes_max=2 * size) == 5
    cut = made.take()
    assert (len(cut), made.parts_taken, made.rows_taken, made.entries_taken) == (3, 1, 3, 3)
    again = transaction(parts=1, entries=3)
    assert again.add_piece(FORM, rows, 3, bytes_max=MIB) == 6
    assert made.add_piece(FORM, rows, 5, bytes_max=MIB) == 6
    assert (made.parts, again.parts) == (2, 2)
    rest = again.end()
    assert rest == made.end()
    assert (again.parts_taken, again.rows_taken) == (2, 0)
    assert [one.tx_index for one in entries_of(cut + rest)] == list(range(6))


def test_a_part_that_is_not_to_come_in_pieces_is_added_whole() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))] * (APPEND_ENTRIES_MAX + 1))
    assert (made.count, made.parts) == (APPEND_ENTRIES_MAX + 1, 1)


def test_control_entries_hold_whatever_becomes_of_the_rows() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    savepoint = made.mark()
    made.add_control(schema_entry(ORDERS, BUILD_TS))
    made.add_part(FORM, [(None, ("2", "a"))])
    for _ in range(2):
        assert made.roll_back(savepoint)
    row, schema = entries_of(made.end())
    assert (row.tx_index, row.tx_last) == (0, False)
    assert (schema.control, schema.tx_index, schema.tx_last) == ("schema", 1, True)


def test_what_is_rolled_back_is_gone_and_its_parts_are_counted() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    savepoint = made.mark()
    made.add_part(FORM, [(None, ("2", "a"))])
    made.add_part(FORM, [(None, ("3", "a"))])
    assert made.roll_back(savepoint)
    assert made.take() == []
    assert (made.parts, made.parts_taken) == (3, 0), "what is held back is the first part"
    made.add_part(FORM, [(None, ("4", "a"))])
    assert [(one.key, one.tx_index, one.tx_last) for one in entries_of(made.end())] == [
        (b'["shop","orders","1"]', 0, False),
        (b'["shop","orders","4"]', 1, True),
    ]


def test_the_last_one_before_a_roll_back_can_be_the_transactions_last() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    savepoint = made.mark()
    made.add_part(RowForm(table("a_longer_name.of_a_table", "a")), [(None, ("2",))])
    assert made.roll_back(savepoint)
    (entry,) = entries_of(made.end())
    assert (entry.table, entry.tx_last) == (("shop", "orders"), True)


def test_all_of_it_is_rolled_back() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    assert made.roll_back(None)
    assert (made.take(), made.bytes, made.parts_taken, made.entries_taken) == ([], 0, 1, 0)
    assert made.end() == []


def test_what_was_taken_is_not_rolled_back() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    first = made.mark()
    made.add_part(FORM, [(None, ("2", "a"))])
    second = made.mark()
    made.add_part(FORM, [(None, ("3", "a"))])
    assert len(made.take()) == 2
    assert not made.roll_back(None)
    assert not made.roll_back(first)
    assert not made.roll_back(second), "nothing would be left to be the last"
    assert len(made.end()) == 1
    assert not transaction(parts=1, entries=1).roll_back(None), "a part is in the feed since before a restart"


def test_a_transaction_of_nothing_leaves_nothing() -> None:
    made = transaction()
    made.skip_part()
    assert (made.take(), made.parts_taken, made.entries_taken) == ([], 1, 0)
    assert made.end() == []


def test_copies_are_of_no_transaction() -> None:
    made = TransactionEntries("", TS, BUILD_TS, 0, copy=True)
    made.add_part(FORM, [(None, ("1", "a")), (None, ("2", "b"))])
    assert {(one.source_tx, one.tx_index, one.tx_last, one.copy) for one in entries_of(made.end())} == {
        (b"", 0, False, True)
    }


def test_what_is_waiting_is_counted() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    made.add_part(FORM, [(None, ("2", "b"))])
    assert made.count == 2
    whole = made.bytes
    assert whole == sum(map(len, made.take())) + made.bytes
    assert made.bytes == sum(map(len, made.end())) - 3, "tx_last"


# -- what can't be carried ------------------------------------------------------------------------------------------


def test_limits_are_the_servers() -> None:
    assert ENTRY_BYTES_MAX == encoding.ENTRY_BYTES_MAX
    assert APPEND_ENTRIES_MAX <= encoding.ENTRIES_MAX
    assert APPEND_BYTES_MAX + 2 * ENTRY_BYTES_MAX < MESSAGE_BYTES_MAX
    assert POSITION_BYTES_MAX == SOURCE_POSITION_BYTES_MAX


def test_the_largest_row_is_taken_by_the_server() -> None:
    made = transaction()
    room = ENTRY_BYTES_MAX - 3
    made.add_part(FORM, [(None, ("1", ""))])
    small = len(made.end()[0])
    for size in range(room - small - 8, room - small + 8):
        try:
            made.add_part(FORM, [(None, ("1", "x" * size))])
        except TableStopped:
            assert len(made.end()[0]) > ENTRY_BYTES_MAX - 8, "the one before it was as large as one may be"
            return
        (entry,) = entries_of(made.end()[-1:])
        assert entry.tx_last
        made.add_part(FORM, [(None, ("1", "x" * size))])
    raise AssertionError("no row was too large")


def test_a_row_that_is_too_large_stops_its_table() -> None:
    made = transaction()
    made.add_part(FORM, [(None, ("1", "a"))])
    with pytest.raises(TableStopped, match=r'^\["shop","orders","3"\] takes \d+ bytes') as stopped:
        made.add_part(FORM, [(None, ("2", "b")), (None, ("3", "x" * MIB))])
    assert (stopped.value.members["database"], stopped.value.members["table"]) == ("shop", "orders")
    assert "exclude-columns" in stopped.value.advice
    made.skip_part()
    assert [one.key for one in entries_of(made.end())] == [b'["shop","orders","1"]'], "none of that part"
    assert made.parts_taken == 2


def test_an_update_that_is_too_large_is_a_delete_and_an_insert() -> None:
    made = transaction()
    made.add_part(FORM, [(("1", "x" * (MIB * 3 // 4)), ("1", "y" * (MIB * 3 // 4)))])
    assert kinds_of(entries_of(made.end())) == [
        ("DELETE", b'["shop","orders","1"]'),
        ("INSERT", b'["shop","orders","1"]'),
    ]


@pytest.mark.parametrize(
    "pair", [(None, ("1", "a\ud800")), (("1", "\ud800"), ("1", "a")), (("1", "\ud800"), None)]
)
def test_text_that_is_none_stops_the_table(pair: RowPair) -> None:
    with pytest.raises(TableStopped, match="note must be Unicode text"):
        transaction().add_part(FORM, [pair])


def test_a_key_that_is_no_text_stops_the_table() -> None:
    with pytest.raises(TableStopped, match=r"a key of shop\.orders is no Unicode text"):
        transaction().add_part(RowForm(ORDERS, [1]), [(None, ("\ud800", "a"))])


def test_a_table_without_a_handle_key_is_refused() -> None:
    with pytest.raises(TableStopped, match=r"shop\.log has neither a primary key"):
        RowForm(table("shop.log", "a", key=()))


def test_a_table_without_a_column_is_refused() -> None:
    with pytest.raises(TableStopped, match=r"no column of shop\.orders goes out"):
        RowForm(ORDERS, [])


def test_a_schema_that_is_too_large_stops_its_table() -> None:
    wide = table("shop.wide", "a", column("e", "enum", elements=("x" * MIB,)))
    with pytest.raises(TableStopped, match=r"^the schema of shop.wide takes \d+ bytes"):
        schema_entry(wide, BUILD_TS)


# -- control entries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "control", "key", "about", "value"),
    [
        (
            schema_entry(ORDERS, BUILD_TS), "schema", b"schema/shop/orders/7", ("shop", "orders"),
            json_codec.encode(Bootstrap(BUILD_TS, ORDERS)),
        ),
        (
            ddl_entry(Ddl(MessageType.QUERY, "CREATE DATABASE shop", TS, BUILD_TS), "shop", ""),
            "ddl", b"ddl/shop//%d" % TS, ("shop", ""),
            json_codec.encode(Ddl(MessageType.QUERY, "CREATE DATABASE shop", TS, BUILD_TS)),
        ),
        (
            watermark_entry(TS, BUILD_TS), "watermark", b"watermark/%d" % TS, (),
            json_codec.encode(Watermark(TS, BUILD_TS)),
        ),
        (
            copy_begin_entry(ORDERS, 3), "copy-begin", b"copy-begin/shop/orders/3", ("shop", "orders"),
            b'{"database":"shop","table":"orders","version":7}',
        ),
        (
            copy_end_entry(ORDERS, 3, 9), "copy-end", b"copy-end/shop/orders/3", ("shop", "orders"),
            b'{"database":"shop","table":"orders","version":7,"rows":9}',
        ),
        (
            stopped_entry("shop", "orders", TS, "why"), "stopped", b"stopped/shop/orders/%d" % TS,
            ("shop", "orders"), b'{"database":"shop","table":"orders","reason":"why"}',
        ),
    ],
)  # fmt: skip
def test_control_entries(
    entry: ControlEntry, control: str, key: bytes, about: tuple[str, ...], value: bytes
) -> None:
    (alone,) = entries_of([entry.alone()])
    assert alone == Change(value, key=b"\0" + key, control=control, table=about)
    made = transaction()
    made.add_control(entry)
    made.add_part(FORM, [(None, ("1", "a"))])
    inside = entries_of(made.end())[0]
    assert inside == Change(
        value,
        key=b"\0" + key,
        control=control,
        table=about,
        source_tx=b"0-1-100",
        source_time_ms=1_760_000_000_123,
    )
