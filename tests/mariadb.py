"""A real MariaDB for tests: servers of their own in a temporary folder, run as an unprivileged user where we are root.

Use: ``with Server() as server: server.create_database("a")``. It ends with the process that started it, however that ends.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

from pymysql.connections import Connection
from pymysql.cursors import Cursor

from tests.ports import free_port
from tests.postgres_folders import private_folder, server_user
from tests.waiting import wait_until

START_S_MAX = 60.0
STOP_S_MAX = 60.0
_MISSING = "MariaDB is not installed: run make setup (Debian: apt install mariadb-server)"
USER, PASSWORD = "app", "geheim@/%"
"""Its password needs escaping in a DSN."""

_PLAIN: dict[str, Any] = {"ssl_disabled": True}
"""The driver would read the public authorities for each connection, 40 ms of the processor, and ask none of them."""

CAPTURE_OPTIONS = (
    *("--log-bin=binlog", "--server-id=1", "--gtid-strict-mode=ON", "--sync-binlog=1"),
    *("--binlog-format=ROW", "--binlog-row-image=FULL", "--binlog-row-metadata=FULL"),
)
"""What a server needs so that its binlog can be captured, and nothing is left to advise."""


class Server:
    """One server, started by ``with`` or :meth:`start`. It keeps its port and its data when it is restarted."""

    def __init__(self, *options: str) -> None:
        """``options``: of ``mariadbd``, such as ``--innodb-flush-log-at-trx-commit=2``."""
        self.folder = private_folder("mariadb")
        self.port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        _as_server("cp", "-a", "--reflink=auto", f"{_template()}/.", str(self.folder / "data"))

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        assert self._process is None, "the server runs already"
        (self.folder / "socket").unlink(missing_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", _program("mariadbd"), "--no-defaults"),
                    *(f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 'socket'}"),
                    *(f"--port={self.port}", "--bind-address=127.0.0.1", "--skip-name-resolve"),
                    # A server that starts drops the temporary tables in its folder, another server's too.
                    f"--tmpdir={self.folder}",
                    *("--innodb-buffer-pool-size=32M", "--performance-schema=OFF", *self._options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **server_user(),
            )
        try:
            wait_until(self._answers, START_S_MAX, what="MariaDB to answer")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL; what was committed is there at the next start."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(STOP_S_MAX)
            self._process = None

    def stop(self) -> None:
        """SIGTERM, and wait until it has ended as it should."""
        assert self._process is not None, "the server does not run"
        self._process.terminate()
        self._process.wait(STOP_S_MAX)
        self._process = None

    def copy_data(self) -> Path:
        """Copy the data of a server that does not run, as a backup does."""
        assert self._process is None, "the server runs"
        copy = self.folder / "copy"
        _as_server("cp", "-a", "--reflink=auto", str(self.folder / "data"), str(copy))
        return copy

    def put_back(self, copy: Path) -> None:
        """Let a copy take the place of the data of a server that does not run."""
        assert self._process is None, "the server runs"
        shutil.rmtree(self.folder / "data")
        copy.rename(self.folder / "data")

    def suspend(self) -> None:
        """SIGSTOP: connections stay open, and are even made, but nobody answers. :meth:`go_on` ends it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def restart(self) -> None:
        """Kill it, and start it again."""
        self.kill()
        self.start()

    def create_database(self, name: str) -> Database:
        """Make an empty database, which :data:`USER` owns."""
        with self.connect_as_root() as root, root.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET latin1")
            cursor.execute(f"GRANT ALL ON `{name}`.* TO `{USER}`@`%` IDENTIFIED BY '{PASSWORD}'")
        return Database(self, name)

    def create_captured(self, name: str) -> Database:
        """:meth:`create_database`, and let :data:`USER` receive the binlog and see how it is filtered."""
        database = self.create_database(name)
        self.sql(f"GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `{USER}`@`%`")
        return database

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement as the administrator and return its rows, if it has any."""
        with self.connect_as_root() as root, root.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def binlogs(self) -> list[Path]:
        """The binlog files that are there, the oldest first."""
        return [self.folder / "data" / name for name, _ in self.sql("SHOW BINARY LOGS")]

    def rotate(self) -> Path:
        """Begin a new binlog file, and return it."""
        self.sql("FLUSH BINARY LOGS")
        return self.binlogs()[-1]

    def purge(self) -> None:
        """Drop all binlog files but the newest; waits until the server lets go of them."""
        newest = self.binlogs()[-1]

        def purged() -> bool:
            self.sql(f"PURGE BINARY LOGS TO '{newest.name}'")
            return self.binlogs() == [newest]

        wait_until(purged, what="the older binlog files to be dropped")

    def dump(self, name: str) -> str:
        """A database as SQL, without what differs from run to run."""
        words = (
            "--no-defaults",
            "--skip-comments",
            "--skip-add-locks",
            "--skip-extended-insert",
            "--hex-blob",
        )
        done = subprocess.run(
            [_program("mariadb-dump"), *words, f"--socket={self.folder / 'socket'}", "--user=root", name],
            capture_output=True,
            text=True,
            timeout=STOP_S_MAX,
            check=True,
        )
        return done.stdout

    def connect_as_root(self) -> Connection[Cursor]:
        """Connect as the administrator, through the socket."""
        return Connection(unix_socket=str(self.folder / "socket"), user="root", autocommit=True, **_PLAIN)

    def log(self) -> str:
        """What the server wrote so far, all its lives together."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the server does not run"
        self._process.send_signal(number)

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            raise AssertionError(f"MariaDB ended at once:\n{self.log()[-4000:]}")
        # The driver leaves a socket of its own open where there is none to connect to.
        if not (self.folder / "socket").exists():
            return False
        self.connect_as_root().close()
        return True


class Database:
    """One database of a running server."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.name = name
        self.dsn = f"mariadb://{USER}:geheim%40%2F%25@127.0.0.1:{server.port}/{name}"

    def connect(self, **options: Any) -> Connection[Cursor]:
        """Connect as the application does; ``options`` are the driver's."""
        return Connection(
            host="127.0.0.1",
            port=self.server.port,
            user=USER,
            password=PASSWORD,
            database=self.name,
            **{**_PLAIN, **options},
        )

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement by itself and return its rows, if it has any."""
        with self.connect(autocommit=True, charset="utf8mb4") as app, app.cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin:/usr/local/sbin")
    assert found is not None, _MISSING
    return found


@functools.cache
def _template() -> Path:
    folder = private_folder("mariadb-template")
    words = (
        "--no-defaults",
        "--auth-root-authentication-method=normal",
        "--skip-test-db",
        "--skip-name-resolve",
        f"--tmpdir={folder}",  # a server is started for it: see Server.start
        f"--datadir={folder / 'data'}",
    )
    _as_server(_program("mariadb-install-db"), *words)
    return folder / "data"


def _as_server(*words: str) -> None:
    done = subprocess.run(
        words, cwd="/", capture_output=True, text=True, timeout=120, check=False, **server_user()
    )
    assert done.returncode == 0, f"{' '.join(words)} failed: {done.stdout}{done.stderr}"
