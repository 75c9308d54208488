"""Any flipped bit, in any file of the journal: reported with its place, never served, and nothing else vanishes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, WriterStopped
from headrace.log.damage import COSTS_NOTHING, DamageKind
from headrace.log.files.examine import examine
from headrace.log.files.store import FileStore
from headrace.testing.memory import MemoryDisk
from headrace.wire.frame import FrameKind
from tests.bench import Bench
from tests.fault.memory_journals import FOLDER, Truth, frame_at, made, read_all, walk_all
from tests.scale import SEED, scaled, sized

SEGMENTS = {"one segment": 1 << 20, "small segments": 4096}


@pytest.fixture(scope="module", params=list(SEGMENTS.values()), ids=list(SEGMENTS))
def truth(request: pytest.FixtureRequest) -> Truth:
    return made(request.param)


def places(truth: Truth, count: int, rng: random.Random) -> list[tuple[Path, int]]:
    """About ``count`` bytes of all files, evenly spread, from a random one on."""
    every = [(path, at) for path, data in sorted(truth.contents.items()) for at in range(len(data))]
    step = max(1, len(every) // count)
    return every[rng.randrange(step) :: step]


def test_sound_journal_has_no_damage(truth: Truth) -> None:
    findings = examine(FOLDER, disk=truth.disk())
    assert findings.damages == []
    assert findings.notes == []
    assert findings.entries == sum(map(len, truth.entries.values()))
    assert findings.frames == len(truth.headers)


def test_flipped_bits(truth: Truth) -> None:
    rng = random.Random(SEED)
    for path, offset in places(truth, scaled(sized(250, soak=1500)), rng):
        disk = truth.disk()
        disk.flip(path, offset, 1 << rng.randrange(8))
        check_report(truth, disk, path, offset)
        check_readers(truth, disk, path, offset)


def check_report(truth: Truth, disk: MemoryDisk, path: Path, offset: int) -> None:
    findings = examine(FOLDER, disk=disk)
    here = [damage for damage in findings.damages if damage.file == path]
    assert here, f"the flip at byte {offset} of {path} went unnoticed"
    assert here == findings.damages, "a sound file is called damaged"
    frame = frame_at(truth, path, offset)
    if frame is not None:
        for damage in here:
            if damage.kind != DamageKind.INDEX:
                assert frame.position <= damage.position < frame.end
                assert f"{damage.position:#x}" in damage.detail
                made_here = frame.kind == FrameKind.CONTROL and damage.feed is None
                assert made_here or damage.feed == truth.names[frame.region_id]


def check_readers(truth: Truth, disk: MemoryDisk, path: Path, offset: int) -> None:
    """Opening either refuses, naming the file, or everything but one frame is served, and that one never."""
    frame = frame_at(truth, path, offset)
    store, refusal = opened_or_refused(disk)
    if store is None:
        assert frame is None, f"a damaged frame must not keep the server from starting: {refusal}"
        assert str(path) in refusal, refusal
        return
    lost = set()
    if frame is not None:
        lost = {
            (truth.names[frame.region_id], number)
            for number in range(frame.first_sequence_id, frame.last_sequence_id + 1)
        }
    for feed, entries in truth.entries.items():
        found, errors = read_all(store, feed)
        missing = {number for number in entries if number not in found}
        assert found.items() <= entries.items(), "what was damaged was served"
        assert {(feed, number) for number in missing} <= lost, (
            f"entries beside the damage vanished: {missing}"
        )
        assert len(errors) == len(missing)
        for error in errors:
            assert str(path) in error.detail, error.detail
            assert frame is not None
            assert f"{frame.position:#x}" in error.detail, error.detail
    walked, ended = walk_all(store)
    wanted = [header for header in truth.headers if header.kind == FrameKind.ENTRIES]
    assert walked == wanted[: len(walked)]
    if ended is None:
        assert walked == wanted
    else:
        assert frame is not None
        assert walked == [header for header in wanted if header.end <= frame.position]
    for header in walked[:: max(1, len(walked) // 4)]:
        assert store.seek(header.global_ts) <= header.position, "a stream that begins there would miss it"
    check_writer(truth, store, frame is not None and frame.kind == FrameKind.CONTROL)
    store.close()


def opened_or_refused(disk: MemoryDisk) -> tuple[FileStore | None, str]:
    try:
        return FileStore(FOLDER, disk=disk), ""
    except HeadraceError as refusal:
        return None, refusal.detail


def check_writer(truth: Truth, store: FileStore, control: bool) -> None:
    """Appends go on where nothing that orders was hurt; else they are refused for every feed, never guessed at."""
    bench = Bench(store)
    producers = {"a": "agent-2", "b": "agent-1"}
    for feed, entries in truth.entries.items():
        try:
            appended = bench.append(feed, "more", producer=producers[feed])
        except WriterStopped:
            assert control
            assert store.alarms
        else:
            assert appended.first_sequence_id == max(entries) + 1


def test_costs_of_each_kind() -> None:
    assert {DamageKind.HEADER, DamageKind.INDEX} == COSTS_NOTHING
