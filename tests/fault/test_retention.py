"""Dropping and sealing on a disk that fails or a machine that goes down at any step: no hole, no entry served twice over."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from headrace.errors import SequenceNotAvailable, StoreUnavailable, WriterStopped
from headrace.log.files.store import FileStore
from headrace.log.history import frames_of_range
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from tests.bench import Bench
from tests.scale import SEED, scaled, sized
from tests.stores import fill

FEEDS = ["a", "b"]
SEGMENT_BYTES = 1500
FOLDER = Path("/data")


def opened(disk: MemoryDisk) -> Bench:
    return Bench(FileStore(FOLDER, disk=disk, segment_bytes=SEGMENT_BYTES))


def whole(bench: Bench, wanted: dict[str, dict[int, bytes]]) -> None:
    """Everything from each feed's oldest entry on is there, byte for byte."""
    for feed in FEEDS:
        tail = bench.tail(feed)
        assert bench.values(feed) == {n: v for n, v in wanted[feed].items() if n >= tail.oldest}
        assert tail.head == max(wanted[feed])


@pytest.mark.parametrize("kind", list(Crash))
@pytest.mark.parametrize("seed", range(scaled(sized(2, soak=4))))
def test_a_crash_at_any_step_of_roll_and_drop(kind: Crash, seed: int) -> None:
    """The journal opens, holds all that was not to be dropped, and can be dropped again."""
    crash_at = 0
    while True:
        disk = MemoryDisk(random.Random(SEED + seed * 1000 + crash_at))
        bench = opened(disk)
        wanted = fill(bench, FEEDS, 30, seed=seed)
        position = bench.store.segments()[-2].first_position
        kept = {feed: bench.tail(feed) for feed in FEEDS}
        disk.crash_at = disk.steps + crash_at
        try:
            bench.store.roll()
            bench.store.drop_before(position)
            break  # past the last step
        except PowerCut:
            disk = disk.crash(kind)
        again = Bench(FileStore(FOLDER, disk=disk, segment_bytes=SEGMENT_BYTES), bench.clock)
        assert again.store.oldest_position() <= position, (kind, seed, crash_at)
        whole(again, wanted)
        again.store.drop_before(position)
        assert again.store.oldest_position() == position
        whole(again, wanted)
        for feed in FEEDS:
            tail = again.tail(feed)
            assert (tail.next_sequence_id, tail.newest, tail.producers) == (
                kept[feed].next_sequence_id, kept[feed].newest, kept[feed].producers,
            )  # fmt: skip
            wanted[feed][tail.next_sequence_id] = b"next"
            again.append(feed, "next")
        whole(again, wanted)
        again.store.close()
        crash_at += 1
    assert crash_at > 10, "roll and drop take many steps"


def test_what_can_not_be_removed_leaves_no_hole(tmp_path: Path) -> None:
    """A file that stays keeps all younger ones, or the journal would not open again; nothing of it is served."""
    disk = FaultyDisk()
    bench = Bench(FileStore(tmp_path, disk=disk, segment_bytes=SEGMENT_BYTES))
    wanted = fill(bench, FEEDS, 40)
    files = sorted(path.name for path in (tmp_path / "journal").iterdir())
    disk.faults.append(Fault(Step.REMOVE, errno.EACCES, times=2))
    for position in (bench.store.segments()[3].first_position, bench.store.segments()[4].first_position):
        with pytest.raises(StoreUnavailable):
            bench.store.drop_before(position)
        assert sorted(path.name for path in (tmp_path / "journal").iterdir()) == files
    tail = next(tail for tail in bench.store.tails() if tail.dropped_sequence_id)
    with pytest.raises(SequenceNotAvailable):
        frames_of_range(bench.store, tail, 1, 1, entries_max=1, bytes_max=1)
    assert bench.append(tail.name, "more").first_sequence_id == tail.next_sequence_id, "appends go on"
    wanted[tail.name][tail.next_sequence_id] = b"more"
    position = bench.store.segments()[4].first_position
    assert bench.store.drop_before(position) == position
    assert not {path.name for path in (tmp_path / "journal").iterdir()} & set(files[:4])
    bench.store.close()
    bench = Bench(FileStore(tmp_path, segment_bytes=SEGMENT_BYTES), bench.clock)
    assert bench.store.oldest_position() == position
    whole(bench, wanted)
    bench.store.close()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(Step.WRITE, errno.ENOSPC, suffix=".seg"), StoreUnavailable),
        (Fault(Step.SYNC, errno.EIO, suffix=".seg"), WriterStopped),
        (Fault(Step.RENAME, errno.EIO, suffix=".seg"), WriterStopped),
    ],
    ids=["full", "sync", "rename"],
)
def test_a_seal_that_fails_loses_nothing(tmp_path: Path, fault: Fault, kind: type[Exception]) -> None:
    disk = FaultyDisk()
    bench = Bench(FileStore(tmp_path, disk=disk, segment_bytes=1 << 20))
    wanted = fill(bench, FEEDS, 10)
    disk.faults.append(fault)
    with pytest.raises(kind):
        bench.store.roll()
    whole(bench, wanted)
    assert (bench.store.not_writable() is None) is (kind is StoreUnavailable)
    bench.store.close()
    bench = Bench(FileStore(tmp_path, segment_bytes=1 << 20), bench.clock)
    whole(bench, wanted)
    bench.store.roll()
    whole(bench, wanted)
    bench.store.close()
