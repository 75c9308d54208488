"""Journals to damage: made once, copied for each blow, compared byte by byte."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.log.files.store import FileStore
from headrace.runtime.disk import Disk
from headrace.wire.frame import FrameHeader
from headrace.wire.mark import SLOT_SIZE, Mark, decode_marks
from tests.bench import Bench
from tests.stores import SMALL_SEGMENT


@contextmanager
def opened(folder: Path, disk: Disk | None = None, segment_bytes: int = SMALL_SEGMENT) -> Iterator[Bench]:
    """Open the journal in ``folder`` for the time of a ``with``."""
    store = FileStore(folder, disk=disk, segment_bytes=segment_bytes)
    try:
        yield Bench(store)
    finally:
        store.close()


def files_of(bench: Bench) -> FileStore:
    """The bench's store, which is a file store."""
    assert isinstance(bench.store, FileStore)
    return bench.store


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below ``folder`` with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def copied(folder: Path, target: Path) -> Path:
    """Copy a journal, in place of whatever is at ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(folder, target)
    return target


def segments(folder: Path) -> list[Path]:
    """The segment files, oldest first."""
    return sorted((folder / "journal").glob("*.seg"))


def headers(bench: Bench) -> list[FrameHeader]:
    """The headers of all frames, in journal order."""
    found: list[FrameHeader] = []
    while (position := found[-1].end if found else bench.store.oldest_position()) < bench.store.end():
        found += [frame.header for frame in bench.store.walk(position, bytes_max=1 << 20)]
    return found


def read_mark(folder: Path) -> Mark:
    """The mark that stands in the folder."""
    mark = decode_marks((folder / "mark").read_bytes(), "mark")
    assert mark is not None
    return mark


def set_mark(folder: Path, end: int, global_ts: int = 0) -> None:
    """Put the mark at ``end``, as a crash of the machine would set it back."""
    page = bytearray((folder / "mark").read_bytes())
    mark = Mark(read_mark(folder).counter + 1, end, global_ts)
    page[mark.offset : mark.offset + SLOT_SIZE] = mark.encode()
    (folder / "mark").write_bytes(bytes(page))


def offset_of(path: Path, position: int) -> int:
    """Where a position stands in a segment file."""
    state_size = int.from_bytes(path.read_bytes()[16:20], "little")
    return 32 + state_size + position - int(path.stem, 16)


def flip(folder: Path, position: int, *, size: int = 1) -> None:
    """Flip bits of ``size`` bytes at a journal position."""
    path = next(path for path in reversed(segments(folder)) if int(path.stem, 16) <= position)
    data = bytearray(path.read_bytes())
    at = offset_of(path, position)
    data[at : at + size] = bytes(byte ^ 0x41 for byte in data[at : at + size])
    path.write_bytes(bytes(data))
