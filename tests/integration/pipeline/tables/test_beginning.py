"""A job that begins where retention has dropped a table's first rows: it says so, and takes the table with its copy."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.pipeline.tables.reader import iter_rows
from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.mariadb import Server
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

ARGS = ("--retention", "1ms", "--retention-every", "100ms", "--segment-size", "4k")


async def hold_from_here(server: ServerProcess, feed: str) -> None:
    """Have a subscriber hold all that is behind the feed's newest entry."""
    newest = server.http.get(f"/feeds/{feed}").json()["newest-lsn"]
    async with WalClient(server.grpc_address, subscriber_id="holder", insecure=True) as wal:
        await wal.ack(Lsn.parse(newest))


def test_a_table_whose_start_is_gone_is_never_shown_in_part(
    spark: SparkSession, mariadb: Server, tmp_path: Path
) -> None:
    with serving(tmp_path / "log", grpc=True, args=ARGS) as server:
        database = mariadb.create_captured("begun")
        source = CapturedSource(database, server, spark, tmp_path)
        source.sql("CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR(600))")
        source.sql("INSERT INTO t SELECT seq, REPEAT('x', 500) FROM seq_1_to_40")
        source.settle()

        def oldest() -> int:
            return int(server.http.get(f"/feeds/{source.feed}").json()["oldest-sequence-id"])

        try:
            wait_until(lambda: oldest() > 20, 60, what="retention to drop the first rows")
            # A job that begins between two passes of retention needs what comes from here on.
            asyncio.run(hold_from_here(server, source.feed))
            source.sql("ALTER TABLE t ADD COLUMN n INT", "UPDATE t SET n = 1 WHERE id = 7")
            source.sql("CREATE TABLE u (id INT PRIMARY KEY)", "INSERT INTO u VALUES (1)")
            source.settle()
            summary = source.run()
            assert [one.table[1] for one in summary.stopped] == ["t"]
            assert "the feed begins with entry" in summary.stopped[0].reason
            assert "t" not in {name[1] for name, _ in iter_rows(source.to)}
            for table in ("t", "u"):
                code, _, err = source.capture.run("copy", f"{database.name}.{table}")
                assert code == 0, err
            source.settle()
            assert source.bring().stopped == {}
            assert source.differences() == []
        finally:
            source.stop()
