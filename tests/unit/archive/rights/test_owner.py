"""One owner of a local archive at a time: a lock that ends with its process, and is missed if it is removed."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import TEMPORARY
from headrace.archive.rights.owner import LOCK, owner_of, take
from headrace.archive.rights.processes import ProcessMark, has_ended, this_process
from headrace.errors import ArchiveOwned
from headrace.runtime.disk import DiskFile
from tests.waiting import wait_until


def test_one_owner_at_a_time(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "wal"))
    with take(folder) as owner:
        owner.check()
        with pytest.raises(
            ArchiveOwned, match=rf'belongs to another process: .*"what":"backup".*"pid":{os.getpid()}'
        ):
            take(folder, "another")
        owner.check()
    with take(folder, "another") as owner:
        owner.release()
        with pytest.raises(ArchiveOwned, match="given up"):
            owner.check()
    with take(folder):
        assert sorted(folder.files()) == [LOCK]


def test_who_owns_a_folder_is_told_without_taking_it(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "wal"))
    assert owner_of(folder) == ""
    with take(folder) as owner:
        assert f'"pid":{os.getpid()}' in owner_of(folder)
        owner.check()
    assert owner_of(folder) == "", "the file stays, the lock does not"
    with take(folder):
        pass


def test_who_looks_for_an_owner_does_not_keep_the_next_one_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look goes on for as long as the machine lets it, here until the agent that starts has met it."""
    folder, plain = Folder(str(tmp_path)), DiskFile.lock
    take(folder).release()
    looking = (tmp_path / LOCK).open()
    fcntl.flock(looking, fcntl.LOCK_SH)
    met: list[bool] = []

    def lock(file: DiskFile) -> bool:
        got = plain(file)
        met.append(got)
        looking.close()
        return got

    monkeypatch.setattr(DiskFile, "lock", lock)
    with take(folder) as owner:
        assert met[:2] == [False, True]
        owner.check()


def test_an_archive_is_taken_while_others_look_all_the_time(tmp_path: Path) -> None:
    """Who looks meets nobody but the owner: neither does he tell of another one who looks."""
    folder, over, told = Folder(str(tmp_path)), threading.Event(), set[str]()
    take(folder).release()

    def look() -> None:
        while not over.is_set():
            told.add(owner_of(folder))

    looking = [threading.Thread(target=look) for _ in range(2)]
    for one in looking:
        one.start()
    try:
        for _ in range(50):
            wait_until(lambda: told, what="looks")
            told.clear()
        assert told <= {""}
        for _ in range(50):
            with take(folder) as owner:
                owner.check()
    finally:
        over.set()
        for one in looking:
            one.join()


def test_an_owner_sweeps_what_the_dead_left(tmp_path: Path) -> None:
    (tmp_path / f"{TEMPORARY}1-dead").write_bytes(b"x")
    with take(Folder(str(tmp_path))):
        assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_lock_that_was_removed_or_made_anew_is_lost(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with take(folder) as owner:
        (tmp_path / LOCK).unlink()
        with pytest.raises(ArchiveOwned, match="was removed"):
            owner.check()
        with take(folder) as second:
            with pytest.raises(ArchiveOwned):
                owner.check()
            second.check()
    with take(folder) as owner:
        (tmp_path / LOCK).rename(tmp_path / "elsewhere")
        (tmp_path / LOCK).write_bytes(b"")
        with pytest.raises(ArchiveOwned):
            owner.check()


def test_a_process_is_known_to_have_ended_only_for_certain() -> None:
    ours = this_process()
    assert not has_ended(ours)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with child:
        before = ProcessMark(ours.host, child.pid, ours.machine, ours.began)
        assert has_ended(before), "the pid is used again, by a process that began later"
        assert not has_ended(ProcessMark(ours.host, child.pid)), "nobody can tell which process that was"
        began = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[19]
        mark = ProcessMark(ours.host, child.pid, ours.machine, int(began))
        assert not has_ended(mark)
        child.kill()
        wait_until(lambda: has_ended(mark), what="the end of a process that nobody waits for")
        child.wait()
    assert has_ended(mark)
    assert not has_ended(ProcessMark(ours.host, child.pid, "another machine", int(began)))
