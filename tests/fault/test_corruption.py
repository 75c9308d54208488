"""Damage below the mark is reported and never cut: who is hit stops there, all others go on (design rule 4)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt, JournalLoss, WriterStopped
from headrace.log.files.store import FileStore
from headrace.log.history import frames_of_range
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.wire.frame import FIRST_POSITION, HEADER_SIZE, FrameHeader
from headrace.wire.segment import INDEX_FOOT_SIZE
from tests.bench import Bench, append, expecting, stored_entries
from tests.fault.journals import (
    copied,
    files_of,
    flip,
    headers,
    offset_of,
    opened,
    segments,
    set_mark,
    snapshot,
)
from tests.stores import SMALL_SEGMENT, fill

ALL = 1 << 30
ONE_SEGMENT = 1 << 20


@pytest.fixture(params=[ONE_SEGMENT, SMALL_SEGMENT], ids=["open segment", "sealed segment"])
def segment_bytes(request: pytest.FixtureRequest) -> int:
    size: int = request.param
    return size


class Journal:
    """A journal whose third entries frame of feed ``a`` is the one to damage."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self.folder, self.segment_bytes = folder, segment_bytes
        with opened(folder, segment_bytes=segment_bytes) as bench:
            self.wanted = fill(bench, ["a", "b"], 24)
            self.headers = headers(bench)
            self.end = bench.store.end()
        self.victim = [header for header in self.headers if header.region_id == 1 and header.count][2]

    def open(self) -> FileStore:
        return FileStore(self.folder, segment_bytes=self.segment_bytes)


@pytest.fixture
def journal(tmp_path: Path, segment_bytes: int) -> Journal:
    return Journal(tmp_path / "made", segment_bytes)


def read_until_damage(bench: Bench, feed: str) -> dict[int, bytes]:
    """What a reader of the feed gets, until the journal says that it is corrupt."""
    tail = bench.tail(feed)
    last = tail.oldest - 1
    try:
        while last < tail.head:
            frames = frames_of_range(bench.store, tail, last + 1, tail.head, entries_max=1000, bytes_max=ALL)
            last = frames[-1].header.last_sequence_id
    except JournalCorrupt:
        return bench.values(feed, tail.oldest, last)
    raise AssertionError("the damage went unnoticed")


def walk_until_damage(bench: Bench) -> list[FrameHeader]:
    found: list[FrameHeader] = []
    try:
        while (position := found[-1].end if found else FIRST_POSITION) < bench.store.end():
            found += [frame.header for frame in bench.store.walk(position, bytes_max=ALL)]
    except JournalCorrupt:
        return found
    raise AssertionError("the damage went unnoticed")


def check_readers(journal: Journal, bench: Bench) -> None:
    """Feed a stops before the victim and goes on after it; feed b is whole; the walk stops at the victim."""
    victim, wanted = journal.victim, journal.wanted["a"]
    before = {number: value for number, value in wanted.items() if number < victim.first_sequence_id}
    assert read_until_damage(bench, "a") == before
    after = victim.last_sequence_id + 1
    assert bench.values("a", after) == {number: value for number, value in wanted.items() if number >= after}
    assert bench.values("b") == journal.wanted["b"]
    assert walk_until_damage(bench) == [
        header for header in journal.headers if header.position < victim.position
    ]


@pytest.mark.parametrize("at", [0, 40, -1], ids=["area", "body", "lengths"])
def test_damaged_payload_stops_readers_of_its_feed_only(journal: Journal, at: int) -> None:
    victim = journal.victim
    flip(journal.folder, victim.position + HEADER_SIZE + (at if at >= 0 else victim.payload_size + at))
    before = snapshot(journal.folder)
    store = journal.open()
    bench = Bench(store)
    check_readers(journal, bench)
    assert snapshot(journal.folder) == before, "what is damaged below the mark is never changed"
    assert store.not_writable() is None
    alarmed = [text for text in store.alarms if f"{victim.position:#x}" in text and "region 1" in text]
    assert len(alarmed) == (1 if journal.segment_bytes == ONE_SEGMENT else 0), (
        "the last segment is read at opening"
    )
    assert bench.append("a", "next").first_sequence_id == max(journal.wanted["a"]) + 1
    assert bench.append("b", "next").first_sequence_id == max(journal.wanted["b"]) + 1
    store.close()


