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


def test_attached_tables_with_schemas_and_a_truncate(
    spark: SparkSession, source: SourceTables, feed: Feed, tmp_path: Path
) -> None:
    source.schema("accounts", ID, column("name", "string"))
    for number in range(1, 6):
        source.put("accounts", {"id": number, "name": f"n{number}"})
    source.object("put", "settings", {"a": 1})
    cut = source.commit()
    source.schema("accounts", ID, column("label", "string", was="name"))
    source.patch("accounts", 2, {"label": "second"})
    source.delete("accounts", 3)
    source.object("patch", "settings", {"b": 2})
    before = source.commit()
    wanted = sorted(
        (row["id"], row.get("label", row.get("name"))) for row in source.rows["accounts"].values()
    )
    source.truncate("accounts")
    source.put("accounts", {"id": 9, "label": "new"})
    last = source.commit()
    archive = tmp_path / "wal"
    archive_of(feed.server.url, feed.name, archive, cut)
    for place, rows, settings in ((before, wanted, '{"a":1,"b":2}'), (last, [(9, "new")], '{"a":1,"b":2}')):
        out = tmp_path / f"out-{place}"
        if place == last:
            create_base(spark, str(archive), at=lsn_at(feed.server.url, feed.name, cut), buckets=2)
        outcome = restored(
            spark,
            archive,
            out,
            lsn_at(feed.server.url, feed.name, place),
            kind="tables",
            entries_max=6 if place == before else 10_000,
        )
        (one,) = outcome.feeds
        assert bool(outcome.plan["base"]) == (place == last)
        found = by_table(str(out / one.folder))
        assert sorted((row["id"], row["label"]) for row in found["main", "accounts"]) == rows
        assert [row["value"] for row in found[()]] == [settings]
        assert [(table.table, table.rows, table.counted) for table in one.tables] == [
            ([], 1, True),
            (["main", "accounts"], len(rows), True),
        ]
        moment = read_published(out / one.folder)
        assert moment is not None
        assert (moment.sequence_id, moment.lsn, moment.incarnation) == (place, one.lsn, one.incarnation)
    # A tables job goes on from there.
    to = str(tmp_path / f"out-{before}" / feed.name.replace(":", "%3A"))
    summary = run_tables(spark, feed=feed.name, to=to, server=feed.server.url, once=True, retry_s=20)
    assert summary.entries == last - before
    assert by_table(to)["main", "accounts"] == [{"id": 9, "label": "new"}]


def test_an_attached_table_in_the_middle_of_its_copy_is_not_whole(
    spark: SparkSession, source: SourceTables, feed: Feed, tmp_path: Path
) -> None:
    source.schema("good", ID)
    source.put("good", {"id": 1})
    source.schema("large", ID, column("n", "int64"))
    source.control("copy-begin", "large")
    source.commit()
    places = []
    for number in range(3):
        source.put("large", {"id": number, "n": number}, copy=True)
        places.append(source.commit())
    source.control("copy-end", "large")
    ended = source.commit()
    source.put("large", {"id": 7, "n": 7})
    source.truncate("large")
    source.control("copy-begin", "large")
    again = source.commit()
    archive = tmp_path / "wal"
    archive_of(feed.server.url, feed.name, archive, places[1])
    create_base(spark, str(archive), at=lsn_at(feed.server.url, feed.name, places[1]), buckets=2)
    # Without the base, and with it.
    for place, rows, entries_max in (
        (places[0], None, 100),
        (places[2], None, 2),
        (ended, 3, 100),
        (again, None, 100),
    ):
        at, out = lsn_at(feed.server.url, feed.name, place), tmp_path / f"out-{place}"
        if place == places[0]:
            with pytest.raises(RestoreInexact, match=r"main\.large is not whole .*still being copied"):
                restored(spark, archive, out, at, kind="tables")
            assert names_in(out) == []
        outcome = restored(
            spark, archive, out, at, kind="tables", entries_max=entries_max, allow_incomplete=True
        )
        (one,) = outcome.feeds
        whole = {"main.good": 1} if rows is None else {"main.good": 1, "main.large": rows}
        found = by_table(str(out / one.folder))
        assert {".".join(name): len(found_rows) for name, found_rows in found.items()} == whole
        stopped = [".".join(table.table) for table in one.tables if table.stopped is not None]
        assert stopped == ([] if rows is not None else ["main.large"])
        assert any("main.large is not whole" in warning for warning in outcome.warnings) == (rows is None)


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

    captured.sql("CREATE TABLE early (id INT PRIMARY KEY)", "INSERT INTO early VALUES (1)")
    captured.settle()  # what comes from now on is streamed, so no copy of it has to be waited for
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(10), d DECIMAL(5,2))",
        "INSERT INTO t VALUES (1, 'x', 1.5), (2, NULL, 2), (3, 'z', 3)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "INSERT INTO gone VALUES (1)",
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
    outcome = restored(spark, archive, out, end, kind="tables", entries_max=20, allow_incomplete=True)
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
