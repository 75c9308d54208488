"""``headrace capture run`` as a process, between a real MariaDB and a real server."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.capture.ddl import TableName
from headrace.errors import FeedNotFound
from tests.integration.capture.commands import Capture
from tests.integration.capture.folded_feed import fold, read_changes, rows_at_source
from tests.mariadb import CAPTURE_OPTIONS, Database, Server
from tests.scale import scaled
from tests.servers import ServerProcess, serving
from tests.waiting import async_wait_until

STOP_S_MAX = 30.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


class Running:
    """A capture that runs, and can be killed and started again."""

    def __init__(self, folder: Path, database: Database, server: ServerProcess, *lines: str) -> None:
        self.capture = Capture(
            folder,
            database,
            server,
            'watermark-interval = "0.1s"',
            'watermark-idle-interval = "0.1s"',
            *lines,
        )
        self.database = database
        self.server = server
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        self.process = self.capture.start("run")

    def end(self, number: signal.Signals = signal.SIGKILL) -> tuple[int, str]:
        """Send a signal and wait; returns the exit code, and what was logged."""
        assert self.process is not None
        self.process.send_signal(number)
        _, log = self.process.communicate(timeout=STOP_S_MAX)
        process, self.process = self.process, None
        return process.returncode, log

    async def check(self, *tables: str) -> None:
        """Wait until the feed has what the source holds."""
        names = [TableName(self.database.name, table) for table in tables]
        wanted = {name: rows_at_source(self.database.dsn, name) for name in names}

        async def is_there() -> bool:
            assert self.process is None or self.process.poll() is None, "the capture ended"
            try:
                found = fold(await read_changes(self.server, self.capture.feed))
            except FeedNotFound:
                return False
            return {name: table.rows for name, table in found.items()} == wanted

        await async_wait_until(is_there, 60.0, what="the feed to hold what the source holds")


@pytest.fixture
def running(tmp_path: Path, database: Database, server: ServerProcess) -> Iterator[Running]:
    made = Running(tmp_path, database, server)
    yield made
    if made.process is not None:
        made.end()


async def test_it_goes_on_whatever_is_killed_on_either_side(tmp_path: Path) -> None:
    with (
        Server(*CAPTURE_OPTIONS) as mariadb,
        serving(tmp_path / "server", grpc=True) as server,
    ):
        database = mariadb.create_captured("shop")
        database.sql("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(100))")
        database.sql("INSERT INTO t (v) SELECT CONCAT('v', seq) FROM seq_1_to_3000")
        running = Running(tmp_path, database, server, "chunk-rows = 200")
        for life in range(scaled(3)):
            running.start()
            database.sql("INSERT INTO t (v) SELECT CONCAT('w', seq) FROM seq_1_to_500")
            database.sql(f"ALTER TABLE t ADD COLUMN c{life} INT")
            database.sql("UPDATE t SET v = CONCAT(v, '.') WHERE MOD(id, 3) = 0")
            await running.check("t")
            match life % 3:
                case 0:
                    running.end()
                case 1:
                    server.restart()
                    database.sql("DELETE FROM t WHERE MOD(id, 7) = 0")
                    await running.check("t")
                    running.end()
                case 2:
                    mariadb.restart()
                    database.sql("DELETE FROM t WHERE MOD(id, 5) = 0")
                    await running.check("t")
                    assert running.end(signal.SIGTERM)[0] == 0


async def test_a_stop_is_clean_and_a_second_capture_fences_the_first(running: Running) -> None:
    running.database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    running.database.sql("INSERT INTO t VALUES (1)")
    running.start()
    await running.check("t")
    first, running.process = running.process, None
    assert first is not None
    running.start()
    running.database.sql("INSERT INTO t VALUES (2)")
    _, log = first.communicate(timeout=STOP_S_MAX)
    assert first.returncode == 3
    assert "agent-fenced" in log
    await running.check("t")
    code, log = running.end(signal.SIGTERM)
    assert code == 0, log


async def test_a_table_is_copied_again_beside_its_changes(running: Running) -> None:
    database = running.database
    database.sql("CREATE TABLE t (id INT PRIMARY KEY, v INT)")
    database.sql("INSERT INTO t SELECT seq, seq FROM seq_1_to_2000")
    running.start()
    await running.check("t")
    code, _, errors = await asyncio.to_thread(running.capture.run, "copy", f"{database.name}.t")
    assert code == 0, errors
    with closing(database.connect(autocommit=True)) as app, app.cursor() as cursor:
        for number in range(50):
            cursor.execute("UPDATE t SET v = -v WHERE MOD(id, 50) = %s", (number,))

    async def is_copied() -> bool:
        changes = await read_changes(running.server, running.capture.feed)
        return [change.control for change in changes].count("copy-end") == 2

    await async_wait_until(is_copied, 60.0)
    await running.check("t")
    assert (await asyncio.to_thread(running.capture.document, "status"))["copies"] == []


def test_a_source_that_is_not_fit_is_refused_naming_everything(
    running: Running,
) -> None:
    running.database.sql("CREATE TABLE t (id INT)")
    running.database.sql("CREATE TABLE g (id INT PRIMARY KEY, p POINT)")
    running.start()
    assert running.process is not None
    _, log = running.process.communicate(timeout=STOP_S_MAX)
    assert running.process.returncode == 3
    running.process = None
    assert "nothing tells its rows apart" in log
    assert "point" in log
    assert "Traceback" not in log
