"""The order of handle keys as far as it is judged without a server, and the SQL that asks one."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from headrace.capture.mariadb.key_order import KeyOrder
from headrace.errors import TableStopped
from headrace.simple.message import Timestamp
from tests.simple_tables import column, table


def _order(kind: str, **more: Any) -> KeyOrder:
    return KeyOrder(table("db.t", column("a", kind, **more)))


def _utc(text: str) -> Timestamp:
    return Timestamp("UTC", text)


@pytest.mark.parametrize(
    ("kind", "more", "ascending"),
    [
        ("int", {}, ["-10", "-9", "0", "9", "10"]),
        ("bigint", {"unsigned": True}, ["9", "10", "18446744073709551615"]),
        ("year", {}, ["0", "1901", "2155"]),
        ("bit", {"length": 64}, ["2", "10", "18446744073709551615"]),
        ("enum", {"elements": ("b", "a")}, ["0", "1", "2"]),
        ("set", {"elements": ("b", "a")}, ["0", "1", "2", "3", "10"]),
        (
            "decimal",
            {"length": 40, "decimal": 2},
            ["-10.00", "-9.99", "9.99", "10000000000000000000000000000000000.01"],
        ),
        ("float", {}, ["-0.2", "-0.1", "0.1", "0.2", "100"]),
        ("double", {}, ["-0.2", "0.1", "0.10000000000000002", "100"]),
        ("date", {}, ["0000-00-00", "2020-00-10", "2020-01-01", "9999-12-31"]),
        (
            "datetime",
            {"decimal": 1},
            ["0000-00-00 00:00:00.0", "2020-01-01 00:00:00.0", "2020-01-01 00:00:00.1"],
        ),
        (
            "timestamp",
            {},
            [_utc("0000-00-00 00:00:00"), _utc("2020-01-01 00:00:00"), _utc("2038-01-19 03:14:07")],
        ),
        (
            "time",
            {"decimal": 1},
            ["-838:59:59.0", "-99:00:00.0", "-00:00:00.1", "00:00:00.0", "99:00:00.0", "100:00:00.0"],
        ),
        ("varbinary", {"length": 9}, ["", "AA==", "AAA=", "AQ==", "/w=="]),
        (
            "varchar",
            {"charset": "utf8mb4", "collate": "utf8mb4_bin"},
            ["", "A", "a\t", "a", "a!", "b", "é", "😀"],
        ),
        ("char", {"charset": "ascii", "collate": "ascii_nopad_bin"}, ["", "A", "a", "a\t", "a ", "b"]),
    ],
)
def test_values_are_ordered_as_the_server_does(kind: str, more: dict[str, Any], ascending: list[Any]) -> None:
    order = _order(kind, **more)
    for (at, one), (other_at, other) in itertools.product(enumerate(ascending), repeat=2):
        assert order.covers((one,), (other,)) is (other_at <= at), (one, other)


@pytest.mark.parametrize(
    ("kind", "more", "forms"),
    [
        ("varchar", {"charset": "latin1", "collate": "latin1_bin"}, {}),
        ("varchar", {"charset": "utf8mb4", "collate": "utf8mb4_czech_ci"}, {}),
        ("char", {"charset": "ascii", "collate": "ascii_general_ci"}, {"a": "uuid"}),
        ("varchar", {"charset": "ascii", "collate": "ascii_general_ci"}, {"a": "inet6"}),
    ],
)
def test_only_the_server_knows_the_order_of_its_texts(
    kind: str, more: dict[str, Any], forms: dict[str, str]
) -> None:
    order = KeyOrder(table("db.t", column("a", kind, **more)), forms)
    assert order.covers(("b",), ("a",)) is None
    assert order.covers(("b",), ("b",)) is True
    question = order.decide(("b",), ("a",), {})
    assert isinstance(question, str)
    assert order.decide(("b",), ("a",), {question: -1}) is True
    assert order.decide(("b",), ("a",), {question: 0}) is True
    assert order.decide(("b",), ("a",), {question: 1}) is False


def test_words_are_judged_where_the_collation_is_a_common_one() -> None:
    order = _order("varchar", collate="utf8mb4_general_ci")
    assert order.covers(("B-1",), ("b-0",)) is True
    assert order.covers(("b",), ("B",)) is True
    assert order.covers(("b-0",), ("B0",)) is False
    assert order.covers(("b",), ("é",)) is None
    assert order.covers(("b",), ("a_",)) is None


def test_the_first_column_that_differs_decides() -> None:
    text = column("b", "varchar", collate="utf8mb4_czech_ci")
    order = KeyOrder(table("db.t", column("a"), text, column("c"), key=("a", "b", "c")))
    assert order.covers(("5", "m", "5"), ("4", "z", "9")) is True
    assert order.covers(("5", "m", "5"), ("6", "a", "1")) is False
    assert order.covers(("5", "m", "5"), ("5", "a", "1")) is None
    assert order.covers(("5", "m", "5"), ("5", "m", "5")) is True
    assert order.covers(("5", "m", "5"), ("5", "m", "6")) is False


def test_equal_texts_of_other_letters_leave_it_to_the_next_column() -> None:
    text = column("a", "varchar", collate="utf8mb4_czech_ci")
    order = KeyOrder(table("db.t", text, column("b"), key=("a", "b")))
    question = order.decide(("M", "5"), ("m", "6"), {})
    assert isinstance(question, str)
    assert order.decide(("M", "5"), ("m", "6"), {question: 0}) is False
    assert order.decide(("M", "5"), ("m", "5"), {question: 0}) is True


def test_the_condition_for_what_comes_next_is_a_range_of_the_index() -> None:
    order = KeyOrder(table("db.t", column("a"), column("b`"), column("c", "double"), key=("a", "b`", "c")))
    assert order.order_by == "`a`, `b```, `c`"
    assert (
        order.after(("1", "2", "0.5"))
        == "(`a` > 1 OR (`a` = 1 AND (`b``` > 2 OR (`b``` = 2 AND `c` > 0.5e0))))"
    )
    assert order.same(("1", "2", "1")) == "`a` = 1 AND `b``` = 2 AND `c` = 1.0e0"


def test_labels_are_named_where_an_enum_is_searched() -> None:
    order = _order("enum", elements=("z", "y'"), charset="utf8mb4")
    assert order.after(("1",)) == (
        "(`a` IN (CONVERT(_utf8mb4 X'7927' USING utf8mb4) COLLATE utf8mb4_bin) AND `a` > 1)"
    )
    assert order.after(("2",)) == "FALSE"
    assert order.same(("0",)) == "(`a` = '' AND `a` = 0)"


@pytest.mark.parametrize(
    ("kind", "more", "value"),
    [
        ("int", {}, "1 OR 1"),
        ("int", {}, None),
        ("double", {}, "nan"),
        ("decimal", {}, "1e5"),
        ("date", {}, "2020-01-01'"),
        ("timestamp", {}, "2020-01-01 00:00:00"),
        ("timestamp", {}, Timestamp("Local", "2020-01-01 00:00:00")),
        ("time", {}, "1:00"),
        ("binary", {}, "not base64"),
        ("varchar", {"charset": "latin1", "collate": "latin1_bin"}, "\ud800"),
        ("varchar", {"charset": "sjis", "collate": "sjis_japanese_ci"}, "\\"),
    ],
)
def test_what_is_no_key_of_the_table_is_refused_by_name(kind: str, more: dict[str, Any], value: Any) -> None:
    with pytest.raises(TableStopped, match=r"db\.t\.a is in the handle key; rows can't be found by"):
        _order(kind, **more).after((value,))


def test_a_key_with_too_few_values_is_refused() -> None:
    with pytest.raises(TableStopped, match=r"a key of db\.t has 1 values, not 2"):
        _order("int").covers(("1",), ("1", "2"))


def test_a_table_whose_rows_nothing_tells_apart_is_refused() -> None:
    with pytest.raises(TableStopped, match="neither a primary key nor a UNIQUE key"):
        KeyOrder(table("db.t", column("a"), key=()))


@pytest.mark.parametrize(
    ("kind", "more"), [("json", {}), ("geometry", {}), ("varchar", {"charset": "x y", "collate": "x"})]
)
def test_a_type_without_an_order_is_refused(kind: str, more: dict[str, Any]) -> None:
    with pytest.raises(TableStopped, match="has no order that is known"):
        _order(kind, **more)
