"""Delta tables of a feed hold exactly the source's rows, whatever happens on the way."""

from __future__ import annotations

import base64
import json
import math
import random
import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from headrace.errors import ConfigInvalid, FeedRecreated, NothingPublished, ValueUnfit
from headrace.pipeline.tables.job import Summary, read_tables, run_tables
from headrace.pipeline.tables.ledger import PublishedFile, read_published
from headrace.pipeline.tables.reader import iter_rows
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.conftest import Run
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.scale import SEED
from tests.servers import Feed, serving

pytestmark = pytest.mark.usefixtures("several_tasks")


def shown(to: str) -> dict[str, dict[Any, dict[str, Any]]]:
    """The published rows by table and id; those without a table by key under ''."""
    found: dict[str, dict[Any, dict[str, Any]]] = {
        ".".join(one.table[1:]): {} for one in published(to).tables
    }
    for name, row in iter_rows(to):
        table = found[".".join(name[1:])]
        key = row["id"] if name else row["key"]
        assert key not in table, f"{name} has {key} twice"
        table[key] = row if name else json.loads(row["value"])
    return found


def published(to: str) -> PublishedFile:
    found = read_published(Path(to))
    assert found is not None
    return found


def versions(to: str) -> dict[str, int]:
    return {table.path: table.version for table in published(to).tables}


def test_random_changes_in_many_batches_come_to_the_sources_rows(
    source: SourceTables, to: str, run: Run, scaled: Callable[[int], int]
) -> None:
    rng = random.Random(SEED)
    source.schema("accounts", ID, column("owner", "string"), column("balance", "float64"))
    source.schema("notes", ID, column("body", "json"))
    source.schema("empty", ID)
    source.control("copy-begin", "accounts")
    for number in range(20):
        row = {"id": number, "owner": f"o{number}", "balance": number / 3}
        source.put("accounts", row, copy=True)
    source.control("copy-end", "accounts")
    last = source.commit()
    for _ in range(scaled(3)):
        for _ in range(rng.randrange(10, 30)):
            step(rng, source)
        last = source.commit()
    summary = run(entries_max=40)
    assert summary.batches >= 2
    assert summary.entries == last
    assert shown(to) == {**source.rows, "": source.plain}
    moment = published(to)
    assert (moment.feed, moment.sequence_id) == (source.feed.name, last)
    assert moment.lsn == source.feed.entries(last, last)[0]["lsn"]
    # Nothing new: no batch, no version, the same moment.
    assert run().batches == 0
    assert published(to) == moment


def step(rng: random.Random, source: SourceTables) -> None:
    """One change of some row of some table, or of an object without one."""
    table = rng.choice(["accounts", "notes", ""])
    number = rng.randrange(30)
    body = {"text": rng.choice(["a", "é", None]), "n": rng.randrange(9)}
    if not table:
        known = f"k{number}" in source.plain
        op = rng.choice(["put", "patch", "delete"] if known else ["put", "patch"])
        source.object(op, f"k{number}", body)
    elif rng.random() < 0.02:
        source.truncate(table)
    elif number in source.rows[table] and rng.random() < 0.3:
        source.delete(table, number)
    elif table == "accounts" and number in source.rows[table] and rng.random() < 0.4:
        source.patch(table, number, {"balance": rng.random()})
    elif table == "accounts":
        source.put(table, {"id": number, "owner": rng.choice(["x", None]), "balance": rng.gauss(0, 1e9)})
    else:
        value = rng.choice([1, "text", [None], None])
        text = None if value is None else json.dumps(value)
        source.put(table, {"id": number, "body": value}, shown={"body": text})


