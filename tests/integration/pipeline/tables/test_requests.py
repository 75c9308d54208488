"""What operators ask of the job never ends it, never tears a moment, and what can't be done is kept and said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET
from pyspark.sql import SparkSession

from headrace.cli.app import main
from headrace.errors import CheckpointAhead, HeadraceError, StaleTable, TableNotFound, TableNotPublished
from headrace.pipeline.source.feed import FORMAT
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.captured import CapturedTables
from headrace.pipeline.tables.catching_up import CatchingUp
from headrace.pipeline.tables.holding import listener_of
from headrace.pipeline.tables.job import Summary, run_tables
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, read_published, read_tables_file
from headrace.pipeline.tables.reader import iter_rows, read_table
from headrace.pipeline.tables.requests import leave_request, waiting_requests
from headrace.pipeline.tables.simple.state import stopped
from headrace.pipeline.tables.states import CapturedTable, Request, StopNote
from headrace.simple import json_codec
from headrace.simple.message import Ddl, MessageType
from headrace.simple.schema import TableSchema
from tests.integration.pipeline.bringing import bring_tables
from tests.integration.pipeline.conftest import Run
from tests.integration.pipeline.kafka.captured_feed import append, entry, row_entry, schema_entry, watermark
from tests.integration.pipeline.source_tables import SourceTables
from tests.scale import sized
from tests.servers import Feed
from tests.simple_tables import BUILD_TS, column, insert, table

V = column("v", "varchar", nullable=True)
A, B, C = (table(f"shop.{name}", "a", V) for name in "abc")
ALTER = "ALTER TABLE c RENAME COLUMN v TO w, ADD COLUMN n INT NOT NULL DEFAULT 3"
ALTERED = table("shop.c", "a", column("w", "varchar", nullable=True), "n", version=19)


REBUILT_AT_ONCE = sized(9, soak=2)
"""How many entries a rebuild reads at once: up to the middle of a copy."""


class Killed(BaseException):
    """The process is gone."""


class MortalTables(CapturedTables):
    """Tables whose process dies before anything is done with ``shop.b``."""

    def _try(self, *step: Any) -> None:
        if step[2].table.table == ("shop", "b"):
            raise Killed
        super()._try(*step)


def row(schema: TableSchema, commit_ts: int, key: int, text: str) -> bytes:
    """A row's entry: its numbers are the key."""
    values = {one.name: text if one.data_type.mysql_type == "varchar" else str(key) for one in schema.columns}
    return row_entry(insert(schema, commit_ts, **values))


def rows(commit_ts: int, *tables: TableSchema) -> list[bytes]:
    """A row of each table, one transaction each, and the WATERMARK behind them."""
    made = [row(one, commit_ts + place, commit_ts, f"v{commit_ts}") for place, one in enumerate(tables)]
    return [*made, watermark(commit_ts + 8)]


def altered() -> list[bytes]:
    """The statement that alters C."""
    message = Ddl(MessageType.ALTER, ALTER, ALTERED.version, BUILD_TS, ALTERED, C)
    key = f"\0ddl/shop/c/{ALTERED.version}"
    told = entry(json_codec.encode(message), key, table=["shop", "c"], control="ddl")
    return [told, schema_entry(ALTERED)]


def copy_of(schema: TableSchema, commit_ts: int, *keys: int) -> list[bytes]:
    """A table's rows, copied once more."""
    names = [schema.schema, schema.table]
    made = [row(schema, commit_ts, key, "copied") for key in keys]
    begin, end = (
        entry(b"{}", f"\0copy/{word}/{commit_ts}", table=names, control=f"copy-{word}")
        for word in ("begin", "end")
    )
    return [begin, schema_entry(schema), *made, end, watermark(commit_ts + 8)]


def published(to: str) -> PublishedFile:
    found = read_published(Path(to))
    assert found is not None
    return found


def keys(to: str) -> dict[str, list[int]]:
    """The published keys by table."""
    found: dict[str, list[int]] = {}
    for name, row in iter_rows(to):
        found.setdefault(name[1], []).append(row["a"])
    return {name: sorted(values) for name, values in found.items()}


def opened(feed: Feed, to: str) -> Ledger:
    incarnation = feed.server.http.get(f"/feeds/{feed.name}").json()["incarnation"]
    return Ledger(Path(to), feed.name, incarnation)


def kept(to: str, name: str) -> CapturedTable:
    file = read_tables_file(Path(to))
    assert file is not None
    return next(one for one in file.tables or () if one.table == ("shop", name))


def halt(ledger: Ledger, name: str, after: int) -> None:
    """Stop a table as if something had not fitted behind the entry ``after``."""
    found = next(one for one in ledger.tables if one.table == ("shop", name))
    assert found.state is not None
    note = StopNote(
        after=after, state=found.state, code="value-unfit", reason="odd", hint="Mend it.", at="now"
    )
    ledger.update(
        msgspec.structs.replace(found, state=stopped(found.state, "odd"), place=after, stopped=note)
    )


