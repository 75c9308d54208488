"""A real PostgreSQL for tests: private clusters in a temporary folder, run as user ``postgres`` where we are root.

Fixtures (for every test, see ``tests/conftest.py``): ``cluster``, one for the whole run, which no test may stop; and
``database``, a new database in it. A test that stops, kills or fills makes its own: ``with Cluster() as cluster: ...``.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from tests.ports import free_port
from tests.postgres_folders import binary, copy_template, private_folder, server_user
from tests.waiting import wait_until

START_S_MAX = 60.0
STOP_S_MAX = 60.0
TOOL_S_MAX = 240.0

StopMode = Literal["fast", "immediate", "smart"]

_SIGNALS = {"fast": signal.SIGINT, "immediate": signal.SIGQUIT, "smart": signal.SIGTERM}
# fsync guards against a power failure, which tests here can't make; SIGKILL loses nothing that was written.
_SETTINGS = {
    "fsync": "off",
    "listen_addresses": "127.0.0.1",
    "log_line_prefix": "%m [%p] %q%u@%d ",
    "max_connections": "200",
}
_SUPERUSER = "postgres"
_KEPT_MAX = 8
_numbers = itertools.count(1)


class Cluster:
    """One cluster and its postmaster, started by ``with`` or :meth:`start`. It keeps its port when it is restarted.

    ``data``: the data folder, empty, such as a small tmpfs (default: one of its own). ``settings``: of postgresql.conf.
    ``copy_of``: start from a base backup of that running cluster and follow it, instead of empty.
    """

    def __init__(
        self,
        *,
        data: Path | None = None,
        settings: Mapping[str, str] | None = None,
        copy_of: Cluster | None = None,
    ) -> None:
        self.folder = private_folder("cluster")
        self.data = data if data is not None else self.folder / "data"
        self.port = free_port()
        self.settings: dict[str, str] = {
            **_SETTINGS,
            **(copy_of.settings if copy_of else {}),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._keeping = Lock()
        self._kept: list[tuple[str, psycopg.Connection[TupleRow]]] = []
        if copy_of is None:
            copy_template(self.data)
        else:
            copy_of.configure(
                wal_keep_size="1GB"
            )  # else it may recycle what a slow standby still has to read
            copy_of.run("pg_basebackup", "-R", "-c", "fast", "-D", str(self.data), as_server=True)
        self._write_settings()

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The postmaster's process id."""
        assert self._process is not None, "the cluster is not running"
        return self._process.pid

    def start(self) -> None:
        """Start the postmaster, and wait until it takes connections."""
        assert self._process is None, "the cluster runs already"
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [binary("postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data,
                **server_user(),
            )
        try:
            wait_until(self._answers, START_S_MAX, what="PostgreSQL to answer")
        except BaseException:
            self.kill()
            raise

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop as ``pg_ctl stop -m`` does, if it runs; ``immediate`` leaves a crash to recover from."""
        self._let_go()
        if self._process is not None:
            self._process.send_signal(_SIGNALS[mode])
            self._process.wait(STOP_S_MAX)
            self._process = None

    def restart(self, mode: StopMode = "fast") -> None:
        """Stop, and start with the settings as they are now."""
        self.stop(mode)
        self.start()

    def kill(self) -> None:
        """SIGKILL the postmaster and every backend, and wait until none of them is left."""
        self._let_go()
        if self._process is None:
            return
        # Stopped first: it can't start a backend that would be missed, and that would hold the shared memory.
        os.kill(self.pid, signal.SIGSTOP)
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text(encoding="ascii").split()
        for pid in (self.pid, *map(int, children)):
            os.kill(pid, signal.SIGKILL)
        self._process.wait(STOP_S_MAX)
        self._process = None
        wait_until(lambda: not any(map(_alive, children)), STOP_S_MAX, what="the backends to end")

    def close(self) -> None:
        """Stop, and remove all that there is of it."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.data.exists():
            shutil.rmtree(self.data, ignore_errors=True)

    def configure(self, **settings: str) -> None:
        """Change settings, and have them read now, where that is possible without a restart."""
        self.settings |= settings
        self._let_go()
        self._write_settings()
        if self._process is not None:
            with self.connect() as app:
                app.execute("SELECT pg_reload_conf()")

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        """The address of a database; nobody is asked for a password."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def connect(
        self, database: str = "postgres", user: str = "postgres", *, autocommit: bool = True, **options: Any
    ) -> psycopg.Connection[TupleRow]:
        """Connect with psycopg; ``options`` are parameters of libpq."""
        return psycopg.connect(self.dsn(database, user), autocommit=autocommit, **options)

    def sql(self, statement: str, database: str = "postgres", user: str = "postgres") -> list[TupleRow]:
        """Run one statement by itself and return its rows, if it has any.

        The superuser's session is kept for the next one: to begin one takes longer than most statements. A statement that
        sets something for its session sets it for those as well.
        """
        while user == _SUPERUSER and (kept := self._take(database)) is not None:
            try:
                return self._run(kept, statement, database)
            except psycopg.OperationalError:
                if not kept.closed:
                    raise
                # It was ended before, by the server or by a test.
        app = self.connect(database, user, prepare_threshold=None)
        return self._run(app, statement, database if user == _SUPERUSER else None)

    def create_database(self, name: str) -> str:
        """Make an empty database; returns its address. Its files are copied, which takes half as long as a log of them."""
        self.sql(f'CREATE DATABASE "{name}" TEMPLATE template1 STRATEGY file_copy')
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self._let_go(name)
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def log(self) -> str:
        """What the server wrote so far, all its lives together."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def command(self, tool: str, *words: str, database: str = "postgres") -> dict[str, Any]:
        """Arguments for :mod:`subprocess` that run a client program of PostgreSQL against ``database`` as role postgres."""
        place = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": "postgres",
            "PGDATABASE": database,
        }
        return {"args": [binary(tool), *words], "env": {**os.environ, **place}}

    def run(
        self, tool: str, *words: str, database: str = "postgres", as_server: bool = False
    ) -> subprocess.CompletedProcess[str]:
        """Run a client program to its end; fails with what it said if it fails.

        It runs as this process's user, so that it can write into a test's folder; ``as_server``: as the server's.
        """
        done = subprocess.run(
            **self.command(tool, *words, database=database),
            **(server_user() if as_server else {}),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TOOL_S_MAX,
            check=False,
        )
        assert done.returncode == 0, f"{tool} {' '.join(words)} failed: {done.stdout}{done.stderr}"
        return done

    def pgbench(self, database: str, *words: str) -> str:
        """Run pgbench to its end; returns its report. For one that runs beside a test see ``tests.pgbench``."""
        return self.run("pgbench", *words, database=database).stdout

    def pg_dump(self, database: str, file: Path, *words: str) -> None:
        """Dump a database into ``file`` in the custom format."""
        self.run("pg_dump", "-Fc", "-f", str(file), *words, database=database)

    def pg_restore(self, database: str, file: Path, *words: str) -> None:
        """Restore what :meth:`pg_dump` wrote into an existing database; any error fails."""
        self.run("pg_restore", "-e", "-d", database, *words, str(file), database=database)

    def replica(self) -> Cluster:
        """Make a standby that follows this cluster once it is started: ``with primary.replica() as standby:``."""
        return Cluster(copy_of=self)

    def catch_up(self, standby: Cluster) -> None:
        """Wait until the standby has replayed all that is committed here now."""
        ((end,),) = self.sql("SELECT pg_current_wal_flush_lsn()")
        wait_until(
            lambda: standby.sql(f"SELECT pg_last_wal_replay_lsn() >= '{end}'")[0][0],
            START_S_MAX,
            what="the standby to catch up",
        )

    def promote(self) -> None:
        """Make a standby the primary of a new timeline, and wait until it takes writes."""
        self.sql("SELECT pg_promote(wait => true)")
        wait_until(
            lambda: not self.sql("SELECT pg_is_in_recovery()")[0][0], START_S_MAX, what="the promotion"
        )

    def _take(self, database: str) -> psycopg.Connection[TupleRow] | None:
        """A session with a database that was kept, if there is one that nobody uses now."""
        with self._keeping:
            for at, (name, kept) in enumerate(self._kept):
                if name == database:
                    del self._kept[at]
                    return kept
        return None

    def _run(self, app: psycopg.Connection[TupleRow], statement: str, database: str | None) -> list[TupleRow]:
        """Run a statement in a session, which is kept afterwards if a database is named."""
        try:
            done = app.execute(statement.encode())
            return done.fetchall() if done.description else []
        finally:
            idle = not app.closed and app.info.transaction_status is TransactionStatus.IDLE
            if database is not None and self._process is not None and idle:
                with self._keeping:
                    self._kept.append((database, app))
                    if len(self._kept) > _KEPT_MAX:
                        self._kept.pop(0)[1].close()
            else:
                app.close()

    def _let_go(self, database: str | None = None) -> None:
        """Close the sessions that are kept, those with one database or all."""
        with self._keeping:
            for kept in [one for one in self._kept if database in {None, one[0]}]:
                self._kept.remove(kept)
                kept[1].close()

    def _write_settings(self) -> None:
        ours = {"port": str(self.port), "unix_socket_directories": str(self.folder), **self.settings}
        lines = [f"{name} = '{value.replace(chr(39), chr(39) * 2)}'\n" for name, value in ours.items()]
        (self.data / "tests.conf").write_text("".join(lines), encoding="utf-8")

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            self._process = None
            raise AssertionError(f"PostgreSQL ended at once:\n{self.log()[-4000:]}")
        try:
            self.connect(connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Database:
    """One database of a running cluster."""

    cluster: Cluster
    name: str

    @property
    def dsn(self) -> str:
        """Its address, for the superuser."""
        return self.cluster.dsn(self.name)

    def dsn_as(self, user: str) -> str:
        """Its address for a role. Roles belong to the whole cluster: name them after the database."""
        return self.cluster.dsn(self.name, user)

    def connect(
        self, user: str = "postgres", *, autocommit: bool = True, **options: Any
    ) -> psycopg.Connection[TupleRow]:
        """Connect with psycopg."""
        return self.cluster.connect(self.name, user, autocommit=autocommit, **options)

    def sql(self, statement: str, user: str = "postgres") -> list[TupleRow]:
        """Run one statement by itself and return its rows, if it has any."""
        return self.cluster.sql(statement, self.name, user)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster for the whole test run; it must not be stopped or reconfigured."""
    with Cluster() as running:
        yield running


@pytest.fixture
def database(cluster: Cluster) -> Iterator[Database]:
    """A new database of the shared cluster, dropped at the end."""
    name = f"test_{next(_numbers)}"
    cluster.create_database(name)
    yield Database(cluster, name)
    cluster.drop_database(name)


def _alive(pid: str) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"  # nobody may be there to reap it
