"""Who reads an archive keeps it from being pruned, as long as his process lives; and a prune at work is waited for."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import remove
from headrace.archive.rights.holds import hold, holders, pruning
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import ArchiveOwned, ArchiveUnavailable
from headrace.runtime.disk import Disk, DiskFile
from tests.fault.volumes import small_volume
from tests.waiting import wait_until

LSN = Lsn(5 << 18, 7, 9)

HOLDER = """
import sys
from headrace.archive.files.folder import Folder
from headrace.archive.rights.holds import hold
from headrace.entries.lsn import Lsn
with hold(Folder(sys.argv[1]), Lsn.parse(sys.argv[2])) as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


def holds_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("hold-*"))


def fill(path: Path) -> None:
    """Write this file until its volume is full, to the last byte."""
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 12)):
            pass
    assert shutil.disk_usage(path.parent).free == 0


def test_a_hold_is_seen_while_it_lasts(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with hold(folder, LSN, "restore of a test") as held, hold(folder, ZERO):
        assert held
        found, dead = holders(folder)
        assert dead == []
        assert sorted(one.lsn_from for one in found) == [ZERO, LSN]
        assert any(one.who.startswith("restore of a test, process ") for one in found)
    assert holders(folder) == ([], [])
    assert holds_of(tmp_path) == []


def test_the_page_shows_what_a_hold_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[4] / "docs" / "formats" / "kwal.md").read_text(encoding="utf-8")
    shown = json.loads(page[page.index('{"what": "restore", "lsn-from"') :].partition("\n")[0])
    with hold(Folder(str(tmp_path)), LSN):
        said = json.loads(holds_of(tmp_path)[0].read_bytes())
    assert list(said) == list(shown)
    assert set(said["process"]) == set(shown["process"])


def test_a_hold_ends_with_its_process(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    command = [sys.executable, "-c", HOLDER, str(tmp_path), str(LSN)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        assert [one.lsn_from for one in holders(folder).held] == [LSN]
        process.kill()
    assert holders(folder) == ([], [path.name for path in holds_of(tmp_path)])
    assert len(holds_of(tmp_path)) == 1


def test_in_doubt_everything_is_held(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with hold(folder, LSN):
        holds_of(tmp_path)[0].write_bytes(b"{")
        assert [one.lsn_from for one in holders(folder).held] == [ZERO]


def test_an_archive_that_cant_be_written_is_read_nevertheless(capfd: pytest.CaptureFixture[str]) -> None:
    # No file can be made there, not even by root.
    with hold(Folder("/proc/self"), LSN) as held:
        assert not held
    assert "archive not held" in "".join(capfd.readouterr())


def test_on_a_full_volume_everything_is_held(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        root = tmp_path / "volume"
        fill(root / "filler")
        folder = Folder(str(root))
        with hold(folder, LSN, needed=True) as held:
            assert held
            assert holds_of(root)[0].stat().st_size == 0
            with pruning(folder):
                ((who, lsn_from),), dead = holders(folder)
            assert (lsn_from, dead) == (ZERO, [])
            assert "can't be read" in who
        assert holders(folder) == ([], [])
        assert holds_of(root) == []
    assert "all of the archive is held" in "".join(capfd.readouterr())


def test_who_needs_the_hold_does_not_go_on_without() -> None:
    with (
        pytest.raises(ArchiveUnavailable, match="/proc/self can't be held"),
        hold(Folder("/proc/self"), LSN, needed=True),
    ):
        pytest.fail("it was not held")


def test_one_process_prunes(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    with pruning(folder), pytest.raises(ArchiveOwned, match="pruned by another process"), pruning(folder):
        pass
    with pruning(folder) as check:
        check()


def test_a_hold_whose_file_a_prune_took_for_a_dead_ones_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(str(tmp_path))
    opened, looked, done = threading.Event(), threading.Event(), threading.Event()
    plain = Disk.open

    def slow(disk: Disk, path: Path, *, create: bool = False, readonly: bool = False) -> DiskFile:
        file = plain(disk, path, create=create, readonly=readonly)
        if create and path.name.startswith("hold-") and not opened.is_set():
            opened.set()
            assert looked.wait(60)
        return file

    monkeypatch.setattr(Disk, "open", slow)
    held: list[bool] = []

    def read() -> None:
        with hold(folder, LSN) as taken:
            held.append(taken)
            assert done.wait(60)

    reader = threading.Thread(target=read)
    with pruning(folder):
        reader.start()
        assert opened.wait(60)
        first = holders(folder)
        looked.set()
        assert len(first.dead) == 1
        wait_until(lambda: not holders(folder).dead, what="the hold's lock")
        remove(folder, first.dead)
    wait_until(lambda: held, what="the hold")
    try:
        with pruning(folder):
            found = holders(folder)
        assert [one.lsn_from for one in found.held] == [LSN]
        assert found.dead == []
    finally:
        done.set()
        reader.join()
    assert held == [True]
    assert holds_of(tmp_path) == []


def test_a_hold_waits_until_the_prune_at_work_is_over(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    order: list[str] = []

    def read() -> None:
        with hold(folder, LSN):
            order.append("held")

    with pruning(folder):
        reader = threading.Thread(target=read)
        reader.start()
        wait_until(lambda: holds_of(tmp_path), what="the hold's file, which the prune could see")
        order.append("pruned")
    reader.join()
    assert order == ["pruned", "held"]