def test_a_batch_that_runs_again_changes_nothing(source: SourceTables, to: str, run: Run) -> None:
    source.schema("t", ID, column("n", "int64"))
    for number in range(5):
        source.put("t", {"id": number, "n": 0})
    source.object("put", "k", {"a": 1})
    first = source.commit()
    source.put("t", {"id": 1, "n": 1})
    source.patch("t", 2, {"n": 2})
    source.delete("t", 3)
    source.object("patch", "k", {"a": None, "b": 2})
    source.commit()
    assert run(entries_max=first).batches == 2
    after, reached = published(to), versions(to)
    assert reached == {"entries": 1, "main.t": 1}
    before = msgspec.structs.replace(
        after,
        sequence_id=first,
        lsn=source.feed.entries(first, first)[0]["lsn"],
        tables=[msgspec.structs.replace(table, version=0) for table in after.tables],
    )
    file = Path(to) / "_headrace" / "published.json"
    # As if killed after the merges: the batch is not committed, and the moment before is what readers see.
    (Path(to) / "_headrace" / "checkpoint" / "commits" / "1").unlink()
    file.write_bytes(msgspec.json.encode(before))
    assert shown(to)["t"][1] == {"id": 1, "n": 0}
    assert run().batches == 1
    assert versions(to) == reached
    assert (published(to).sequence_id, published(to).lsn) == (after.sequence_id, after.lsn)
    assert shown(to) == {**source.rows, "": source.plain}
    # As if the checkpoint were lost, too: the stream begins after what was published, and merges come to the same.
    shutil.rmtree(Path(to) / "_headrace" / "checkpoint")
    file.write_bytes(msgspec.json.encode(before))
    source.delete("t", 1)
    source.object("patch", "k", {"c": 3})
    last = source.commit()
    run()
    assert published(to).sequence_id == last
    assert shown(to) == {**source.rows, "": source.plain}