def test_damage_report_names_position_feed_and_range(journal: Journal) -> None:
    victim = journal.victim
    flip(journal.folder, victim.position + HEADER_SIZE)
    store = journal.open()
    (place,) = store.places(1, victim.first_sequence_id, victim.first_sequence_id, frames_max=1)
    named = f"{victim.position:#x} .region 1, sequence ids {victim.first_sequence_id} to {victim.last_sequence_id}"
    with pytest.raises(JournalCorrupt, match=named):
        store.read([place])
    store.close()


def test_retry_over_damaged_entries_is_no_mismatch(journal: Journal) -> None:
    """What can't be read can be called neither equal nor different."""
    victim = journal.victim
    flip(journal.folder, victim.position + HEADER_SIZE)
    with opened(journal.folder, segment_bytes=journal.segment_bytes) as bench:
        values = [journal.wanted["a"][number] for number in range(1, victim.last_sequence_id + 1)]
        retry, other = bench.ask(expecting("a", 1, *values), append("b", "goes on"))
        assert isinstance(retry, JournalCorrupt)
        assert not isinstance(other, Exception)
        with pytest.raises(JournalCorrupt):
            stored_entries(bench.store, bench.tail("a"), 1, victim.last_sequence_id)


def test_first_header_damaged_is_served_by_the_second(journal: Journal) -> None:
    for header in journal.headers:
        flip(journal.folder, header.position + 20)
    with opened(journal.folder, segment_bytes=journal.segment_bytes) as bench:
        assert {feed: bench.values(feed) for feed in "ab"} == journal.wanted
        assert headers(bench) == journal.headers
        assert bench.store.not_writable() is None
        assert bench.tail("a").producers["agent-1"].source_position
        assert bench.append("a", "next").first_sequence_id == max(journal.wanted["a"]) + 1


def test_second_header_damaged_changes_nothing(journal: Journal) -> None:
    for header in journal.headers:
        flip(journal.folder, header.end - HEADER_SIZE + 20)
    with opened(journal.folder, segment_bytes=journal.segment_bytes) as bench:
        assert {feed: bench.values(feed) for feed in "ab"} == journal.wanted
        assert files_of(bench).alarms == []


def damage_both(journal: Journal, header: FrameHeader) -> None:
    flip(journal.folder, header.position + 20)
    flip(journal.folder, header.end - HEADER_SIZE + 20)


def test_both_headers_damaged(journal: Journal) -> None:
    """In the open segment nobody can say what was lost, so no append is judged; readers go on all the same."""
    damage_both(journal, journal.victim)
    before = snapshot(journal.folder)
    store = journal.open()
    bench = Bench(store)
    check_readers(journal, bench)
    if journal.segment_bytes == ONE_SEGMENT:
        reason = f"both headers of the frame at position {journal.victim.position:#x} are damaged"
        assert reason in (store.not_writable() or "")
        assert any(reason in alarm for alarm in store.alarms)
        for feed in "ab":
            with pytest.raises(WriterStopped, match="both headers"):
                bench.append(feed, "x")
        assert snapshot(journal.folder) == before
    else:
        assert store.not_writable() is None
        assert bench.append("a", "x").first_sequence_id == max(journal.wanted["a"]) + 1
    store.close()


def test_both_headers_damaged_and_the_index_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "made", SMALL_SEGMENT)
    damage_both(journal, journal.victim)
    path = next(
        path for path in reversed(segments(journal.folder)) if int(path.stem, 16) <= journal.victim.position
    )
    path.write_bytes(path.read_bytes()[:-INDEX_FOOT_SIZE])
    before = snapshot(journal.folder)
    with opened(journal.folder) as bench:
        check_readers(journal, bench)
    assert snapshot(journal.folder) == before, "an index with a hole is not stored"


def test_damaged_control_frame_lets_nobody_append(tmp_path: Path) -> None:
    """What it changed may have fenced somebody."""
    with opened(tmp_path, segment_bytes=ONE_SEGMENT) as bench:
        bench.register("a")
        bench.append("a", "one")
        bench.register("a", "agent-2", takeover=True)
        control = headers(bench)[-1]
        bench.append("a", "two", producer="agent-2")
    flip(tmp_path, control.position + HEADER_SIZE)
    with opened(tmp_path) as bench:
        assert "control frame" in (bench.store.not_writable() or "")
        with pytest.raises(WriterStopped):
            bench.append("a", "three")
        assert bench.values("a") == {1: b"one", 2: b"two"}


# -- indexes and segments ---------------------------------------------------------------------------------------------


