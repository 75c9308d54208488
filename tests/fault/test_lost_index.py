"""A sealed segment's index that is lost or lies: rebuilt while appends go on, and checked again once it names no frame."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt
from headrace.log.files.store import FileStore
from headrace.runtime.disk import Disk, DiskFile
from headrace.wire.segment import INDEX_FOOT_SIZE, ROW, FramePlace
from tests.bench import Bench
from tests.fault.journals import opened, segments
from tests.stores import SMALL_SEGMENT, fill

WITHIN = 60.0


class WaitingDisk(Disk):
    """A disk on which whoever reads the file ``slow`` waits for ``goes_on``; ``reading`` says that somebody does."""

    def __init__(self) -> None:
        self.slow: Path | None = None
        self.reading, self.goes_on = threading.Event(), threading.Event()

    def _opened(self, path: Path, fd: int) -> DiskFile:
        return _WaitingFile(path, fd, self)


class _WaitingFile(DiskFile):
    def __init__(self, path: Path, fd: int, disk: WaitingDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def _pread(self, size: int, offset: int) -> bytes:
        if self.path == self._disk.slow:
            self._disk.reading.set()
            assert self._disk.goes_on.wait(WITHIN)
        return super()._pread(size, offset)


def index_of(path: Path) -> slice:
    """Where a sealed segment's index stands in its file."""
    data = path.read_bytes()
    rows = int.from_bytes(data[-INDEX_FOOT_SIZE + 8 : -INDEX_FOOT_SIZE + 12], "little")
    return slice(len(data) - INDEX_FOOT_SIZE - rows * ROW.size - 8, len(data))


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """The first segment of a journal of feeds a and b, which is sealed."""
    with opened(tmp_path) as bench:
        fill(bench, ["a", "b"], 24)
    return segments(tmp_path)[0]


def test_appends_go_on_while_an_index_is_rebuilt(sealed: Path, tmp_path: Path) -> None:
    whole = sealed.read_bytes()
    sealed.write_bytes(whole[: index_of(sealed).start])
    disk = WaitingDisk()
    store = FileStore(tmp_path, disk=disk, segment_bytes=SMALL_SEGMENT)
    happened: list[str] = []
    found: list[FramePlace] = []

    def read() -> None:
        found.extend(store.places(1, 1, 1, frames_max=1))
        happened.append("read")

    def append() -> None:
        Bench(store).append("a", "meanwhile")
        assert store.tails()
        assert store.segments()
        happened.append("appended")

    disk.slow = sealed
    reader, writer = threading.Thread(target=read), threading.Thread(target=append)
    reader.start()
    assert disk.reading.wait(WITHIN)
    writer.start()
    writer.join(WITHIN)
    happened.append("released")
    disk.goes_on.set()
    reader.join(WITHIN)
    writer.join(WITHIN)
    assert happened == ["appended", "released", "read"]
    assert store.read(found)[0].header.first_sequence_id == 1
    assert sealed.read_bytes() == whole, "it was stored again"
    store.close()


def test_of_many_readers_one_rebuilds(sealed: Path, tmp_path: Path) -> None:
    sealed.write_bytes(sealed.read_bytes()[: index_of(sealed).start])
    disk = WaitingDisk()
    store = FileStore(tmp_path, disk=disk, segment_bytes=SMALL_SEGMENT)
    disk.slow = sealed
    found: list[list[FramePlace]] = []
    readers = [
        threading.Thread(target=lambda: found.append(list(store.places(1, 1, 1, frames_max=1))))
        for _ in range(8)
    ]
    for reader in readers:
        reader.start()
    assert disk.reading.wait(WITHIN)
    disk.goes_on.set()
    for reader in readers:
        reader.join(WITHIN)
    assert found == [found[0]] * 8
    assert len(found[0]) == 1
    store.close()


@pytest.mark.parametrize("field", [4, 8, 16, 24], ids=["count", "first sequence id", "position", "size"])
def test_an_index_that_changes_after_it_was_checked(sealed: Path, tmp_path: Path, field: int) -> None:
    store = FileStore(tmp_path, segment_bytes=SMALL_SEGMENT)
    place = store.places(1, 1, 1, frames_max=1)[0]
    whole = sealed.read_bytes()
    data = bytearray(whole)
    data[index_of(sealed).start + 8 + field] ^= 2
    sealed.write_bytes(bytes(data))
    lying = store.places(1, 1, 9, frames_max=1)
    assert lying[:1] != [place]
    with pytest.raises(JournalCorrupt, match=r"another frame stands|are damaged"):
        store.read(lying)
    assert store.places(1, 1, 1, frames_max=1) == [place], "it was found out and made again"
    assert sealed.read_bytes() == whole
    store.close()
