"""However long the journal is: what finds frames stays small, few files are open, and all entries are found."""

from __future__ import annotations

import contextlib
import errno
import gc
import shutil
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import JournalLoss, SequenceNotAvailable, StoreUnavailable
from headrace.log.files.cache import FILES_MAX, INDEX_BYTES_MAX, SegmentCache
from headrace.log.files.segments import Segments
from headrace.log.files.store import SEGMENT_FRAMES_MAX, FileStore
from headrace.runtime.disk import Disk
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.wire.frame import FIRST_POSITION
from tests.bench import Bench, append
from tests.fault.journals import segments
from tests.stores import fill

Wanted = dict[str, dict[int, bytes]]
FEEDS = [f"feed-{number}" for number in range(40)]


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Wanted]:
    """A journal of some 150 small segments and 40 feeds, and what stands in it."""
    folder = tmp_path_factory.mktemp("journal")
    store = FileStore(folder, segment_bytes=1)  # each group in a segment of its own
    wanted = fill(Bench(store), FEEDS, 110)
    store.close()
    assert len(segments(folder)) == 150
    return folder, wanted


@pytest.fixture
def bench(journal: tuple[Path, Wanted]) -> Iterator[Bench]:
    store = FileStore(journal[0], segment_bytes=1)
    yield Bench(store)
    store.close()


def open_files(folder: Path) -> list[str]:
    """The files of a journal that this process has open."""
    found = []
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # that of the listing itself
            found.append(str(link.readlink()))
    return [name for name in found if name.startswith(str(folder / "journal"))]


def look_everywhere(store: FileStore) -> int:
    """Look up every feed's frames, sequence id by sequence id, in every segment; returns how many were found."""
    found = 0
    for tail in store.tails():
        for number in range(tail.oldest, tail.next_sequence_id):
            found += len(store.places(tail.region_id, number, number, frames_max=9))
    return found


def test_reading_everywhere_keeps_few_files_open(bench: Bench, journal: tuple[Path, Wanted]) -> None:
    folder, wanted = journal
    for feed in FEEDS:
        assert bench.values(feed) == wanted[feed]
    assert bench.walked()
    assert FILES_MAX <= len(open_files(folder)) <= FILES_MAX + 1


def test_indexes_are_held_up_to_a_bound(bench: Bench, journal: tuple[Path, Wanted]) -> None:
    folder, _ = journal
    cache = SegmentCache(Disk(), index_bytes_max=2000, files_max=3)
    row = Segments(cache, folder / "journal")
    row.open(segments(folder))
    weights = set()
    for tail in bench.store.tails():
        for number in range(tail.oldest, tail.next_sequence_id):
            wanted = bench.store.places(tail.region_id, number, number, frames_max=2)
            if wanted[0].position < row.newest.first_position:
                assert row.places(tail.region_id, number, number, frames_max=2) == wanted
            weights.add(cache.indexes.weight)
            assert cache.files.weight <= 3
    assert 1000 < max(weights) <= 2000, "it is used, and never more than allowed"
    row.close()


def test_memory_of_a_long_journal_is_bounded(bench: Bench) -> None:
    assert isinstance(bench.store, FileStore)
    look_everywhere(bench.store)  # what is made once, by whomever
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert look_everywhere(bench.store)
        bench.store.segments()
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The decoded states of 150 segments and 40 feeds would take some 10 MB.
    assert after - before < 1_000_000
    assert 0 < bench.store.index_bytes() < 200_000


