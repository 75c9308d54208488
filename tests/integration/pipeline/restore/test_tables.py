"""Tables restored to a moment are those that the source had then: of attached tables, of plain entries, of a captured
database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.archive.moments.catalogue import Archive
from headrace.errors import RestoreInexact
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.restore.outcome import Outcome
from headrace.pipeline.tables.job import run_tables
from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.reader import iter_rows, published_moment
from headrace.pipeline.tables.schemas import TableName
from tests.integration.pipeline.restore.restoring import archive_of, lsn_at, names_in, restored
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.integration.pipeline.tables.captured_source import CapturedSource, Rows, rows_in
from tests.servers import Feed

COPIED = ("whole", "halfway", "again")


def copied_row(source: SourceTables, number: int) -> None:
    for name in COPIED:
        source.put(name, {"id": number, "n": number}, copy=True)


def test_attached_tables_with_a_truncate_and_in_the_middle_of_their_copies(
    spark: SparkSession, source: SourceTables, feed: Feed, tmp_path: Path
) -> None:
    source.schema("accounts", ID, column("name", "string"))
    for number in range(1, 6):
        source.put("accounts", {"id": number, "name": f"n{number}"})
    source.object("put", "settings", {"a": 1})
    for name in COPIED:
        source.schema(name, ID, column("n", "int64"))
        source.control("copy-begin", name)
    copied_row(source, 1)
    cut = source.commit()
    source.schema("accounts", ID, column("label", "string", was="name"))
    source.patch("accounts", 2, {"label": "second"})
    source.delete("accounts", 3)
    source.object("patch", "settings", {"b": 2})
    copied_row(source, 2)
    before = source.commit()
    wanted = [(1, "n1"), (2, "second"), (4, "n4"), (5, "n5")]
    source.truncate("accounts")
    source.put("accounts", {"id": 9, "label": "new"})
    copied_row(source, 3)
    for name in ("whole", "again"):
        source.control("copy-end", name)
    source.put("again", {"id": 7, "n": 7})
    source.truncate("again")
    source.control("copy-begin", "again")
    last = source.commit()
    archive = tmp_path / "wal"
    archive_of(feed.server.url, feed.name, archive, cut)
    at = {place: lsn_at(feed.server.url, feed.name, place) for place in (cut, before, last)}
    with pytest.raises(RestoreInexact, match=r"main\.\w+ is not whole .*still being copied"):
        restored(spark, archive, tmp_path / "refused", at[before], kind="tables")
    assert names_in(tmp_path / "refused") == []
    # Of the log alone, and from a base in the middle of the copies.
    for place, rows, whole in ((before, wanted, []), (last, [(9, "new")], ["whole"])):
        if place == last:
            create_base(spark, str(archive), at=at[cut], buckets=2)
        out = tmp_path / f"out-{place}"
        outcome = restored(spark, archive, out, at[place], kind="tables", allow_incomplete=True)
        (one,) = outcome.feeds
        assert bool(outcome.plan["base"]) == (place == last)
        found = by_table(str(out / one.folder))
        assert sorted((row["id"], row["label"]) for row in found["main", "accounts"]) == rows
        assert [row["value"] for row in found[()]] == ['{"a":1,"b":2}']
        assert {
            name: len(found["main", name]) for name in COPIED if ("main", name) in found
        } == dict.fromkeys(whole, 3)
        assert [
            (table.table, table.rows, table.counted) for table in one.tables if table.stopped is None
        ] == [
            ([], 1, True),
            (["main", "accounts"], len(rows), True),
            *((["main", name], 3, True) for name in whole),
        ]
        stopped = {table.table[-1] for table in one.tables if table.stopped is not None}
        assert stopped == set(COPIED) - set(whole)
        for name in COPIED:
            assert any(f"main.{name} is not whole" in text for text in outcome.warnings) == (name in stopped)
        moment = read_published(out / one.folder)
        assert moment is not None
        assert (moment.sequence_id, moment.lsn, moment.incarnation) == (place, one.lsn, one.incarnation)
    # A tables job goes on from there.
    to = str(tmp_path / f"out-{before}" / feed.name.replace(":", "%3A"))
    summary = run_tables(spark, feed=feed.name, to=to, server=feed.server.url, once=True, retry_s=20)
    assert summary.entries == last - before
    found = by_table(to)
    assert found["main", "accounts"] == [{"id": 9, "label": "new"}]
    assert len(found["main", "whole"]) == 3


@pytest.mark.timeout(900)  # restores, each with a Spark job for every batch
def test_a_captured_database_at_two_moments(
    spark: SparkSession, captured: CapturedSource, tmp_path: Path
) -> None:
    """The second one is the archive's end, from a base on, with a table that could not be kept."""
    moments: list[tuple[int, dict[str, Rows]]] = []

    def moment() -> None:
        captured.settle()
        names = [name for (name,) in captured.database.sql("SHOW TABLES")]
        moments.append((captured.head(), {name: captured.at_source(name) for name in names}))

    captured.sql("CREATE TABLE gone (id INT PRIMARY KEY)", "INSERT INTO gone VALUES (1)")
    captured.settle()  # what comes from now on is streamed, so no copy of it has to be waited for
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), d DECIMAL(5,2))",
        "INSERT INTO t VALUES (1, 'x', 1.5), (2, NULL, 2), (3, 'z', 3)",
    )
    captured.settle()
    before = captured.head()
    captured.sql(
        "ALTER TABLE t RENAME COLUMN a TO b, ADD COLUMN n INT NOT NULL DEFAULT 7",
        "UPDATE t SET id = 9 WHERE id = 1",
        "DROP TABLE gone",
        "CREATE TABLE gone (id INT PRIMARY KEY, v TEXT)",
        "INSERT INTO gone VALUES (1, 'again'), (2, 'more')",
    )
    moment()
    captured.sql(
        "UPDATE t SET n = 0, d = 0",
        "TRUNCATE gone",
        "RENAME TABLE t TO u",
        "INSERT INTO u VALUES (4, 'q', 4, 4)",
    )
    moment()
    captured.sql("CREATE TABLE nokey (a INT)", "INSERT INTO nokey VALUES (1)")
    captured.settle()
    captured.stop()
    archive = tmp_path / "wal"
    archive_of(captured.server.url, captured.feed, archive, before, moments[0][0])
    places = [lsn_at(captured.server.url, captured.feed, place) for place, _ in moments]
    out = tmp_path / "first"
    outcome = restored(spark, archive, out, places[0], kind="tables")
    assert (outcome.target_lsn, outcome.plan["base"]) == (str(places[0]), None)
    assert rows_at(captured, out, outcome) == sorted_rows(moments[0][1])
    with pytest.raises(RestoreInexact, match=r"table .*\.u: .* renamed from"):
        restored(spark, archive, tmp_path / "kv", places[1])
    assert names_in(tmp_path / "kv") == []
    create_base(spark, str(archive), at=places[0], buckets=2)
    end = Archive.read(str(archive)).segments[-1].name.last
    out = tmp_path / "stopped"
    outcome = restored(
        spark,
        archive,
        out,
        end,
        kind="tables",
        entries_max=20,
        allow_incomplete=True,
    )
    assert (outcome.target_lsn, bool(outcome.plan["base"])) == (str(end), True)
    assert rows_at(captured, out, outcome) == sorted_rows(moments[1][1])
    stopped = [(one.table[1], one.rows) for one in outcome.feeds[0].tables if one.stopped is not None]
    assert stopped == [("nokey", 0)]
    assert any("nokey is not whole" in warning for warning in outcome.warnings)


def by_table(to: str) -> dict[TableName, list[dict[str, Any]]]:
    """The published rows of each table that has some."""
    found: dict[TableName, list[dict[str, Any]]] = {}
    for table, row in iter_rows(to):
        found.setdefault(table, []).append(row)
    return found


def rows_at(captured: CapturedSource, out: Path, outcome: Outcome) -> dict[str, Rows]:
    """The restored tables that have rows, as comparable values."""
    (feed,) = outcome.feeds
    to = str(out / feed.folder)
    assert {one.table[0] for one in published_moment(to).tables} == {captured.database.name}
    return sorted_rows(rows_in(to))


def sorted_rows(tables: dict[str, Rows]) -> dict[str, Rows]:
    """Rows in one order."""
    return {name: sorted(rows, key=str) for name, rows in tables.items()}
