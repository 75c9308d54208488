"""``format("headrace.wal")``: a folder of segments reads as the feed did, and what is missing or damaged is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.pandas.types import to_arrow_schema

from headrace.archive.files.settling import prepare
from headrace.errors import HeadraceError, IdentityNeeded, InvalidRequest, SegmentCorrupt, SegmentGap
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.failures import error_of
from headrace.pipeline.wal.source import register
from headrace.wire import columns
from headrace.wire.frame import frames_of
from headrace.wire.kwal import Sealed, SegmentWriter
from headrace.wire.kwal_columns import SCHEMA
from headrace.wire.kwal_manifest import encode_manifest
from tests.identities import age_identity
from tests.kwal import manifest_of, numbered, sealed, write, write_folder
from tests.servers import Feed

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture(autouse=True)
def wal(spark: SparkSession) -> Iterator[None]:
    """The format is known, and filters are pushed."""
    register(spark)
    register(spark)
    before = spark.conf.get(PUSHDOWN, "false") or "false"
    spark.conf.set(PUSHDOWN, "true")
    yield
    spark.conf.set(PUSHDOWN, before)


def opened(spark: SparkSession, folder: Path, **given: Any) -> DataFrame:
    options = {name.replace("_", "-"): str(value) for name, value in given.items()}
    return spark.read.format("headrace.wal").options(**options).load(f"file://{folder}")


def failing(action: Callable[[], Any]) -> HeadraceError:
    """Our own error that the action failed with."""
    with pytest.raises(PySparkException) as caught:
        action()
    return error_of(caught.value)


def archived(feed: Feed) -> tuple[Sealed, str]:
    """The feed's stored frames as one segment, and its incarnation."""
    writer = SegmentWriter()
    with Connection(Endpoint(feed.server.url)) as server:
        view = server.feed(feed.name)
        for frame in frames_of(server.frames(feed.name, 1, view.head_sequence_id).data):
            header = frame.header
            writer.add(frame.body, frame.lengths, header.lsn(0), header.lsn(header.count - 1))
    return writer.seal(), view.incarnation


def test_an_archive_reads_as_the_feed_did(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    for number in range(3):
        entries = [
            {
                "change-feed-id": feed.name,
                "key": f"k{number}",
                "op": op,
                "changes": {"n": number, "text": "ä☃"},
                "table": ["main", "t"],
                "tx": f"tx-{number}",
                "tx-last": op == "delete",
                "source-time": "2026-01-02T03:04:05.678Z",
            }
            for op in ("put", "patch", "delete")
        ]
        assert feed.post(*entries, {"change-feed-id": feed.name, "changes": {}}).status_code == 200
    segment, incarnation = archived(feed)
    incarnations = {segment.name.first.region_id: incarnation}
    write(tmp_path, segment, manifest_of(segment, incarnations=incarnations))
    read = opened(spark, tmp_path)
    assert to_arrow_schema(read.schema, timezone="UTC").equals(SCHEMA)
    live = spark.read.format("headrace").options(endpoint=feed.server.url, feeds=feed.name).load()
    wanted = live.orderBy("sequence_id").collect()
    assert len(wanted) == 12
    rows = read.select(*columns.SCHEMA.names).orderBy("sequence_id").collect()
    assert rows == wanted
    assert {row["incarnation"] for row in read.select("incarnation").collect()} == {incarnation}


@pytest.fixture(scope="module")
def segments() -> list[Sealed]:
    """Four segments of 50 entries, two of another feed's among them."""
    appends = [
        numbered(first, 25, region=9 if first == 76 else 7, feed="orders" if first == 76 else "vmapi::vm")
        for first in range(1, 200, 25)
    ]
    return [sealed(appends[at : at + 2]) for at in range(0, 8, 2)]


@pytest.fixture
def folder(segments: list[Sealed], tmp_path: Path) -> Path:
    made = tmp_path / "wal"
    write_folder(made, segments)
    return made


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("sequence_id").collect())


