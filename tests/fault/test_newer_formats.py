"""A data folder of a newer Headrace: refused by name, before a single byte is touched (design rule 8)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import google_crc32c
import pytest

from headrace.errors import FormatTooNew
from headrace.log.files.store import FileStore
from headrace.log.log import Log
from headrace.log.metadata.rows import row_checksum
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.wire.frame import HEADER_SIZE, parse_header
from headrace.wire.mark import SLOT_SIZE
from headrace.wire.segment import INDEX_FOOT_SIZE, START_SIZE
from headrace.wire.versions import METADATA
from tests.fault.journals import headers, offset_of, opened, read_mark, segments, set_mark, snapshot
from tests.stores import fill


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Several segments, an old mark, and garbage at the end: enough to be mended, were it opened."""
    folder = tmp_path / "data"
    with opened(folder) as bench:
        fill(bench, ["a", "b"], 30)
        last = headers(bench)[-1]
    with closing(SqliteMetadata(folder / METADATA_NAME)):
        pass
    set_mark(folder, last.position, last.global_ts)
    with segments(folder)[-1].open("ab") as file:
        file.write(b"torn")
    return folder


def make_newer(path: Path, at: int, size: int, *, version: int = 7) -> None:
    """Raise readable-from in the record of ``size`` bytes at ``at``, with a checksum that fits."""
    data = bytearray(path.read_bytes())
    record = data[at : at + size]
    record[4:6] = bytes((version, version))
    record[-4:] = int(google_crc32c.value(bytes(record[:-4]))).to_bytes(4, "little")
    data[at : at + size] = record
    path.write_bytes(bytes(data))


def refused(folder: Path, named: str) -> None:
    before = snapshot(folder)
    for opener in (FileStore, Log.open):
        with pytest.raises(FormatTooNew, match=named) as refusal:
            opener(folder)
        assert "version 7" in refusal.value.detail
    assert snapshot(folder) == before


@pytest.mark.parametrize("number", [0, 1, -1])
def test_segment(journal: Path, number: int) -> None:
    path = segments(journal)[number]
    make_newer(path, 0, START_SIZE)
    refused(journal, path.name)


@pytest.mark.parametrize("number", [0, 1])
def test_index(journal: Path, number: int) -> None:
    path = segments(journal)[number]
    make_newer(path, path.stat().st_size - INDEX_FOOT_SIZE, INDEX_FOOT_SIZE)
    refused(journal, path.name)


@pytest.mark.parametrize("slot", [0, 1])
def test_mark(journal: Path, slot: int) -> None:
    make_newer(journal / "mark", slot * SLOT_SIZE, SLOT_SIZE)
    refused(journal, "mark")


@pytest.mark.parametrize("above", [False, True], ids=["below the mark", "above the mark"])
def test_frame_of_the_last_segment(journal: Path, above: bool) -> None:
    path = segments(journal)[-1]
    first = int(path.stem, 16)
    position = read_mark(journal).end if above else first
    make_newer(path, offset_of(path, position), HEADER_SIZE)
    refused(journal, f"frame at position {position:#x}")


def test_frame_in_the_torn_end(journal: Path) -> None:
    """Behind something damaged, which this version would have set aside."""
    path = segments(journal)[-1]
    at = offset_of(path, read_mark(journal).end)
    data = path.read_bytes()
    header = parse_header(data, at)
    assert header is not None
    moved = header._replace(position=header.position + 1).encode()
    path.write_bytes(data[:at] + b"x" + moved + data[at + HEADER_SIZE :])
    make_newer(path, at + 1, HEADER_SIZE)
    refused(journal, "frame at position")


def test_value_that_looks_like_a_newer_frame_stops_nobody(journal: Path) -> None:
    """In the torn end, at a place where no frame of that position can stand."""
    path = segments(journal)[-1]
    at = offset_of(path, read_mark(journal).end)
    make_newer(path, at, HEADER_SIZE)
    data = path.read_bytes()
    path.write_bytes(data[:at] + b"x" + data[at:])
    FileStore(journal).close()


def test_metadata(journal: Path) -> None:
    with closing(sqlite3.connect(journal / METADATA_NAME)) as database, database:
        newer = METADATA.written_as + 1
        database.execute("UPDATE format SET written_as = ?, readable_from = ?", (newer, newer))
    before = snapshot(journal)
    with pytest.raises(FormatTooNew, match=METADATA_NAME):
        Log.open(journal)
    assert snapshot(journal) == before
    with pytest.raises(FormatTooNew, match=METADATA_NAME):
        SqliteMetadata(journal / METADATA_NAME)


def test_newer_writer_that_this_version_can_read(journal: Path) -> None:
    with closing(sqlite3.connect(journal / METADATA_NAME)) as database, database:
        readable_from = METADATA.readable_from
        row = (9, readable_from, row_checksum("format", (9, readable_from)))
        database.execute("UPDATE format SET (written_as, readable_from, crc) = (?, ?, ?)", row)
    log = Log.open(journal)
    assert [tail.name for tail in log.feeds()] == ["a", "b"]