def test_columns_come_go_and_are_renamed_by_their_place_in_the_feed(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    source.schema("t", ID, column("gone", "string"), column("old", "int64"))
    source.put("t", {"id": 1, "gone": "x", "old": 1})
    source.put("t", {"id": 2, "gone": "x", "old": 2})
    first = source.commit()
    source.put("t", {"id": 3, "gone": "x", "old": 3})
    source.schema("t", ID, column("new", "int64", was="old"), column("odd, name", "json"))
    source.rows["t"] = {
        key: {"id": key, "new": row["old"], "odd, name": None} for key, row in source.rows["t"].items()
    }
    source.put("t", {"id": 2, "new": 22, "odd, name": [1]}, shown={"odd, name": "[1]"})
    second = source.commit()
    # A table's schema alone, without rows, is followed as well.
    source.schema("t", ID, column("new", "int64"))
    source.commit()
    assert bring(entries_max=first).batches == 3
    assert shown(to) == {"t": {key: {"id": key, "new": row["new"]} for key, row in source.rows["t"].items()}}
    # The moment before the last column went is still there to be read.
    merged = (
        DeltaTable.forPath(spark, str(Path(to) / "main.t")).history().where("operation = 'MERGE'").collect()
    )
    old = (
        spark.read.format("delta").option("versionAsOf", merged[0]["version"]).load(str(Path(to) / "main.t"))
    )
    found = {row["id"]: row.asDict() for row in old.drop("_headrace_key", "_headrace_sequence_id").collect()}
    assert found == source.rows["t"]
    assert second < published(to).sequence_id


EXACT = {
    "int64": (-(1 << 63), -(1 << 63)),
    "float64": ("-Infinity", -math.inf),
    "string": ("äöü ☃", "äöü ☃"),
    "binary": (base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
    "boolean": (True, True),
    "decimal(38,10)": (
        "1234567890123456789012345678.0123456789",
        Decimal("1234567890123456789012345678.0123456789"),
    ),
    "date": ("0099-12-31", date(99, 12, 31)),
    "time": ("23:59:59.5", "23:59:59.500000"),
    "timestamp": ("1969-12-31T23:59:59.999999Z", datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    "timestamp-ntz": ("2024-02-29T12:00:00.000001", datetime.fromisoformat("2024-02-29T12:00:00.000001")),
    "json": ({"a": [1]}, '{"a": [1]}'),
}
MICROS = "unix_micros(`c timestamp`) AS micros"


def test_values_are_exact_also_through_a_patch_and_in_columns_that_come_later(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    columns = [column(f"c {kind}", kind) for kind in EXACT]
    values = {f"c {kind}": value for kind, (value, _) in EXACT.items()}
    source.schema("t", ID, *columns, column("n", "int64"))
    for number in (1, 2):
        source.put("t", {"id": number, "n": 0} | values)
    source.put("t", {"id": 3, "n": None} | dict.fromkeys(values))
    source.schema("later", ID)
    source.put("later", {"id": 1})
    first = source.commit()
    source.patch("t", 2, {"n": 9})
    source.schema("later", ID, *[column(f"c_{number}", kind) for number, kind in enumerate(EXACT)])
    source.put("later", {"id": 2} | {f"c_{number}": value for number, value in enumerate(values.values())})
    source.commit()
    assert bring(entries_max=first).batches == 2
    tables = read_tables(spark, to)
    named = {"t": tables["main", "t"], "later": tables["main", "later"].toDF("id", *values)}
    found = {
        name: {row["id"]: row.asDict() for row in frame.selectExpr("*", MICROS).collect()}
        for name, frame in named.items()
    }
    wanted = {f"c {kind}": value for kind, (_, value) in EXACT.items() if kind != "timestamp"}
    for row in (found["t"][1], found["t"][2], found["later"][2]):
        row["c json"] = row["c json"].replace(" ", "")
        assert {name: row[name] for name in wanted} == wanted | {"c json": '{"a":[1]}'}
        assert row["micros"] == -1
    assert [found["t"][number]["n"] for number in (1, 2)] == [0, 9]
    assert set(found["t"][3].values()) == {3, None}
    assert set(found["later"][1].values()) == {1, None}


def test_a_transaction_is_shown_whole_or_not_at_all(
    source: SourceTables, to: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(NothingPublished):
        next(iter_rows(to))
    source.schema("t", ID)
    source.put("t", {"id": 1})
    whole = source.commit()
    source.put("t", {"id": 2})
    source.commit(tx="long", last=False)
    run()
    assert published(to).sequence_id == whole
    assert shown(to) == {"t": {1: {"id": 1}}}
    source.put("t", {"id": 3})
    last = source.commit(tx="long")
    run()
    assert published(to).sequence_id == last
    assert shown(to) == {"t": source.rows["t"]}
    with serving(tmp_path / "another") as server:
        feed = Feed(server, source.feed.name)
        assert feed.register().status_code == 200
        with pytest.raises(FeedRecreated, match="the tables in"):
            run(server=server.url)


def test_columns_that_are_given_type_entries_without_a_table(
    spark: SparkSession, source: SourceTables, to: str
) -> None:
    def bring(schema: str = "") -> Summary:
        url, feed = source.feed.server.url, source.feed.name
        return run_tables(spark, feed=feed, to=to, server=url, once=True, schema=schema)

    ddl = "n BIGINT NOT NULL, price DECIMAL(10,2), at TIMESTAMP, more STRING COMMENT 'json'"
    source.object("put", "k1", {"n": 1, "price": "0.10", "at": "2026-01-02T03:04:05Z", "more": {"a": [1]}})
    source.object("put", "k2", {"n": 2})
    source.commit()
    assert bring(ddl).started_from == "feed"
    source.object("patch", "k2", {"price": 2.5})
    source.object("delete", "k1", {})
    source.object("put", "k3", {"n": 3, "more": None})
    source.commit()
    bring()  # what was given once is kept
    frame = read_tables(spark, to)[()]
    kinds = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    assert kinds == {
        "n": "bigint", "price": "decimal(10,2)", "at": "timestamp", "more": "string", "key": "string",
    }  # fmt: skip
    found = {row["key"]: (row["n"], row["price"], row["more"]) for row in frame.collect()}
    assert found == {"k2": (2, Decimal("2.50"), None), "k3": (3, None, None)}
    with pytest.raises(ConfigInvalid, match="begun with other columns"):
        bring("n BIGINT")
    source.object("put", "k4", {"n": "four"})
    last = source.commit()
    with pytest.raises(ValueUnfit, match=f"sequence id {last}, column n"):
        bring(ddl)
    assert published(to).sequence_id == last - 1
