"""A query is moved with its checkpoint alone, and goes on exactly where it was; Spark's way of keeping it fits the place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.cli.app import main
from headrace.errors import HeadraceError
from headrace.pipeline.checkpoint import UNFINISHED
from headrace.pipeline.checkpoint_folder import LOCAL_MANAGER, MANAGER
from headrace.pipeline.supervision import ONCE, start_query, supervise
from tests.servers import Feed

SPARKS_OWN = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"


class Sink:
    """Keeps what it was handed: batch id -> sequence ids; ``fails`` names a batch that it refuses."""

    def __init__(self, spark: SparkSession, feed: Feed) -> None:
        self.spark, self.feed = spark, feed
        self.fails: int | None = None
        self.handed: list[tuple[int, list[int]]] = []

    def __call__(self, entries: DataFrame, batch_id: int) -> None:
        if batch_id == self.fails:
            raise ZeroDivisionError(f"batch {batch_id}")
        rows = entries.select("sequence_id").collect()
        self.handed.append((batch_id, sorted(row["sequence_id"] for row in rows)))

    def run(self, checkpoint: str) -> None:
        options = {"endpoint": self.feed.server.url, "feeds": self.feed.name}
        entries = self.spark.readStream.format("headrace").options(**options).load()
        writer = entries.writeStream.foreachBatch(self).trigger(availableNow=True)
        supervise(lambda: start_query(self.spark, writer, checkpoint), terms=ONCE)


def put(feed: Feed, *numbers: int) -> None:
    for number in numbers:
        assert feed.post({"sequence-id": number, "changes": {"n": number}}).status_code == 200


def test_a_query_goes_on_elsewhere_exactly_where_it_was(
    spark: SparkSession, feed: Feed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = (str(tmp_path / name) for name in ("old", "new"))
    sink = Sink(spark, feed)
    put(feed, 1, 2)
    sink.run(old)
    put(feed, 3, 4)
    sink.fails = 1  # planned and not done: its end is what must not change on the way
    with pytest.raises(HeadraceError, match="batch 1"):
        sink.run(old)
    put(feed, 5)

    assert main(["pipeline", "checkpoint", "show", old]) == 0
    shown = capsys.readouterr().out
    assert "not done: it is repeated with the same end" in shown
    assert f"  {feed.name}: up to sequence id 4, LSN 0" in shown
    assert main(["pipeline", "checkpoint", "show", old, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(batch["batch-id"], batch["done"]) for batch in found["batches"]] == [(0, True), (1, False)]
    assert main(["pipeline", "checkpoint", "export", old]) == 0
    document = tmp_path / "exported.json"
    document.write_text(capsys.readouterr().out)
    assert main(["pipeline", "checkpoint", "import", str(document), new]) == 0
    assert found["query-id"] in capsys.readouterr().out

    sink.fails = None
    sink.run(new)
    assert sink.handed == [(0, [1, 2]), (1, [3, 4]), (2, [5])]
    sink.run(new)
    assert len(sink.handed) == 3
    assert json.loads((Path(new) / "metadata").read_text())["id"] == found["query-id"]


def test_spark_does_not_start_on_an_import_that_was_cut_off(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    put(feed, 1)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "metadata").write_text(UNFINISHED)
    sink = Sink(spark, feed)
    with pytest.raises(HeadraceError):
        sink.run(str(tmp_path / "cut"))
    assert sink.handed == []


def test_mistakes_say_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    for words, code, exit_code in (
        (["show", str(tmp_path)], "checkpoint-not-found", 1),
        (["export", str(tmp_path)], "checkpoint-not-found", 1),
        (["import", str(tmp_path / "none.json"), str(tmp_path)], "config-invalid", 2),
        (["import", str(other), str(tmp_path / "to")], "checkpoint-unfit", 3),
    ):
        assert main(["pipeline", "checkpoint", *words]) == exit_code
        assert capsys.readouterr().err.splitlines()[1] == f"code: {code}"


def manager_of(spark: SparkSession, checkpoint: str) -> str:
    """The class that writes a query's offsets there, asked of Spark itself."""
    rates = spark.readStream.format("rate").load()
    query = start_query(spark, rates.writeStream.format("noop"), checkpoint)
    try:
        offsets = query._jsq.streamingQuery().offsetLog()
        return str(offsets.fileManager().getClass().getName())
    finally:
        query.stop()


def test_the_quick_way_of_keeping_a_checkpoint_is_for_local_folders_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A file system of Hadoop's that is none of this machine's, as far as its URL tells.
    mount = "fs.viewfs.mounttable.elsewhere.link./folder"
    spark.conf.set(mount, f"file://{tmp_path}")
    try:
        assert manager_of(spark, str(tmp_path / "here")) == LOCAL_MANAGER
        assert manager_of(spark, "viewfs://elsewhere/folder/there") == SPARKS_OWN
        spark.conf.set("fs.defaultFS", "viewfs://elsewhere/")
        assert manager_of(spark, str(tmp_path / "100% ours, näh")) == LOCAL_MANAGER
        spark.conf.set(MANAGER, LOCAL_MANAGER)
        assert manager_of(spark, "viewfs://elsewhere/folder/there") == SPARKS_OWN
        assert spark.conf.get(MANAGER) == LOCAL_MANAGER
    finally:
        for name in (mount, "fs.defaultFS"):
            spark.conf.unset(name)
        spark.conf.unset(MANAGER)
    for name in ("here", "there", "100% ours, näh"):
        assert (tmp_path / name / "offsets").is_dir()
