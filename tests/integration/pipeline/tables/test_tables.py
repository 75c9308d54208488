"""Delta tables of a feed hold exactly the source's rows, whatever happens on the way."""

from __future__ import annotations

import base64
import copy
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
from pyspark.sql import SparkSession

from headrace.errors import ConfigInvalid, FeedRecreated, NothingPublished, ValueUnfit
from headrace.pipeline.tables.job import Summary, read_tables, run_tables
from headrace.pipeline.tables.ledger import PublishedFile, read_published
from headrace.pipeline.tables.reader import iter_rows, rows_at
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.conftest import Run
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.scale import SEED, sized
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
    source: SourceTables, to: str, bring: Bring, scaled: Callable[[int], int]
) -> None:
    rng = random.Random(SEED)
    source.schema("accounts", ID, column("owner", "string"), column("balance", "float64"))
    source.schema("notes", ID, column("body", "json"))
    source.control("copy-begin", "accounts")
    for number in range(20):
        row = {"id": number, "owner": f"o{number}", "balance": number / 3}
        source.put("accounts", row, copy=True)
    source.control("copy-end", "accounts")
    source.commit()
    for _ in range(scaled(sized(2, soak=3))):
        for _ in range(rng.randrange(10, 30)):
            step(rng, source)
        source.commit()
    # What no row follows is followed as well.
    source.schema("notes", ID, column("body", "json"), column("late", "int64"))
    source.rows["notes"] = {key: row | {"late": None} for key, row in source.rows["notes"].items()}
    last = source.commit()
    summary = bring(entries_max=40)
    assert summary.batches >= 2
    assert summary.entries == last
    assert shown(to) == {**source.rows, "": source.plain}
    moment = published(to)
    assert (moment.feed, moment.sequence_id) == (source.feed.name, last)
    assert moment.lsn == source.feed.entries(last, last)[0]["lsn"]


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


def test_a_batch_that_runs_again_changes_nothing(
    source: SourceTables, to: str, run: Run, tmp_path: Path
) -> None:
    with pytest.raises(NothingPublished):
        next(iter_rows(to))
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
    whole = copy.deepcopy(source.rows)
    source.put("t", {"id": 7, "n": 7})
    source.commit(tx="long", last=False)
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
    assert shown(to) == {**whole, "": source.plain}
    # As if the checkpoint were lost, too: the stream begins after what was published, and merges come to the same.
    shutil.rmtree(Path(to) / "_headrace" / "checkpoint")
    file.write_bytes(msgspec.json.encode(before))
    source.delete("t", 1)
    last = source.commit(tx="long")
    run()
    moment = published(to)
    assert moment.sequence_id == last
    assert shown(to) == {**source.rows, "": source.plain}
    # Nothing new: no batch, no version, the same moment.
    assert run().batches == 0
    assert published(to) == moment
    with serving(tmp_path / "another") as server:
        feed = Feed(server, source.feed.name)
        assert feed.register().status_code == 200
        with pytest.raises(FeedRecreated, match="the tables in"):
            run(server=server.url)


@pytest.mark.soak(sibling="test_values_are_exact_also_through_a_patch_and_in_columns_that_come_later")
def test_columns_come_go_and_are_renamed_by_their_place_in_the_feed(
    source: SourceTables, to: str, bring: Bring
) -> None:
    """In make test columns go and are renamed in test_reader.py, and in one batch come behind changes of the sibling."""
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
    source.commit()
    assert bring(entries_max=first).batches == 2
    (before,) = versions(to).values()
    # A table's schema alone, without rows, is followed as well.
    source.schema("t", ID, column("new", "int64"))
    source.commit()
    assert bring().batches == 1
    assert shown(to) == {"t": {key: {"id": key, "new": row["new"]} for key, row in source.rows["t"].items()}}
    # The moment before the last column went is still there to be read.
    assert {row["id"]: row for row in rows_at(Path(to) / "main.t", before)} == source.rows["t"]


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
MICROS = [f"unix_micros(`{came} timestamp`) AS `{came} micros`" for came in ("c", "later")]


def test_values_are_exact_also_through_a_patch_and_in_columns_that_come_later(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    columns = [column(f"c {kind}", kind) for kind in EXACT]
    values = {f"c {kind}": value for kind, (value, _) in EXACT.items()}
    source.schema("t", ID, *columns, column("n", "int64"))
    for number in (1, 2):
        source.put("t", {"id": number, "n": 0} | values)
    source.put("t", {"id": 3, "n": None} | dict.fromkeys(values))
    first = source.commit()
    source.patch("t", 2, {"n": 9})
    later = [column(f"later {kind}", kind) for kind in EXACT]
    source.schema("t", ID, *columns, column("n", "int64"), *later)
    source.put("t", {"id": 4, "n": 0} | {f"later {kind}": value for kind, (value, _) in EXACT.items()})
    source.commit()
    assert bring(entries_max=first).batches == 2
    frame = read_tables(spark, to)["main", "t"].selectExpr("*", *MICROS)
    found = {row["id"]: row.asDict() for row in frame.collect()}
    wanted = {kind: value for kind, (_, value) in EXACT.items() if kind != "timestamp"} | {"micros": -1}
    for number, came, other in ((1, "c", "later"), (2, "c", "later"), (4, "later", "c")):
        row = found[number]
        row[f"{came} json"] = row[f"{came} json"].replace(" ", "")
        assert {kind: row[f"{came} {kind}"] for kind in wanted} == wanted | {"json": '{"a":[1]}'}
        assert {row[f"{other} {kind}"] for kind in wanted} == {None}
    assert [found[number]["n"] for number in (1, 2)] == [0, 9]
    assert set(found[3].values()) == {3, None}


def test_columns_that_are_given_type_entries_without_a_table(
    spark: SparkSession, source: SourceTables, to: str, bring: Bring
) -> None:
    def run(schema: str) -> Summary:
        url, feed = source.feed.server.url, source.feed.name
        return run_tables(spark, feed=feed, to=to, server=url, once=True, schema=schema)

    ddl = "n BIGINT NOT NULL, price DECIMAL(10,2), at TIMESTAMP, more STRING COMMENT 'json'"
    source.object("put", "k1", {"n": 1, "price": "0.10", "at": "2026-01-02T03:04:05Z", "more": {"a": [1]}})
    source.object("put", "k2", {"n": 2})
    source.commit()
    assert run(ddl).started_from == "feed"
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
        run("n BIGINT")
    source.object("put", "k4", {"n": "four"})
    last = source.commit()
    with pytest.raises(ValueUnfit, match=f"sequence id {last}, column n"):
        run(ddl)
    assert published(to).sequence_id == last - 1
