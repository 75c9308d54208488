"""Where a job begins on a feed that retention has passed: said by itself, first with an archive, anywhere if asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cli.app import main
from headrace.errors import SequenceNotAvailable
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.kafka.beginning import Beginning, find_beginning
from headrace.pipeline.kafka.job import Summary, run_kafka, source_options
from headrace.pipeline.kafka.sink import parse_sink
from headrace.simple.message import Bootstrap, Dml, Message
from tests.integration.pipeline.kafka.captured_feed import append, row_entry, schema_entry, watermark
from tests.integration.pipeline.kafka.topic_reader import read_topic
from tests.integration.pipeline.source.queries import archived, oldest
from tests.kafka import Broker
from tests.servers import Feed, serving
from tests.simple_tables import column, insert, table
from tests.waiting import wait_until

A = table("shop.a", "id", column("name", "varchar"), version=1, table_id=1, key=("id",))
DROPPED = 40
"""Rows that retention may drop."""
ROWS = 50
ROWS_FROM = 2
"""The sequence id of the first row: the schema stands before it."""


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Feed, Path]]:
    """A feed that retention has passed, and the folder of KWAL segments that have all of it."""
    folder = tmp_path_factory.mktemp("passed")
    with serving(folder / "server", args=("--segment-size", "4k")) as server:
        feed = Feed(server, "shop::passed")
        assert feed.register().status_code == 200
        append(feed, [schema_entry(A)])
        for at in range(DROPPED):
            append(feed, [row_entry(insert(A, 10 + at, id=str(at), name="x" * 100))])
        archived(feed, folder / "archive", 1, 20)
        archived(feed, folder / "archive", 21, DROPPED + 1)
        server.args = ["--retention", "1ms", "--retention-every", "100ms", "--segment-size", "4k"]
        server.restart()
        assert feed.register().status_code == 200
        wait_until(lambda: oldest(feed) > DROPPED // 2, what="retention to pass")
        server.args = ["--segment-size", "4k"]
        assert server.stop() == 0
        server.start()
        assert feed.register().status_code == 200
        append(feed, [row_entry(insert(A, 10 + at, id=str(at), name="x")) for at in range(DROPPED, ROWS)])
        append(feed, [watermark(10 + ROWS)])
        assert oldest(feed) > 1
        yield feed, folder / "archive"


def sent(broker: Broker, topic: str) -> list[Message]:
    """The messages of a topic's one partition."""
    (records,) = read_topic(broker.address, topic)
    return [one.message for one in records]


def sent_rows(broker: Broker, topic: str) -> list[int]:
    """The rows of a topic, by number."""
    return [one.commit_ts - 10 for one in sent(broker, topic) if isinstance(one, Dml)]


class Job:
    """A job on the feed, with a checkpoint and a topic of its own."""

    def __init__(self, spark: SparkSession, feed: Feed, broker: Broker, folder: Path) -> None:
        self.spark, self.feed, self.broker, self.folder = spark, feed, broker, folder

    def uri(self, topic: str) -> str:
        return f"kafka://{self.broker.address}/{topic}?partition-num=1"

    def run(self, topic: str, *, start: str = "", archive: str = "") -> Summary:
        """Send what there is."""
        return run_kafka(
            self.spark,
            feed=self.feed.name,
            sink=parse_sink(self.uri(topic)),
            checkpoint=str(self.folder / topic),
            server=self.feed.server.url,
            once=True,
            start=start,
            archive=archive,
            retry_s=20,
        )


def test_where_a_job_begins_is_asked_for_and_said(
    spark: SparkSession, passed: tuple[Feed, Path], broker: Broker, tmp_path: Path
) -> None:
    feed, archive = passed
    job = Job(spark, feed, broker, tmp_path)
    whole = job.run("whole", archive=str(archive))
    assert (whole.began_at, whole.warnings) == (1, [])
    assert sent_rows(broker, "whole") == list(range(ROWS))
    again = job.run("whole", archive=str(archive), start="5")
    assert (again.began_at, again.rows) == (None, 0)
    assert again.warnings == [
        f"{tmp_path / 'whole'} says where to go on: --start 5 is for an empty checkpoint"
    ]

    first = oldest(feed)
    later = job.run("later", start=str(first + 4))
    assert (later.began_at, later.warnings) == (first + 4, [])
    assert sent_rows(broker, "later") == list(range(first + 4 - ROWS_FROM, ROWS))
    assert isinstance(sent(broker, "later")[0], Bootstrap), "the server keeps every schema"
    with pytest.raises(SequenceNotAvailable):
        job.run("first", start="first")
    options = source_options(Endpoint(feed.server.url), feed.name, 10, listener="", archive="")
    elsewhere = find_beginning(options, "", "s3a://bucket/checkpoint")
    assert elsewhere == Beginning(str(first), None, []), "what Spark alone can see, nobody claims to know"


@pytest.mark.usefixtures("shared_spark")
def test_a_beginning_that_retention_chose_is_a_warning_and_progress_is_json(
    spark: SparkSession,
    passed: tuple[Feed, Path],
    broker: Broker,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    feed, _ = passed
    first = oldest(feed)
    job = Job(spark, feed, broker, tmp_path)
    words = ["--feed", feed.name, "--server", feed.server.url, "--sink-uri", job.uri("retained")]
    words += ["--checkpoint", str(tmp_path / "checkpoint"), "--max-entries", "8"]
    assert main(["pipeline", "kafka", "--once", "--json", *words]) == 0
    said = capsys.readouterr()
    summary = json.loads(said.out)
    assert summary["began-at"] == first
    (warning,) = summary["warnings"]
    assert f"it begins at entry {first} of {feed.name}" in warning
    assert f"{first - 1} entries below are not sent" in warning
    logged = [json.loads(line) for line in said.err.splitlines()]
    assert [one["detail"] for one in logged if one.get("level") == "warning"] == [warning]
    progress = [one for one in logged if one["event"] == "progress"]
    assert progress
    last = progress[-1]
    assert (last["sequence-id"], last["watermark"], last["lag"], last["lag-seconds"]) == (
        ROWS + 2,
        10 + ROWS,
        0,
        0.0,
    )
    assert [one["batches"] for one in progress] == sorted({one["batches"] for one in progress})
    assert sent_rows(broker, "retained") == list(range(first - ROWS_FROM, ROWS))