def test_ranges_feeds_and_tasks(spark: SparkSession, folder: Path, segments: list[Sealed]) -> None:
    whole = opened(spark, folder, task_bytes=1)
    assert whole.rdd.getNumPartitions() == 4
    assert opened(spark, folder).rdd.getNumPartitions() == 1
    given = {"from_lsn": segments[1].name.first, "to_lsn": segments[2].name.last}
    part = opened(spark, folder, feeds="vmapi::vm, orders", **given)
    assert numbers(part) == list(range(51, 151))
    orders = (
        spark.read.format("headrace.wal").schema("value BINARY, sequence_id BIGINT").option("feeds", "orders")
    )
    assert [bytes(row["value"]) for row in orders.load(str(folder)).where("sequence_id = 80").collect()] == [
        b'{"n":80}'
    ]


def test_filters_leave_out_what_they_rule_out(
    spark: SparkSession, folder: Path, segments: list[Sealed]
) -> None:
    last = sorted(folder.glob("*.bin"))[3]
    last.write_bytes(last.read_bytes()[:-9])
    for condition, count in (
        (sql.col("lsn") <= str(segments[1].name.last), 100),
        ((sql.col("feed") == "orders") & (sql.col("sequence_id") < 120), 25),
        (sql.col("committed_at") < sql.timestamp_millis(sql.lit(0)), 0),
    ):
        pushed = opened(spark, folder, pushdown="once").where(condition)
        assert pushed.count() == count, "the damaged segment was not read"
    condition = sql.col("lsn") <= str(segments[1].name.last)
    error = failing(lambda: opened(spark, folder).where(condition).count())
    assert isinstance(error, SegmentCorrupt)
    assert last.name in error.detail
    spark.conf.set(PUSHDOWN, "false")
    assert isinstance(failing(opened(spark, folder, pushdown="once").where(condition).count), SegmentCorrupt)


def test_a_filter_of_one_query_does_no_harm_to_the_next(spark: SparkSession, folder: Path) -> None:
    read = opened(spark, folder)
    few = read.where("sequence_id <= 100")
    assert [few.count(), read.count(), few.union(read).count()] == [100, 200, 300]


def test_gaps_are_refused_or_accepted(spark: SparkSession, folder: Path, segments: list[Sealed]) -> None:
    sorted(folder.glob("*.bin"))[1].unlink()
    error = failing(lambda: opened(spark, folder).count())
    assert isinstance(error, SegmentGap)
    assert str(segments[0].name.last) in error.detail
    assert str(segments[2].name.first) in error.detail
    assert numbers(opened(spark, folder, gaps="accept")) == [*range(1, 51), *range(101, 201)]
    assert isinstance(failing(lambda: opened(spark, folder, from_lsn="x").count()), InvalidRequest)
    assert isinstance(failing(lambda: opened(spark, folder, form_lsn="1.1.1").count()), InvalidRequest)


def test_an_encrypted_archive_is_read_with_its_identity_alone(spark: SparkSession, tmp_path: Path) -> None:
    recipient = age_identity(tmp_path / "key")
    (tmp_path / "wal").mkdir()
    segments = [sealed([numbered(first, 10)]) for first in (1, 11)]
    for before, segment in zip([None, *segments], segments, strict=False):
        files = prepare(segment, manifest_of(segment, before=before), [recipient])
        (tmp_path / "wal" / files.manifest.file).write_bytes(b"".join(files.pieces))
        (tmp_path / "wal" / segment.name.manifest).write_bytes(encode_manifest(files.manifest))
    entries = opened(spark, tmp_path / "wal", identity=tmp_path / "key", from_lsn=segments[0].name.last)
    assert [row[0] for row in entries.select("sequence_id").collect()] == list(range(10, 21))
    assert isinstance(failing(opened(spark, tmp_path / "wal").collect), IdentityNeeded)
