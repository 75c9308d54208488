"""A Simple feed whose entries have keys of another form than capture's: tables go by the handle key."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace
from pyspark.sql import SparkSession

from headrace.errors import RestoreInexact
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.tables.reader import iter_rows
from headrace.wire.base_manifest import MANIFEST, base_folder, encode_base
from tests.integration.pipeline.restore.history import ORDERS
from tests.integration.pipeline.restore.restoring import keys_in, names_in, restored
from tests.integration.pipeline.restore.simple_history import SimpleHistory


def test_tables_are_exact_whatever_the_keys_are(spark: SparkSession, tmp_path: Path) -> None:
    shop, archive = SimpleHistory(lambda sequence_id, message: b"all"), tmp_path / "wal"
    for number, word in ((1, "a"), (2, "b"), (3, "c"), (2, None)):
        shop.row(number, word)
    shop.write(archive, 5)
    last = shop.ends[-1]
    made = None
    for out in (tmp_path / "log", tmp_path / "base"):
        outcome = restored(spark, archive, out, last, kind="tables", feeds=(ORDERS,))
        assert {row["id"]: row["word"] for _, row in iter_rows(str(out / "orders"))} == shop.rows[-1]
        tables = [table for feed in outcome.feeds for table in feed.tables]
        assert [(one.table, one.counted) for one in tables] == [(["shop", "items"], False)]
        assert bool(outcome.plan["base"]) == (made is not None)
        if made is None:
            # The last entry of the key is a deletion: of another row than those that are there.
            made = create_base(spark, str(archive), at=last, buckets=1)
            assert {one.feed: one.other_keys for one in made.feeds}[ORDERS] == (("shop", "items"),)
    assert made is not None
    # Keys and values are what the keys say, from a base too.
    assert restored(spark, archive, tmp_path / "kv", last).plan["base"]
    assert keys_in(tmp_path / "kv") == shop.at(last)
    # A base of an earlier release does not tell of such keys, and may have left entries of them out.
    silent = replace(made, feeds=tuple(replace(one, other_keys=UNSET) for one in made.feeds))
    (archive / base_folder(last) / MANIFEST).write_bytes(encode_base(silent))
    with pytest.raises(RestoreInexact, match=r"keys of shop\.items do not begin with database and table"):
        restored(spark, archive, tmp_path / "refused", last, kind="tables")
    assert names_in(tmp_path / "refused") == []
