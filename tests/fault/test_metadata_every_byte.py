"""Any flipped bit in the file of the metadata database: reported with its file, or provably without effect."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import FormatTooNew, JournalCorrupt
from headrace.log.metadata.check import check_metadata
from headrace.log.metadata.contract import Metadata
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from tests.scale import SEED, scaled, sized

FEEDS = ("shop", "acme.orders")


class Content(NamedTuple):
    """All that a metadata database says."""

    listeners: frozenset[object]
    subscribers: frozenset[object]
    alarms: frozenset[object]

    @property
    def rows(self) -> frozenset[object]:
        return self.listeners | self.subscribers | self.alarms


def content(metadata: Metadata) -> Content:
    listeners = [row for feed in FEEDS for row in metadata.listeners(feed)]
    return Content(frozenset(listeners), frozenset(metadata.subscribers()), frozenset(metadata.alarms()))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database in which every kind of page is used: pages of rows, of an index, and free ones."""
    path = tmp_path_factory.mktemp("whole") / METADATA_NAME
    with closing(SqliteMetadata(path)) as metadata:
        for number in range(40):
            metadata.register_listener(f"listener-{number}", FEEDS[number % 2], number % 3 == 0, number)
            metadata.put_position(f"listener-{number}", FEEDS[number % 2], "i", 64, "1.1.64", number)
            metadata.begin_subscriber("anonymous", f"subscriber-{number}", str(Lsn(number, 1, 5)), number)
            metadata.raise_alarm("c", "x" * 90, number, feed=f"f{number}", agent_id=f"a{number}")
        metadata.clear_alarms("c", agent_id="a3", now_ms=99)
        metadata.raise_alarm("long", "y" * 9_000, 50)
        metadata.raise_alarm("long", "no longer", 51)
    assert check_metadata(path).problems == []
    return path


def test_flipped_bits(whole: Path, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    path, data = tmp_path / METADATA_NAME, whole.read_bytes()
    shutil.copy(whole, path)
    with closing(SqliteMetadata(path)) as metadata:
        truth = content(metadata)
    step = max(1, len(data) // scaled(sized(400, soak=1200)))
    reported = silent = 0
    for offset in range(rng.randrange(step), len(data), step):
        hurt = bytearray(data)
        hurt[offset] ^= 1 << rng.randrange(8)
        path.write_bytes(hurt)
        found = metadata_problems_or_newer(path)
        assert path.read_bytes() == hurt, "looking changes nothing"
        if found:
            reported += 1
            assert all(str(path) in problem for problem in found), found
        else:
            silent += 1
        check_server(path, truth, found, f"byte {offset}")
        path.with_name(f"{METADATA_NAME}-journal").unlink(missing_ok=True)
    # Some 18 of 100 are, whatever the seed: a bound that is nearer would be missed by chance.
    assert reported > silent / 10, (reported, silent)
    assert silent > 0, "unused bytes are there as well"


def metadata_problems_or_newer(path: Path) -> list[str]:
    try:
        return check_metadata(path).problems
    except FormatTooNew as refusal:
        return [refusal.detail]


def check_server(path: Path, truth: Content, found: list[str], where: str) -> None:
    """A server refuses the file by name, or serves what was written and knows which rows it can't."""
    metadata, refusal = opened_or_refused(path)
    if metadata is None:
        assert found, f"{where}: verify found nothing in what a server refuses: {refusal}"
        assert str(path) in refusal
        return
    with closing(metadata):
        served, damaged = content(metadata), metadata.damages.standing()
    assert served.rows <= truth.rows, f"{where}: what was damaged was served"
    assert len(truth.rows) - len(served.rows) == len(damaged), f"{where}: {damaged}"
    assert bool(found) == bool(damaged), f"{where}: verify says {found}, a server {damaged}"
    for damage in damaged:
        assert str(path) in damage.detail


def opened_or_refused(path: Path) -> tuple[SqliteMetadata | None, str]:
    try:
        return SqliteMetadata(path), ""
    except (JournalCorrupt, FormatTooNew) as refusal:
        return None, refusal.detail


def test_what_was_acknowledged_stands_in_the_one_file(tmp_path: Path) -> None:
    """Nothing is left in a file beside it, whose damaged end SQLite would pass over in silence."""
    path = tmp_path / METADATA_NAME
    with closing(SqliteMetadata(path)) as metadata:
        for number in range(5):
            metadata.begin_subscriber("anonymous", f"{number}", str(Lsn(1, 1, 1)), number)
            metadata.move_subscribers([("anonymous", f"{number}", str(Lsn(2, 1, number)))], number)
            alone = tmp_path / f"alone-{number}"
            alone.write_bytes(path.read_bytes())
            for beside in tmp_path.glob(f"{METADATA_NAME}-*"):
                assert not beside.read_bytes()[:28].strip(b"\x00"), "a rollback journal that is not void"
            with closing(SqliteMetadata(alone)) as copy:
                assert content(copy) == content(metadata)


def test_flipped_bits_in_what_is_left_of_a_rollback_journal_change_nothing(tmp_path: Path) -> None:
    path, journal = tmp_path / METADATA_NAME, tmp_path / f"{METADATA_NAME}-journal"
    with closing(SqliteMetadata(path)) as metadata:
        for number in range(60):
            metadata.begin_subscriber("anonymous", f"{number}", str(Lsn(number, 1, 1)), number)
        metadata.move_subscribers([("anonymous", f"{n}", str(Lsn(n, 1, 2))) for n in range(60)], 99)
        truth = content(metadata)
    data, left = path.read_bytes(), journal.read_bytes()
    assert len(left) > 4096
    for offset in [*range(40), *range(40, len(left), max(1, len(left) // scaled(sized(40, soak=100))))]:
        hurt = bytearray(left)
        hurt[offset] ^= 1 << offset % 8
        path.write_bytes(data)
        journal.write_bytes(hurt)
        assert check_metadata(path).problems == []
        with closing(SqliteMetadata(path)) as metadata:
            assert content(metadata) == truth


def test_transaction_that_a_crash_left_is_taken_back_by_the_server_alone(tmp_path: Path) -> None:
    path, crashed = tmp_path / "before" / METADATA_NAME, tmp_path / "crashed" / METADATA_NAME
    path.parent.mkdir()
    crashed.parent.mkdir()
    with closing(SqliteMetadata(path)) as metadata:
        for number in range(200):
            metadata.begin_subscriber("anonymous", f"{number}", str(Lsn(1, 1, 1)), number)
        truth = content(metadata)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE subscriber SET seen_at_ms = 77, crc = 0")
        for name in (METADATA_NAME, f"{METADATA_NAME}-journal"):
            shutil.copy(path.with_name(name), crashed.with_name(name))
        writer.execute("ROLLBACK")
    before = crashed.read_bytes()
    assert before != path.read_bytes(), "half of the transaction stands in the file"
    assert check_metadata(crashed).problems == []
    assert crashed.read_bytes() == before
    with closing(SqliteMetadata(crashed)) as metadata:
        assert content(metadata) == truth