def command(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    """Run a pipeline command; returns its exit code and its document."""
    capsys.readouterr()
    code = main(["pipeline", *words, "--json"])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, document


def status(capsys: pytest.CaptureFixture[str], feed: Feed, to: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code, document = command(capsys, "status", "--to", to, "--server", feed.server.url)
    assert document["server-error"] is None
    head = document["head-sequence-id"]
    tables = document["tables"]
    assert [one["lag-entries"] for one in tables] == [head - one["sequence-id"] for one in tables]
    return code, {one["table"][1]: one for one in tables}


def held_at(feed: Feed, to: str) -> int:
    """Where the job's listener holds retention."""
    ledger = opened(feed, to)
    name = listener_of(ledger)
    ledger.close()
    listeners = feed.server.http.get(feed.path).json()["listeners"]
    found = next(one for one in listeners if one["listener-id"] == name)
    assert found["hold"]
    return int(found["sequence-id"])


def cut(spark: SparkSession, feed: Feed, to: str) -> PublishedFile:
    """Make three tables, one of them stopped, and a batch that is killed between two merges; returns what is published.

    The one that is stopped is altered behind its place.
    """
    append(feed, [*map(schema_entry, (A, B, C)), *rows(10, A, B, C)])
    bring_tables(spark, feed.server, feed.name, to)
    before = published(to)
    append(feed, [*altered(), *rows(20, A, B, ALTERED)])
    ledger = opened(feed, to)
    try:
        halt(ledger, "c", before.sequence_id)
        batches = Batches(ledger, lambda done: None)
        batches._captured = MortalTables(ledger)  # the one place where a test gets in between
        first = before.sequence_id + 1
        options = {"endpoint": feed.server.url, "feeds": feed.name, "start": str(first)}
        with pytest.raises(Killed):
            batches(spark.read.format(FORMAT).options(**options).load(), 1)
    finally:
        ledger.close()
    return before


def test_requests_after_a_batch_that_was_cut(
    spark: SparkSession, feed: Feed, run: Run, *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What may be asked then, each with a copy of the same tables."""
    before = cut(spark, feed, str(tmp_path / "cut"))

    def copied(name: str) -> tuple[str, Run]:
        to = str(shutil.copytree(tmp_path / "cut", tmp_path / name))
        return to, partial(run, to=to)

    tears_no_moment(spark, feed, *copied("resumed"), cut=before, no_folder=tmp_path / "file")
    to, run_again = copied("stopped")
    waits_for_what_stopped_it(spark, feed, to, run_again, cut=before, capsys=capsys)
    keeps_its_place(spark, feed, to, before.sequence_id, capsys=capsys)
    is_let_go_and_comes_back_with_a_copy(spark, feed, to, run_again, capsys=capsys)


def tears_no_moment(
    spark: SparkSession, feed: Feed, to: str, run: Run, *, cut: PublishedFile, no_folder: Path
) -> None:
    """A request after a kill between merges tears no moment."""
    leave_request(Path(to), Request(("shop", "c")))
    no_folder.touch()
    with pytest.raises(HeadraceError):  # it ends right after the requests were served
        run_tables(spark, feed=feed.name, to=to, server=feed.server.url, once=True, checkpoint=str(no_folder))
    assert waiting_requests(Path(to)) == []
    assert kept(to, "c").stopped is None
    assert published(to) == cut
    assert run().stopped == []
    assert keys(to) == {name: [10, 20] for name in "abc"}
    told = [row for name, row in iter_rows(to) if name[1] == "c"]
    assert sorted(told, key=itemgetter("a")) == [
        {"a": 10, "w": "v10", "n": 3},
        {"a": 20, "w": "v20", "n": 20},
    ]
    assert held_at(feed, to) > cut.sequence_id


def waits_for_what_stopped_it(
    spark: SparkSession,
    feed: Feed,
    to: str,
    run: Run,
    *,
    cut: PublishedFile,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What a cut batch stopped waits for that batch; what is asked then is asked by commands."""
    code, asked = command(capsys, "tables", "rebuild", "shop.c", "--to", to)
    assert (code, asked["request"]) == (0, "rebuild")
    for request, name, refusal in (("resume", "b", "usage"), ("rebuild", "none", TableNotFound.code)):
        code, refused = command(capsys, "tables", request, f"shop.{name}", "--to", to)
        assert (code, refused["code"]) == (2, refusal)
    code, shown = status(capsys, feed, to)
    assert (code, shown["c"]["state"], shown["c"]["request"]) == (1, "stopped", "rebuild")
    ledger = opened(feed, to)
    halt(ledger, "a", cut.sequence_id + 1)
    leave_request(Path(to), Request(("shop", "a")))
    # The source's options are wrong: what is served now fails, and is refused, and the job goes on.
    broken = CatchingUp(ledger, {"endpoint": feed.server.url, "feeds": feed.name, "nonsense": "1"}, 100)
    assert not broken.serve(spark)
    ledger.close()
    assert [one.table[1] for one in waiting_requests(Path(to))] == ["a"]
    refusal_kept = kept(to, "c").refused
    assert refusal_kept is not None
    assert (refusal_kept.request, "nonsense" in refusal_kept.reason) == ("rebuild", True)
    assert kept(to, "c").stopped is not None
    summary = run()
    assert [(one.table[1], one.after) for one in summary.stopped] == [("c", cut.sequence_id)]
    assert waiting_requests(Path(to)) == []
    assert keys(to) == {name: [10, 20] for name in "ab"}


def keeps_its_place(
    spark: SparkSession, feed: Feed, to: str, place: int, *, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stopped table has the rows up to its place, and is read only by those who say that they want that."""
    assert held_at(feed, to) == place
    places = {one.table[1]: one.stopped_after or None for one in published(to).tables}
    assert places == {"a": None, "b": None, "c": place}
    with pytest.raises(StaleTable, match=f"stopped after sequence id {place}"):
        read_table(spark, to, ("shop", "c"))
    with pytest.raises(TableNotPublished, match="b"):
        read_table(spark, to, ("shop", "none"))
    assert read_table(spark, to, ("shop", "c"), stopped=True).count() == 1
    code, shown = status(capsys, feed, to)
    assert code == 1
    assert (shown["c"]["state"], shown["c"]["sequence-id"]) == ("stopped", place)
    assert "headrace pipeline tables resume" in shown["c"]["next"]
    assert shown["b"]["state"] == "running"


def is_let_go_and_comes_back_with_a_copy(
    spark: SparkSession, feed: Feed, to: str, run: Run, *, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that is forgotten is let go, and comes back with a copy."""
    path = kept(to, "c").path
    assert main(["pipeline", "tables", "forget", "shop.c", "--to", to]) == 0
    append(feed, rows(30, A, ALTERED))
    assert run().stopped == []
    code, shown = status(capsys, feed, to)
    assert (code, shown["c"]["state"], shown["c"]["request"]) == (0, "forgotten", None)
    assert kept(to, "c").path != path
    assert keys(to) == {"a": [10, 20, 30], "b": [10, 20]}
    append(feed, copy_of(ALTERED, 40, 10, 30))
    append(feed, rows(50, ALTERED))
    bring_tables(spark, feed.server, feed.name, to)
    assert keys(to)["c"] == [10, 30, 50]
    _, shown = status(capsys, feed, to)
    assert [shown[name]["started-from"] for name in "abc"] == ["feed", "feed", "copy"]


def test_a_rebuild_does_not_depend_on_the_size_of_batches(
    spark: SparkSession, feed: Feed, to: str, run: Run
) -> None:
    odd = entry(b'{"reason": "odd"}', "\0stopped/shop/c", table=["shop", "c"], control="stopped")
    append(feed, [schema_entry(C), *rows(10, C), odd, *rows(20, C), *copy_of(C, 30, 10, 20)])
    bring_tables(spark, feed.server, feed.name, to)
    assert keys(to) == {"c": [10, 20]}
    leave_request(Path(to), Request(("shop", "c"), rebuild=True))
    path, loaded = kept(to, "c").path, read_table(spark, to, ("shop", "c"))
    before = published(to)
    ledger = opened(feed, to)
    ledger.publish(msgspec.structs.replace(before, commit_ts=UNSET))  # as if it had died before it published
    ledger.close()
    append(feed, rows(40, C)[:-1])
    run(entries_max=REBUILT_AT_ONCE)
    assert published(to).commit_ts == before.commit_ts == 38
    assert kept(to, "c").refused is None
    assert kept(to, "c").path != path
    assert keys(to) == {"c": [10, 20, 40]}
    assert loaded.count() == 2, "what was loaded before still shows what it did"


@pytest.fixture
def run_with(spark: SparkSession, feed: Feed) -> Callable[[str, Path], Summary]:
    """Bring tables up to the head with a checkpoint of one's choice."""
    return lambda to, place: run_tables(
        spark, feed=feed.name, to=to, server=feed.server.url, once=True, checkpoint=str(place)
    )


def test_a_checkpoint_that_is_ahead_of_the_tables_is_refused(
    spark: SparkSession,
    source: SourceTables,
    to: str,
    tmp_path: Path,
    run_with: Callable[[str, Path], Summary],
) -> None:
    source.object("put", "k1", {"n": 1})
    source.commit()
    assert run_with(to, tmp_path / "own").published is not None
    other = str(tmp_path / "other")
    with pytest.raises(CheckpointAhead, match=r"begins with entry 2 of .* up to 0"):
        run_with(other, tmp_path / "own")
    source.object("put", "k2", {"n": 2})
    source.commit()
    # The tables go on with their own.
    run_with(to, tmp_path / "own")
    assert {row["key"] for _, row in iter_rows(to)} == {"k1", "k2"}
