"""A mark whose sync failed is on no disk, whatever the next process reads of it: a new segment must not rest on that."""

from __future__ import annotations

import random

import pytest

from headrace.errors import WriterStopped
from headrace.log.files.store import FileStore
from headrace.testing.disk import Fault, Step
from headrace.testing.memory import Crash, MemoryDisk
from headrace.wire.mark import SLOT_SIZE, decode_marks
from tests.bench import Bench
from tests.fault.memory_journals import FOLDER

MARK = FOLDER / "mark"


def test_a_segment_begun_after_a_failed_sync_of_the_mark_survives_a_power_failure() -> None:
    for seed in range(40):
        disk = MemoryDisk(random.Random(seed))
        bench = Bench(FileStore(FOLDER, disk=disk))
        bench.register("a")
        bench.append("a", "first")
        disk.faults.append(Fault(Step.SYNC, suffix="mark"))
        with pytest.raises(WriterStopped):
            bench.store.roll()
        bench.store.close()
        store = FileStore(FOLDER, disk=disk)
        store.roll()
        disk = disk.crash(Crash.POWER)
        bench = Bench(FileStore(FOLDER, disk=disk))
        assert bench.values("a") == {1: b"first"}, f"seed {seed}"


def test_both_copies_of_the_mark_name_where_a_new_segment_begins() -> None:
    """So one damaged copy does not set the end back below the newest segment."""
    disk = MemoryDisk()
    bench = Bench(FileStore(FOLDER, disk=disk))
    bench.register("a")
    bench.store.roll()
    page = disk.bytes_of(MARK)
    ends = []
    for damaged in (0, SLOT_SIZE):
        copy = bytearray(page)
        copy[damaged] ^= 1
        mark = decode_marks(bytes(copy), "mark")
        assert mark is not None
        ends.append(mark.end)
    assert ends == [bench.store.end()] * 2
