"""Where the tests' PostgreSQL comes from: its programs, the user that it runs as, and one temporary folder for the run.

What a killed test run left behind (a postmaster, its folder) is ended and removed by the next one.
"""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

VERSION_MIN = 15
PREFIX = "headrace-tests-"
MEMORY = Path("/dev/shm")  # names in it are drawn at random
MEMORY_FREE_MIN = 4 << 30
_MISSING = (
    f"PostgreSQL {VERSION_MIN} or newer is not installed: run make setup (Debian: apt install postgresql)"
)


@functools.cache
def programs() -> Path:
    """The folder of the newest PostgreSQL's programs; fails if there is none."""
    found = [
        (int(path.parent.parent.name), path.parent)
        for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")
        if path.parent.parent.name.isdigit()
    ]
    on_path = shutil.which("initdb")
    if not found and on_path is not None:
        said = subprocess.run([on_path, "--version"], capture_output=True, text=True, check=True).stdout
        found = [(int(number), Path(on_path).resolve().parent) for number in re.findall(r"\) (\d+)", said)]
    assert found, _MISSING
    version, folder = max(found)
    assert version >= VERSION_MIN, f"{_MISSING}; found {version}"
    return folder


def binary(name: str) -> str:
    """The path of one of PostgreSQL's programs; fails if it is not there."""
    path = programs() / name
    assert path.exists(), f"{path} is missing: run make setup (Debian: apt install postgresql)"
    return str(path)


def server_user() -> dict[str, Any]:
    """Arguments for :mod:`subprocess` that make a server run as ``postgres``: as root it refuses to."""
    if os.geteuid() != 0:
        return {}
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        raise AssertionError("there is no user postgres, and PostgreSQL does not run as root") from None
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


@functools.cache
def _run_folder() -> tuple[Path, int]:
    """Make the folder of this test run, and hold its lock while this process lives."""
    end_orphans()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_place()))
    folder.chmod(0o755)
    lock = os.open(folder / "lock.new", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    (folder / "lock.new").rename(folder / "lock")  # nobody ever sees it unlocked while we live
    atexit.register(_end, folder)
    return folder, lock


def _place() -> Path:
    """Where databases are: in memory if there is room, as a new database is 300 files, which disks are slow to make."""
    in_memory = os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_FREE_MIN
    return MEMORY if in_memory else Path(tempfile.gettempdir())


def private_folder(name: str) -> Path:
    """A new folder that the server's user may write to, removed with everything else when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=_run_folder()[0]))
    _hand_over(folder)
    return folder


def _hand_over(folder: Path) -> None:
    folder.chmod(0o700)
    if (user := server_user()) != {}:
        os.chown(folder, user["user"], user["group"])


@functools.cache
def _template() -> Path:
    folder = private_folder("template") / "data"
    words = ["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8"]
    _as_server(binary("initdb"), *words, "-D", str(folder))
    with (folder / "postgresql.conf").open("a", encoding="utf-8") as conf:
        conf.write("include 'tests.conf'\n")
    return folder


def copy_template(data: Path) -> None:
    """Fill ``data``, empty or not there, with a new cluster; much faster than initdb, which runs once."""
    if data.exists():
        _hand_over(data)
    _as_server("cp", "-a", "--reflink=auto", f"{_template()}/.", str(data))


def end_orphans() -> None:
    """End the servers, and remove the folders, of test runs that were killed: their locks are free."""
    here = Path(tempfile.gettempdir())  # of this run: those of others are beside it
    beside = here.parent.glob(f"hr-*/{PREFIX}*")
    for folder in (*MEMORY.glob(f"{PREFIX}*"), *here.glob(f"{PREFIX}*"), *beside):
        try:
            lock = os.open(folder / "lock", os.O_RDWR)
        except (FileNotFoundError, PermissionError):
            continue  # just being made, or another user's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _end(folder)
        except BlockingIOError:
            pass  # its test run goes on
        finally:
            os.close(lock)


def _end(folder: Path) -> None:
    """Stop every postmaster below ``folder`` and remove it. Only a run that was killed has any left."""
    for pid_file in folder.glob("cluster-*/data/postmaster.pid"):
        words = ["stop", "-m", "immediate", "-D", str(pid_file.parent)]
        _as_server(binary("pg_ctl"), *words, check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _as_server(*words: str, check: bool = True) -> None:
    done = subprocess.run(
        words, cwd="/", capture_output=True, text=True, timeout=120, check=False, **server_user()
    )
    assert done.returncode == 0 or not check, f"{' '.join(words)} failed: {done.stdout}{done.stderr}"
