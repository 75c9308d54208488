"""sysbench beside a test: the load that Debian's package ``sysbench`` offers, against a MariaDB database."""

from __future__ import annotations

import shutil
import subprocess

from tests.mariadb import PASSWORD, USER, Database

END_S_MAX = 120.0
"""How much longer than asked it may run, on a busy machine."""

_MISSING = "sysbench is not installed: run make setup (Debian: apt install sysbench)"


def command(database: Database, *words: str) -> list[str]:
    """The command that runs sysbench with ``words``, such as ``oltp_read_write --tables=4 prepare``."""
    program = shutil.which("sysbench")
    assert program is not None, _MISSING
    return [
        *(program, "--db-driver=mysql", "--mysql-host=127.0.0.1", f"--mysql-port={database.server.port}"),
        *(f"--mysql-user={USER}", f"--mysql-password={PASSWORD}", f"--mysql-db={database.name}", *words),
    ]


def run(database: Database, *words: str, seconds: float = 0.0) -> str:
    """Run sysbench to its end, which was asked for after ``seconds``, and return its report; fails if it failed."""
    done = subprocess.run(
        command(database, *words), capture_output=True, text=True, timeout=seconds + END_S_MAX, check=False
    )
    assert done.returncode == 0, f"sysbench failed: {done.stdout}{done.stderr}"
    return done.stdout
