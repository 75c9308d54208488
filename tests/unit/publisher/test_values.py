"""Values: each storage class under each declared type, exact to the last bit, and never mistaken for another value."""

from __future__ import annotations

import json
import math
import sqlite3
import struct
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.publisher.sqlite.source import SqliteSource
from headrace.publisher.sqlite.values import InvalidText, column_type, fit_of, key_fit_of
from tests.unit.publisher.outboxes import application, attach, changes_of, claim, data_rows, drain, opened


@pytest.fixture
def app(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with application(tmp_path / "app.db") as connection:
        yield connection


@pytest.fixture
def source(app: sqlite3.Connection, tmp_path: Path) -> Iterator[SqliteSource]:
    app.execute(
        "CREATE TABLE v (id INTEGER PRIMARY KEY, i INT, r REAL, t TEXT, b BLOB, n NUMERIC, o BOOLEAN, x)"
    )
    with opened(tmp_path / "app.db") as found:
        attach(found, "v", copy=False)
        claim(found)
        drain(found)
        yield found


@pytest.mark.parametrize(
    ("declared", "word"),
    [
        ("INTEGER", "int64"),
        ("int unsigned", "int64"),
        ("BIGINT", "int64"),
        ("TEXT", "string"),
        ("varchar(20)", "string"),
        ("CLOB", "string"),
        ("BLOB", "binary"),
        ("REAL", "float64"),
        ("DOUBLE PRECISION", "float64"),
        ("FLOAT", "float64"),
        ("boolean", "boolean"),
        ("", "json"),
        ("ANY", "json"),
        ("NUMERIC", "json"),
        ("DECIMAL(10,2)", "json"),
        ("DATE", "json"),
        ("DATETIME", "json"),
        ("FLOATING POINT", "json"),
    ],
)
def test_declared_type_becomes_a_word(declared: str, word: str) -> None:
    assert column_type(declared) == word


CASES: dict[str, tuple[str, Any]] = {
    "least integer": ("i", -(2**63)),
    "greatest integer": ("i", 2**63 - 1),
    "third": ("r", 1 / 3),
    "17 digits": ("r", 0.1 + 0.2),
    "least real": ("r", 5e-324),
    "greatest real": ("r", 1.7976931348623157e308),
    "integral real": ("r", 1e22),
    "text with NUL": ("t", "a\0b"),
    "text of four bytes": ("t", '\U0001f600é"\\\n'),
    "empty text": ("t", ""),
    "number in NUMERIC": ("n", 1.1),
    "integer in NUMERIC": ("n", 10),
    "text in NUMERIC": ("n", "2024-01-01"),
    "text in any": ("x", "1"),
    "null": ("i", None),
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.replace(" ", "-"))
def test_value_of_its_type_is_itself(app: sqlite3.Connection, source: SqliteSource, case: str) -> None:
    column, value = CASES[case]
    app.execute(f"INSERT INTO v (id, {column}) VALUES (1, ?)", (value,))
    (row,) = drain(source)
    found = changes_of(row)[column]
    assert found == value
    assert type(found) is type(value)


UNFIT: dict[str, tuple[str, Any, Any]] = {
    "text in an integer column": ("i", "abc", {"text": "abc"}),
    "fraction in an integer column": ("i", 1.5, {"real": 1.5}),
    "blob in an integer column": ("i", b"\x00", {"blob": "AA=="}),
    "text in a real column": ("r", "abc", {"text": "abc"}),
    "text that looks like base64 in a blob column": ("b", "AAAA", {"text": "AAAA"}),
    "integer in a blob column": ("b", 5, {"integer": 5}),
    "blob in a text column": ("t", b"\xff", {"blob": "/w=="}),
    "two in a boolean column": ("o", 2, {"integer": 2}),
    "text in a boolean column": ("o", "true", {"text": "true"}),
    "blob in any": ("x", b"ab", {"blob": "YWI="}),
    "infinity in any": ("x", math.inf, {"real": "Infinity"}),
    "infinity in NUMERIC": ("n", -math.inf, {"real": "-Infinity"}),
}


@pytest.mark.parametrize("case", UNFIT, ids=lambda case: case.replace(" ", "-"))
def test_value_of_another_type_names_its_storage_class(
    app: sqlite3.Connection, source: SqliteSource, case: str
) -> None:
    column, value, carried = UNFIT[case]
    app.execute(f"INSERT INTO v (id, {column}) VALUES (1, ?)", (value,))
    (row,) = drain(source)
    assert changes_of(row)[column] == carried


def test_the_other_forms(app: sqlite3.Connection, source: SqliteSource) -> None:
    app.execute("INSERT INTO v (id, r, b, o, t) VALUES (1, 9e999, x'00ff', 1, CAST(x'ff41' AS TEXT))")
    app.execute("INSERT INTO v (id, r, b, o) VALUES (2, -9e999, x'', 0)")
    first, second = (changes_of(row) for row in drain(source))
    assert (first["r"], first["b"], first["o"], first["t"]) == (
        "Infinity",
        "AP8=",
        True,
        {"invalid-utf8": "/0E="},
    )
    assert (second["r"], second["b"], second["o"]) == ("-Infinity", "", False)


def test_utf16_database(tmp_path: Path) -> None:
    with application(tmp_path / "wide.db") as app:
        app.execute("PRAGMA encoding = 'UTF-16le'")
        app.execute("CREATE TABLE v (k TEXT PRIMARY KEY NOT NULL, b BLOB)")
        with opened(tmp_path / "wide.db") as source:
            app.execute("INSERT INTO v VALUES ('é\U0001f600', x'01')")
            attach(source, "v")
            claim(source)
            assert [(row.key, changes_of(row)) for row in data_rows(drain(source))] == [
                ('["main","v","é\U0001f600"]', {"k": "é\U0001f600", "b": "AQ=="})
            ]


def test_keys_that_sqlite_takes_for_equal_are_equal_text(
    app: sqlite3.Connection, source: SqliteSource
) -> None:
    app.execute("CREATE TABLE k (k PRIMARY KEY NOT NULL, v)")
    attach(source, "k", copy=False)
    drain(source)
    app.execute("INSERT INTO k VALUES (1, 'a')")
    app.execute("REPLACE INTO k VALUES (1.0, 'b')")
    app.execute("INSERT INTO k VALUES (x'01', 'c'), ('1', 'd'), (1.5, 'e'), (1e300, 'f')")
    assert [json.loads(str(row.key))[2] for row in drain(source)] == [1, 1, {"blob": "AQ=="}, "1", 1.5, 1e300]


real = st.floats(allow_nan=False)
storage = st.one_of(
    st.integers(-(2**63), 2**63 - 1), real, st.text(), st.binary(), st.binary().map(InvalidText)
)


def identity(value: Any) -> tuple[str, bytes]:
    """Tell values apart as SQLite stores them."""
    if isinstance(value, InvalidText):
        return "invalid", value.data
    if isinstance(value, float):
        return "real", struct.pack("<d", value)
    return type(value).__name__, value if isinstance(value, bytes) else str(value).encode(
        "utf-8", "surrogatepass"
    )


@given(storage, storage, st.sampled_from(["int64", "float64", "boolean", "string", "binary", "json"]))
def test_different_values_never_look_alike(one: Any, other: Any, word: str) -> None:
    alike = json.dumps(fit_of(word)(one)) == json.dumps(fit_of(word)(other))
    assert alike == (identity(one) == identity(other))


@given(storage, st.sampled_from(["int64", "float64", "boolean", "string", "binary", "json"]))
def test_values_can_be_read_back(value: Any, word: str) -> None:
    carried = json.loads(json.dumps(fit_of(word)(value)))
    assert identity(read_back(carried, word)) == identity(value)


def read_back(carried: Any, word: str) -> Any:
    """What a consumer does, by the words of the format."""
    if isinstance(carried, dict):
        ((kind, inner),) = carried.items()
        if kind == "blob":
            return b64decode(inner)
        if kind == "invalid-utf8":
            return InvalidText(b64decode(inner))
        return float(inner) if kind == "real" else inner
    if word == "binary":
        return b64decode(carried)
    return float(carried) if word == "float64" else int(carried) if word == "boolean" else carried


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), real), st.one_of(st.integers(-(2**63), 2**63 - 1), real))
def test_equal_keys_are_equal_text_and_others_are_not(one: Any, other: Any) -> None:
    fit = key_fit_of("json")
    assert (json.dumps(fit(one)) == json.dumps(fit(other))) == (one == other or (one == 0 == other))
