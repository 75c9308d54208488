"""A table whose initial copy begins anew is not shown before that copy's end, however the batches are cut."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.source.feed import FORMAT, register
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.ledger import Ledger, read_published
from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.mariadb import Server
from tests.scale import sized
from tests.servers import ServerProcess
from tests.waiting import wait_until

ROWS = 400


def test_a_key_that_changes_while_the_table_is_copied(
    mariadb: Server, log_server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    register(spark)
    database = mariadb.create_captured("rekeyed")
    source = CapturedSource(database, log_server, spark, tmp_path, "chunk-rows = 1")
    source.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, other INT NOT NULL, v INT)",
        f"INSERT INTO t SELECT seq, -seq, seq FROM seq_1_to_{ROWS}",
    )
    try:
        source.begin()

        def is_copying() -> bool:
            feeds = source.server.http.get(f"/feeds/{source.feed}")
            return feeds.status_code == 200 and feeds.json()["head-sequence-id"] > ROWS // 20

        wait_until(is_copying, 60, what="the copy to be under way")
        source.sql(
            "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (other)", "UPDATE t SET v = 0 WHERE id = 7"
        )
        source.settle()
    finally:
        source.stop()
    options = {"endpoint": source.server.url, "feeds": source.feed, "start": "1"}
    feed = spark.read.format(FORMAT).options(**options).load().persist()
    places = {
        row["control"]: row["sequence_id"]
        for row in feed.where("control IS NOT NULL")
        .select("control", "sequence_id")
        .orderBy("sequence_id")
        .collect()
    }
    assert places["copy-begin"] < places["ddl"] < places["copy-end"], "the copy was over too soon"
    incarnation = source.server.http.get(f"/feeds/{source.feed}").json()["incarnation"]
    ledger = Ledger(Path(source.to), source.feed, incarnation)
    batches = Batches(ledger, lambda done: None)
    begun, ended = places["ddl"], places["copy-end"]
    cuts = sized([begun, ended - 1], soak=[begun - 1, begun, (begun + ended) // 2, ended - 1])
    try:
        last = 0
        for end in (*cuts, source.head()):
            batches(feed.where(f"sequence_id > {last} AND sequence_id <= {end}"), end)
            last = end
            shown = read_published(Path(source.to))
            is_shown = shown is not None and [*shown.tables] != []
            assert is_shown == (end == source.head()), f"entry {end} of {places}"
    finally:
        ledger.close()
        feed.unpersist()
    assert source.differences() == []
