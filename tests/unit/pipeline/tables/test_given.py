"""Columns that an operator gives to entries without a table: which types there are, and that they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import types as T  # noqa: N812  # how everybody calls it

from headrace.errors import ConfigInvalid, ValueUnfit
from headrace.pipeline.tables.given import keep_given, schema_of
from headrace.pipeline.tables.ledger import PLAIN, Ledger
from headrace.pipeline.tables.origins import given_of
from headrace.pipeline.tables.rows import RowDecoder, spark_columns

COLUMNS = (
    T.StructType()
    .add("id", T.LongType(), nullable=False)
    .add("price", T.DecimalType(10, 2))
    .add("at", T.TimestampType())
    .add("when", T.TimestampNTZType())
    .add("raw", T.StringType(), metadata={"comment": "json"})
    .add("note", T.StringType(), metadata={"comment": "what people say"})
)


def test_types_are_those_of_feeds() -> None:
    schema = schema_of(COLUMNS)
    assert [one.type for one in schema.columns] == [
        "int64", "decimal(10,2)", "timestamp", "timestamp-ntz", "json", "string",
    ]  # fmt: skip
    assert [one.nullable for one in schema.columns] == [False, True, True, True, True, True]
    assert spark_columns(schema)["price"] == "decimal(10,2)"
    with pytest.raises(ValueUnfit, match=r"feed f, sequence id 9, column price: ") as raised:
        RowDecoder(schema, [], feed="f").read([b'{"id": 1, "price": 1.234}'], [9])
    assert "table" not in raised.value.members


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (T.StructType().add("a", T.IntegerType()), "column a: int is no type"),
        (T.StructType().add("a", T.ArrayType(T.LongType())), "column a: array<bigint> is no type"),
        (T.StructType().add("a", T.LongType()).add("A", T.LongType()), "differ in case alone"),
        (T.StructType().add("_headrace_x", T.LongType()), "may not be named"),
    ],
)
def test_what_no_table_can_have_is_refused(columns: T.StructType, said: str) -> None:
    with pytest.raises(ConfigInvalid, match=said):
        schema_of(columns)


def test_a_schema_is_kept_and_another_one_later_is_refused(tmp_path: Path) -> None:
    first, other = schema_of(COLUMNS), schema_of(T.StructType().add("id", T.LongType()))
    ledger = Ledger(tmp_path, "f", "i")
    assert given_of(ledger) == []
    keep_given(ledger, other)
    keep_given(ledger, first)  # there is no table yet
    log = tmp_path / PLAIN / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").touch()
    ledger.close()
    again = Ledger(tmp_path, "f", "i")
    keep_given(again, first)
    (placed,) = given_of(again)
    assert (placed.sequence_id, placed.schema) == (0, first)
    with pytest.raises(ConfigInvalid, match="begun with other columns"):
        keep_given(again, other)
    again.close()
    bare = Ledger(tmp_path / "bare", "f", "i")
    (tmp_path / "bare" / PLAIN / "_delta_log").mkdir(parents=True)
    (tmp_path / "bare" / PLAIN / "_delta_log" / f"{0:020}.json").touch()
    with pytest.raises(ConfigInvalid, match="begun without a schema"):
        keep_given(bare, first)
    bare.close()
