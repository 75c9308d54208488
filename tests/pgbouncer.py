"""A real pgbouncer in front of a cluster, pooling by transaction: a session does not outlive its transaction there.

``with Pooler(cluster) as pooler: psycopg.connect(pooler.dsn("bank"))``. LISTEN, session locks and SET don't hold through it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from types import TracebackType

import psycopg

from tests.ports import free_port
from tests.postgres import START_S_MAX, STOP_S_MAX, Cluster
from tests.postgres_folders import private_folder, server_user
from tests.waiting import wait_until

POOL_SIZE = 4


class Pooler:
    """A pgbouncer for every database of ``cluster``; roles other than postgres are named in ``users``."""

    def __init__(self, cluster: Cluster, *users: str) -> None:
        self.cluster = cluster
        self.port = free_port()
        self.users = ("postgres", *users)
        self.folder = private_folder("pgbouncer")
        self._process: subprocess.Popen[bytes] | None = None

    def dsn(self, database: str, user: str = "postgres") -> str:
        """The address of a database through the pooler."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def log(self) -> str:
        """What pgbouncer wrote so far."""
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Pooler:
        config = self.folder / "pgbouncer.ini"
        users = self.folder / "users.txt"
        users.write_text("".join(f'"{user}" ""\n' for user in self.users), encoding="utf-8")
        config.write_text(
            f"""[databases]
* = host=127.0.0.1 port={self.cluster.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
pool_mode = transaction
default_pool_size = {POOL_SIZE}
ignore_startup_parameters = extra_float_digits,options
""",
            encoding="utf-8",
        )
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [_binary(), str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                **server_user(),
            )
        wait_until(self._answers, START_S_MAX, what="pgbouncer to answer")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(STOP_S_MAX)
        shutil.rmtree(self.folder)

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(f"pgbouncer ended at once:\n{self.log()}")
        try:
            psycopg.connect(self.dsn("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


def _binary() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert found is not None, "pgbouncer is not installed: run make setup (Debian: apt install pgbouncer)"
    return found
