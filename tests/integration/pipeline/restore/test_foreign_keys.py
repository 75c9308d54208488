"""A Simple feed whose entries have keys of another form than capture's: tables go by the handle key, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import RestoreInexact
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.tables.job import read_tables
from tests.integration.pipeline.restore.history import ORDERS
from tests.integration.pipeline.restore.restoring import keys_in, names_in, restored
from tests.integration.pipeline.restore.simple_history import SimpleHistory


def test_tables_are_exact_or_refused_whatever_the_keys_are(spark: SparkSession, tmp_path: Path) -> None:
    shop, archive = SimpleHistory(lambda sequence_id, message: b"all"), tmp_path / "wal"
    for number, word in ((1, "a"), (2, "b"), (3, "c"), (2, None)):
        shop.row(number, word)
    shop.write(archive, 5)
    last = shop.ends[-1]
    outcome = restored(spark, archive, tmp_path / "tables", last, kind="tables", feeds=(ORDERS,))
    found = read_tables(spark, str(tmp_path / "tables" / "orders"))["shop", "items"].collect()
    assert {row["id"]: row["word"] for row in found} == shop.rows[-1]
    tables = [table for feed in outcome.feeds for table in feed.tables]
    assert [(one.table, one.counted) for one in tables] == [(["shop", "items"], False)]
    # A base keeps one row of the three, and that many keys are counted, too.
    create_base(spark, str(archive), at=shop.ends[2], buckets=1)
    with pytest.raises(RestoreInexact, match=r"keys of shop\.items do not begin with database and table"):
        restored(spark, archive, tmp_path / "refused", shop.ends[2], kind="tables")
    assert names_in(tmp_path / "refused") == []
    # Keys and values are what the keys say, from a base too.
    assert restored(spark, archive, tmp_path / "kv", last).plan["base"]
    assert keys_in(spark, tmp_path / "kv") == shop.at(last)
