"""What a rebuilt data folder takes on its volume is known, and covered, before anything is written."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.backup.rebuilding.outcome import Rebuilt
from headrace.backup.rebuilding.rebuild import rebuild
from headrace.backup.rebuilding.room import METADATA_BYTES
from headrace.errors import StoreUnavailable
from headrace.log.requests import Append
from headrace.runtime.disk import Disk
from headrace.wire.entry import digest
from tests.bench import AGENT, Bench, half
from tests.rebuilding import Backup, archive, means, opened, plan_of, rebuilt
from tests.stores import SMALL_SEGMENT


class Volume(Disk):
    """A volume with so many bytes free. ``written``: whether a file was begun there."""

    def __init__(self, free: int) -> None:
        super().__init__()
        self.free, self.written = free, False

    def free_bytes(self, folder: Path) -> int:
        return self.free

    def write_whole(self, path: Path, data: bytes) -> None:
        self.written = True
        super().write_whole(path, data)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "server") as journal:
        yield journal


def fill(bench: Bench, appends: int, entries: int) -> None:
    """Small entries, each the end of a source transaction."""
    bench.register("f")
    for number in range(appends):
        halves = [half("", tx_last=True, source_tx=f"{number}-{at}".encode()) for at in range(entries)]
        bench.send(Append("f", AGENT, halves, digest(halves), transaction_ends=tuple(range(entries))))


def size_of(folder: Path) -> int:
    """Bytes of all files of a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def on_volume(folder: Path, data_dir: Path, free: int) -> Rebuilt:
    """Rebuild on a volume with so many bytes free; nothing is begun there if that is too little."""
    found, volume = archive(folder), Volume(free)
    try:
        return rebuild(plan_of(found), found, data_dir, means=replace(means(), disk=volume))
    except StoreUnavailable:
        assert not volume.written
        raise


def needed_by(folder: Path, data_dir: Path) -> int:
    """What the refusal on a full volume says is needed."""
    with pytest.raises(StoreUnavailable, match="0 bytes are free") as refused:
        on_volume(folder, data_dir, 0)
    found = re.search(r"takes up to ([\d,]+)", refused.value.detail)
    assert found is not None
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(("appends", "entries"), [(40, 1), (2, 20)])
def test_all_that_is_written_is_covered(appends: int, entries: int, bench: Bench, tmp_path: Path) -> None:
    """Whatever the archive's entries are; the metadata database has room of its own."""
    fill(bench, appends, entries)
    backup = Backup(tmp_path / "archive")
    backup.take(bench, sizes=(7, 20))
    needed = needed_by(backup.folder, tmp_path / "new")
    made = rebuilt(backup.folder, tmp_path / "new")
    journal = size_of(tmp_path / "new" / "journal")
    assert journal > made.frame_bytes
    assert journal + METADATA_BYTES < needed
    assert size_of(tmp_path / "new") < needed
    # No more is asked for than what is written and some blocks of each file.
    assert needed < 2 * journal + METADATA_BYTES + 50 * SMALL_SEGMENT
    on_volume(backup.folder, tmp_path / "exact", needed)
    with pytest.raises(StoreUnavailable, match=f"{needed - 1:,} bytes are free"):
        on_volume(backup.folder, tmp_path / "short", needed - 1)
    assert not (tmp_path / "short").exists()


def test_journal_of_small_appends_is_larger_than_its_segments(bench: Bench, tmp_path: Path) -> None:
    """The archive's size says little of the room that is needed."""
    fill(bench, 40, 1)
    backup = Backup(tmp_path / "archive")
    manifests = backup.take(bench, sizes=(15,))
    archived = sum(one.size for one in manifests)
    rebuilt(backup.folder, tmp_path / "new")
    assert size_of(tmp_path / "new" / "journal") > 2 * archived
    with pytest.raises(StoreUnavailable, match="bytes are free"):
        on_volume(backup.folder, tmp_path / "short", METADATA_BYTES + 2 * archived)