def test_a_segment_takes_so_many_frames_and_no_more(tmp_path: Path) -> None:
    store = FileStore(tmp_path, segment_frames_max=10)
    bench = Bench(store)
    bench.register("a")
    bench.register("b")
    for number in range(25):
        bench.ask(append("a", f"a{number}"), append("b", f"b{number}"))
    assert [len(path) for path in by_segment(store)] == [8, 10, 10, 10, 10, 2], (
        "registrations are frames, too"
    )
    bench.ask(*[append("a", f"more {number}") for number in range(12)])
    bench.append("b", "last")
    assert [len(path) for path in by_segment(store)] == [8, 10, 10, 10, 10, 2, 12, 1]
    store.close()
    reopened = FileStore(tmp_path, segment_frames_max=10)
    wanted = [f"a{number}".encode() for number in range(25)] + [
        f"more {number}".encode() for number in range(12)
    ]
    assert list(Bench(reopened).values("a").values()) == wanted
    assert [len(path) for path in by_segment(reopened)] == [8, 10, 10, 10, 10, 2, 12, 1]
    reopened.close()


def test_control_frames_count_as_well_also_after_a_restart(tmp_path: Path) -> None:
    for life in range(2):
        store = FileStore(tmp_path, segment_frames_max=10)
        bench = Bench(store)
        for number in range(15):
            bench.register("a", instance=f"i{life}-{number}")
        assert len(store.segments()) == 2 + life
        store.close()


def by_segment(store: FileStore) -> list[list[int]]:
    """The positions of the entries frames in each segment."""
    found = []
    for segment in store.segments():
        frames = store.walk(segment.first_position, bytes_max=segment.end - segment.first_position)
        found.append([frame.header.position for frame in frames if frame.header.count])
    return found


def test_all_that_is_held_of_a_full_journal_is_below_16_mb() -> None:
    """The open index may be at its limit and grow by a group, arrays keep an eighth in reserve, and each feed counts."""
    open_index = 24 * (SEGMENT_FRAMES_MAX + 10_000) * 9 // 8
    assert INDEX_BYTES_MAX + open_index < 12 << 20


def test_a_dropped_segment_says_so_and_holds_no_space(journal: tuple[Path, Wanted], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(journal[0], folder)
    store = FileStore(folder)
    region_id = min(tail.region_id for tail in store.tails() if tail.head)
    place = store.places(region_id, 1, 1, frames_max=1)[0]
    row = store._segments.row()
    held = next(segment for segment in row if segment.first_position <= place.position < segment.end)
    assert held.frames_at([place])[0].header.position == place.position
    assert store.drop_before(held.end) == held.end
    with pytest.raises(SequenceNotAvailable):
        store.read([place])
    with pytest.raises(SequenceNotAvailable, match="was dropped"):
        held.frames_at([place])  # a reader that is behind
    assert not [name for name in open_files(folder) if name.endswith("(deleted)")]
    store.close()


def test_a_reader_that_opens_a_dropped_file_keeps_nothing_of_it(journal: tuple[Path, Wanted]) -> None:
    """It may come between the drop and the removal, or before the drop has let go."""
    folder, _ = journal
    row = Segments(SegmentCache(Disk()), folder / "journal")
    row.open(segments(folder))
    gone = row.oldest
    path = row.drop_oldest()
    assert path == gone.path
    assert gone.read(gone.first_position, 4) == b"HRFR"
    assert str(path) not in open_files(folder)
    row.close()


def test_a_segment_that_can_not_be_opened_is_not_available_now(
    journal: tuple[Path, Wanted], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(journal[0], folder)
    disk = FaultyDisk()
    store = FileStore(folder, disk=disk)
    victim = segments(folder)[1]
    disk.faults.append(Fault(Step.OPEN, errno.EMFILE, suffix=victim.name))
    with pytest.raises(StoreUnavailable, match="Too many open files"):
        store.walk(int(victim.stem, 16), bytes_max=1)
    assert store.walk(int(victim.stem, 16), bytes_max=1)
    store.close()


def test_a_segment_that_somebody_took_away_is_a_loss(journal: tuple[Path, Wanted], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(journal[0], folder)
    store = FileStore(folder)
    gone = segments(folder)[1]  # its file is not held open: many are younger
    gone.unlink()
    with pytest.raises(JournalLoss, match=str(gone)):
        store.walk(int(gone.stem, 16), bytes_max=1)
    assert Bench(store).append(FEEDS[-1], "the others go on").last_lsn
    store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.walk(FIRST_POSITION, bytes_max=1)