def sealed(folder: Path) -> Iterator[tuple[Path, int]]:
    """Each sealed segment and the offset at which its index begins."""
    paths = segments(folder)
    for path, later in pairwise(paths):
        yield path, offset_of(path, int(later.stem, 16))


@pytest.mark.parametrize("blow", ["lost", "cut", "head", "row", "footer", "garbage behind"])
def test_lost_or_damaged_index_is_rebuilt(tmp_path: Path, blow: str) -> None:
    journal = Journal(tmp_path / "made", SMALL_SEGMENT)
    whole = snapshot(journal.folder)
    for path, index in sealed(journal.folder):
        data = bytearray(path.read_bytes())
        if blow == "lost":
            del data[index:]
        elif blow == "cut":
            del data[-5:]
        elif blow == "garbage behind":
            data += b"x"
        else:
            data[{"head": index + 4, "row": index + 8 + 12, "footer": len(data) - 3}[blow]] ^= 1
        path.write_bytes(bytes(data))
    for _ in range(2):
        with opened(journal.folder) as bench:
            assert {feed: bench.values(feed) for feed in "ab"} == journal.wanted
            assert headers(bench) == journal.headers
        assert snapshot(journal.folder) == whole, "it is stored again, as it was"


def test_index_that_can_not_be_stored_serves_all_the_same(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "made", SMALL_SEGMENT)
    for path, index in sealed(journal.folder):
        path.write_bytes(path.read_bytes()[:index])
    disk = FaultyDisk(Fault(Step.WRITE, number=28, times=None, suffix=".seg"))
    with opened(journal.folder, disk) as bench:
        assert {feed: bench.values(feed) for feed in "ab"} == journal.wanted


def test_crash_between_seal_and_new_segment(tmp_path: Path) -> None:
    """The last segment is sealed, and the one after it was never made."""
    journal = Journal(tmp_path / "made", SMALL_SEGMENT)
    newest = segments(journal.folder)[-1]
    end = int(newest.stem, 16)
    newest.unlink()
    (journal.folder / "journal" / f"{end:016x}.seg.tmp").write_bytes(b"half made")
    set_mark(journal.folder, end, journal.headers[-1].global_ts)
    with opened(journal.folder) as bench:
        left = [header for header in journal.headers if header.end <= end]
        assert headers(bench) == left
        assert files_of(bench).alarms == []
        head = bench.tail("b").head
        assert bench.append("b", "x" * SMALL_SEGMENT).first_sequence_id == head + 1
    assert not list(journal.folder.glob("torn-*"))
    assert not list(journal.folder.glob("journal/*.tmp"))
    with opened(journal.folder) as bench:
        assert headers(bench)[: len(left)] == left
        assert bench.values("b", head + 1) == {head + 1: b"x" * SMALL_SEGMENT}


def refuses(folder: Path, kind: type[Exception], match: str) -> None:
    before = snapshot(folder)
    with pytest.raises(kind, match=match):
        FileStore(folder, segment_bytes=SMALL_SEGMENT)
    assert snapshot(folder) == before


def test_segments_that_do_not_join(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "made", SMALL_SEGMENT)
    paths = segments(journal.folder)
    assert len(paths) >= 4
    for number, kind, match in ((-1, JournalLoss, "acknowledged"), (1, JournalLoss, "gap")):
        folder = copied(journal.folder, tmp_path / "gap")
        segments(folder)[number].unlink()
        refuses(folder, kind, match)
    folder = copied(journal.folder, tmp_path / "cut")
    segments(folder)[1].write_bytes(paths[1].read_bytes()[: offset_of(paths[2], int(paths[2].stem, 16)) + 9])
    refuses(folder, JournalLoss, "gap")
    folder = copied(journal.folder, tmp_path / "renamed")
    segments(folder)[1].rename(folder / "journal" / f"{int(paths[1].stem, 16) + 1:016x}.seg")
    refuses(folder, JournalCorrupt, "its name must be")
    folder = copied(journal.folder, tmp_path / "strange")
    (folder / "journal" / "notes.seg").write_bytes(b"x")
    refuses(folder, JournalCorrupt, r"notes\.seg")


@pytest.mark.parametrize("number", [0, 1, -1])
def test_damaged_segment_start(tmp_path: Path, number: int) -> None:
    journal = Journal(tmp_path / "made", SMALL_SEGMENT)
    path = segments(journal.folder)[number]
    for at in (0, 9, 40):
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(bytes(data))
        refuses(journal.folder, JournalCorrupt, path.name)
        data[at] ^= 1
        path.write_bytes(bytes(data))
