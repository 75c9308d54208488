"""A capture follows ``sysbench oltp_read_write`` while it runs: the feed holds what the tables hold, each change once."""

from __future__ import annotations

import asyncio
import itertools
import signal
from pathlib import Path

from headrace.capture.binlog.event import Gtid
from headrace.capture.ddl import TableName
from headrace.capture.feed import position_of
from headrace.client.log_append import LogAppendClient
from headrace.entries.entry import Change
from headrace.errors import FeedNotFound
from headrace.simple import json_codec
from headrace.simple.message import Dml
from tests import sysbench
from tests.integration.capture.commands import Capture
from tests.integration.capture.folded_feed import fold, read_changes, rows_at_source
from tests.mariadb import Database
from tests.scale import sized
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import async_wait_until

TABLES = ("sbtest1", "sbtest2")
ROWS = 500
SECONDS = sized(2, soak=60)
LOAD = (f"--tables={len(TABLES)}", f"--table-size={ROWS}", "oltp_read_write")
CHANGES = 4
"""Rows that each of its transactions changes: two UPDATEs, a DELETE, and an INSERT of the row that went."""
LAST = 20
"""Transactions that come when the initial snapshot is whole, however slow it was."""
STOP_S_MAX = 60.0


async def test_a_capture_follows_sysbench(tmp_path: Path, database: Database) -> None:
    await asyncio.to_thread(sysbench.run, database, *LOAD, "prepare")
    with serving(tmp_path / "server", grpc=True) as server:
        capture = Capture(tmp_path, database, server, 'watermark-interval = "0.1s"')
        process = capture.start("run")

        async def wait_for(sequence: int, *, whole: bool = False) -> None:
            """Wait until the feed has the source's transactions up to that number; ``whole``: and all copied rows."""

            async def is_there() -> bool:
                assert process.poll() is None, process.communicate()[1]
                place, head = await end_of(server, capture.feed)
                # No WATERMARK comes before the initial snapshot is whole.
                return place >= sequence and not (whole and head != "watermark")

            await async_wait_until(is_there, 60.0, what="the feed to hold what the source has")

        try:
            words = (*LOAD, "--threads=4", f"--time={SECONDS}", "run")
            begun = last_sequence(database)
            loading = asyncio.create_task(asyncio.to_thread(sysbench.run, database, *words, seconds=SECONDS))
            await wait_for(begun + 50)
            await loading
            await wait_for(last_sequence(database), whole=True)
            await asyncio.to_thread(sysbench.run, database, *LOAD, f"--events={LAST}", "--time=0", "run")
            await wait_for(last_sequence(database), whole=True)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, STOP_S_MAX) == 0
        finally:
            process.kill()
            process.communicate()
        changes = await read_changes(server, capture.feed)
    names = [TableName(database.name, table) for table in TABLES]
    found = fold(changes)
    assert {name: table.rows for name, table in found.items()} == {
        name: rows_at_source(database.dsn, name) for name in names
    }
    check_transactions(changes)


def check_transactions(changes: list[Change]) -> None:
    """Rows of a transaction stand together, of one commitTs; behind the initial snapshot there are all of them."""
    whole = max(place for place, change in enumerate(changes) if change.control == "copy-end")
    rows = [change for change in changes[whole:] if not change.control]
    assert len(rows) >= LAST * CHANGES
    seen: set[bytes] = set()
    for gtid, group in itertools.groupby(rows, key=lambda change: change.source_tx):
        assert gtid
        assert gtid not in seen
        seen.add(gtid)
        transaction = list(group)
        assert [change.tx_index for change in transaction] == list(range(CHANGES))
        assert [change.tx_last for change in transaction] == [False] * (CHANGES - 1) + [True]
        assert len({commit_ts(change) for change in transaction}) == 1


def commit_ts(change: Change) -> int:
    """The commitTs of a row's message."""
    message = json_codec.decode(change.value)
    assert isinstance(message, Dml)
    return message.commit_ts


async def end_of(server: ServerProcess, feed: str) -> tuple[int, str]:
    """The last sequence number of which a feed holds everything, and which control entry is its last, if one is."""
    async with LogAppendClient(server.grpc_address) as client:
        try:
            end = await client.tail(feed, "capture")
        except FeedNotFound:
            return -1, ""
    position = position_of(end, feed, "capture")
    if position is None:
        return -1, ""
    (last,) = Feed(server, feed).entries(end.next_sequence_id - 1, end.next_sequence_id - 1)
    return Gtid.parse(position.gtid).sequence, last.get("control", "")


def last_sequence(database: Database) -> int:
    """The sequence number of the source's last transaction."""
    ((text,),) = database.server.sql("SELECT @@GLOBAL.gtid_binlog_pos")
    return Gtid.parse(text).sequence
