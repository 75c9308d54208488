"""Table schemas: the handle key as consumers find it, and what MySQL's types are."""

from __future__ import annotations

import pytest

from headrace.simple.mysql_types import Family, default_length, family_of, fraction_digits, integer_range
from headrace.simple.schema import Column, DataType, Index, TableSchema
from tests.simple import binary, text


def table(nullable: str, *indexes: tuple[str, str, bool, bool]) -> TableSchema:
    """Columns a to d, of which ``nullable`` are; indexes of (name, columns, unique, primary)."""
    columns = tuple(Column(name, binary("int"), nullable=name in nullable, default=None) for name in "abcd")
    made = tuple(Index(name, unique, primary, False, tuple(of)) for name, of, unique, primary in indexes)
    return TableSchema("db", "t", 1, 1, columns, made)


LAST = ("w", "d", False, False)


@pytest.mark.parametrize(
    ("schema", "key"),
    [
        (table(""), ""),
        (table("", ("i", "a", False, False)), ""),
        (table("", ("PRIMARY", "ba", True, True), ("u", "c", True, False)), "ba"),
        (table("", ("u", "c", True, False), ("primary", "a", True, True)), "a"),
        (table("a", ("u", "a", True, False)), ""),
        (table("a", ("u", "ab", True, False), ("v", "cd", True, False)), "cd"),
        (table("", ("u", "abc", True, False), ("v", "cd", True, False), ("w", "ab", True, False)), "cd"),
        # A stand-in has the columns of the first index that would do; the smallest is the key.
        (table("", ("u", "ab", True, False), ("v", "c", True, False), ("primary", "ab", True, True)), "c"),
        (table("", ("u", "a", True, False), ("primary", "a", True, True)), "a"),
        # Named so and last, but of other columns, or not the first that would do: a primary key.
        (table("", ("u", "a", True, False), ("v", "bc", True, False), ("primary", "bc", True, True)), "bc"),
        (table("", ("u", "ab", True, False), ("v", "c", True, False), ("PRIMARY", "ab", True, True)), "ab"),
        # Named so but not last: the primary key that a table has.
        (table("", ("u", "ab", True, False), ("v", "c", True, False), ("primary", "ab", True, True), LAST), "ab"),
        # An index over a hidden column that is not listed identifies nothing.
        (table("", ("u", "x", True, False)), ""),
    ],
)  # fmt: skip
def test_the_handle_key(schema: TableSchema, key: str) -> None:
    assert "".join(schema.handle_key) == key


def test_what_finds_a_schema() -> None:
    assert TableSchema("db", "t", 1, 5, (), ()).key == ("db", "t", 5)


LENGTHS = {
    "tinyint": 4, "smallint": 6, "mediumint": 9, "int": 11, "bigint": 20, "bit": 1, "float": 12, "double": 22,
    "decimal": 10, "year": 4, "date": 10, "datetime": 19, "timestamp": 19, "time": 10, "char": 1, "binary": 1,
    "tinytext": 255, "tinyblob": 255, "text": 65535, "blob": 65535, "mediumtext": 16777215, "mediumblob": 16777215,
    "longtext": 4294967295, "longblob": 4294967295, "json": 4294967295, "vector": -1, "enum": 0, "set": 0,
}  # fmt: skip


def test_lengths_where_a_declaration_gives_none() -> None:
    assert {name: default_length(name) for name in LENGTHS} == LENGTHS
    unsigned = {"tinyint": 3, "smallint": 5, "mediumint": 8, "int": 10, "bigint": 20}
    assert {name: default_length(name, unsigned=True) for name in unsigned} == unsigned
    assert default_length("datetime", fraction=6) == 26
    assert default_length("timestamp", fraction=3) == 23
    assert default_length("time", fraction=6) == 17
    assert default_length("enum", elements=("a", "bcd", "c")) == 3
    assert default_length("set", elements=("a", "b", "c")) == 5


def test_digits_of_a_fraction_from_whichever_member_has_them() -> None:
    for name, whole in (("datetime", 19), ("timestamp", 19), ("time", 10)):
        assert fraction_digits(binary(name, length=whole)) == 0
        for digits in range(1, 7):
            assert fraction_digits(binary(name, length=whole + 1 + digits, decimal=digits)) == digits
            assert fraction_digits(binary(name, length=whole + 1 + digits)) == digits
            assert fraction_digits(binary(name, decimal=digits)) == digits
        assert fraction_digits(binary(name, length=99)) == 0
        assert fraction_digits(binary(name, length=-1, decimal=-1)) == 0


def test_families_and_ranges() -> None:
    assert family_of(text("varchar")) is Family.TEXT
    assert family_of(binary("varbinary")) is Family.BINARY
    assert family_of(binary("json")) is Family.JSON
    # Readers that go by the name and readers that go by the character set would not agree.
    assert family_of(binary("varchar")) is None
    assert family_of(text("blob")) is None
    assert family_of(DataType("unspecified", "", "")) is None
    assert family_of(binary("integer")) is None
    assert integer_range(binary("mediumint")) == (-8388608, 8388607)
    assert integer_range(binary("bigint", unsigned=True)) == (0, 18446744073709551615)
