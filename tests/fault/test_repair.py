"""``log repair`` loses what was damaged and nothing else, its readers find out, and a crash in the middle does no harm."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import DataFolderLocked, JournalCorrupt, SequenceLost, Usage
from headrace.log.damage import DamageKind
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode, Plan
from headrace.log.files.repair import Repair
from headrace.log.files.store import FileStore
from headrace.server.streams.walking import find_start, read_on
from headrace.testing.clock import ManualClock
from headrace.testing.memory import Crash, MemoryDisk, PowerCut
from headrace.wire.frame import HEADER_SIZE, FrameHeader, FrameKind
from tests.bench import Bench
from tests.fault.memory_journals import FOLDER, Truth, made, read_all, walk_all
from tests.scale import SEED, scaled, sized

SEGMENTS = {"one segment": 1 << 20, "small segments": 4096}


@pytest.fixture(scope="module", params=list(SEGMENTS.values()), ids=list(SEGMENTS))
def truth(request: pytest.FixtureRequest) -> Truth:
    return made(request.param)


def place(truth: Truth, position: int) -> tuple[Path, int]:
    """The file and the offset of a journal position."""
    paths = sorted(
        path for path in truth.contents if path.suffix == ".seg" and int(path.stem, 16) <= position
    )
    start = 32 + int.from_bytes(truth.contents[paths[-1]][16:20], "little")
    return paths[-1], start + position - int(paths[-1].stem, 16)


def hurt(truth: Truth, disk: MemoryDisk, header: FrameHeader, *, hole: bool = False) -> None:
    """Damage a frame's payload, or both its headers."""
    at = [header.position + 20, header.end - HEADER_SIZE + 20] if hole else [header.position + HEADER_SIZE]
    for position in at:
        disk.flip(*place(truth, position), mask=0x41)


def repair(disk: MemoryDisk, mode: Mode) -> Plan:
    """Repair with a clock of its own; what is left must be nothing."""
    with closing(Repair(FOLDER, disk=disk, clock=ManualClock())) as mender:
        findings = mender.examine()
        with closing(findings):
            plan = mender.plan(findings, mode)
            mender.apply(plan)
    with closing(examine(FOLDER, disk=disk)) as after:
        assert after.damages == []
    return plan


def check_skipped(truth: Truth, disk: MemoryDisk, victims: list[FrameHeader]) -> None:
    """Exactly the victims' entries are gone; their readers are told; all feeds take appends."""
    store = FileStore(FOLDER, disk=disk)
    assert store.alarms == []
    assert store.not_writable() is None
    bench = Bench(store)
    for feed, entries in truth.entries.items():
        own = [
            victim
            for victim in victims
            if truth.names[victim.region_id] == feed and victim.kind == FrameKind.ENTRIES
        ]
        gone = {
            number
            for victim in own
            for number in range(victim.first_sequence_id, victim.last_sequence_id + 1)
        }
        tail = bench.tail(feed)
        behind = max(entries) in gone and tail.head < max(entries)  # nobody can say how many there were
        found, errors = read_all(store, feed)
        assert found == {number: value for number, value in entries.items() if number not in gone}
        assert behind or {type(error) for error in errors} == ({SequenceLost} if gone else set())
        assert behind or len(errors) == len(gone)
        if gone:
            assert tail.incarnation != truth.incarnations[feed]
        head = tail.head
        bench.register(feed, f"new-{feed}", takeover=True)
        assert bench.append(feed, "goes on", producer=f"new-{feed}").first_sequence_id == head + 1
    lost = [victim for victim in victims if victim.kind == FrameKind.ENTRIES]
    check_stream(store, bool(lost))
    store.close()


def check_stream(store: FileStore, lossy: bool) -> None:
    """A stream over all feeds stops at what was lost, and is told from which LSN and position it can go on."""
    walked, error = walk_all(store)
    seen = list(walked)
    assert isinstance(error, SequenceLost) == lossy
    while error is not None:
        assert isinstance(error, SequenceLost)
        resume = int(error.members["resume-position"])
        rest: list[FrameHeader] = []
        error = None
        while resume < store.end():
            try:
                frames = store.walk(resume, bytes_max=1 << 20)
            except SequenceLost as again:
                error = again
                break
            rest += [frame.header for frame in frames if frame.header.kind == FrameKind.ENTRIES]
            resume = frames[-1].header.end
        seen += rest
    lsns = [header.lsn(0) for header in seen]
    assert lsns == sorted(set(lsns))
    for header in seen:
        assert store.seek(header.global_ts) <= header.position


def test_stream_that_meets_a_lost_range_is_told_where_to_go_on(truth: Truth) -> None:
    frames = [header for header in truth.headers if header.kind == FrameKind.ENTRIES]
    victim, following = frames[3], frames[4]
    disk = truth.disk()
    hurt(truth, disk, victim)
    repair(disk, Mode.SKIP)
    with closing(FileStore(FOLDER, disk=disk)) as store:
        with pytest.raises(SequenceLost) as told:
            read_on(store, victim.position, frames[2].lsn(0))
        assert told.value.members["resume-lsn"] == str(following.lsn(0))
        assert find_start(store, following.lsn(0)).position <= following.position
        assert str(following.lsn(0)) in told.value.detail


@pytest.mark.parametrize("hole", [False, True], ids=["payload", "both headers"])
def test_skip_loses_the_damaged_frame_only(truth: Truth, hole: bool) -> None:
    for victim in truth.headers:
        if victim.kind == FrameKind.CONTROL and hole:
            continue
        disk = truth.disk()
        hurt(truth, disk, victim, hole=hole)
        kept = disk.contents()
        plan = repair(disk, Mode.SKIP)
        path, offset = place(truth, victim.position)
        saved = disk.bytes_of(FOLDER / f"removed-{victim.position:016x}.bin")
        assert saved == kept[path][offset : offset + victim.size], "what was removed is kept"
        if victim.kind == FrameKind.ENTRIES and not hole:
            assert [
                (gap.first_sequence_id, gap.last_sequence_id) for gaps in plan.lost.values() for gap in gaps
            ] == [(victim.first_sequence_id, victim.last_sequence_id)]
        check_skipped(truth, disk, [victim])


def test_damaged_control_frame_fences_whoever_it_might_have_fenced(truth: Truth) -> None:
    takeover = [header for header in truth.headers if header.kind == FrameKind.CONTROL][-1]
    disk = truth.disk()
    hurt(truth, disk, takeover)
    repair(disk, Mode.SKIP)
    with closing(FileStore(FOLDER, disk=disk)) as store:
        tail = Bench(store).tail("a")
        later = [
            path
            for path in truth.contents
            if path.suffix == ".seg" and int(path.stem, 16) > takeover.position
        ]
        if later:  # whose start says what it changed
            assert (tail.owner, tail.epoch, tail.instance) == ("agent-2", 2, "i-2")
        else:
            assert tail.epoch > 2
            assert tail.instance != "i-2"


def test_cut_ends_before_the_damage(truth: Truth) -> None:
    for victim in truth.headers[3:]:
        disk = truth.disk()
        hurt(truth, disk, victim)
        repair(disk, Mode.CUT)
        store = FileStore(FOLDER, disk=disk)
        bench = Bench(store)
        for feed, entries in truth.entries.items():
            last = max(
                (
                    header.last_sequence_id
                    for header in truth.headers
                    if truth.names[header.region_id] == feed
                    and header.end <= victim.position
                    and header.count
                ),
                default=0,
            )
            found, errors = read_all(store, feed)
            assert errors == []
            assert found == {number: value for number, value in entries.items() if number <= last}
            changed = bench.tail(feed).incarnation != truth.incarnations[feed]
            assert changed == (last < max(entries)), "only who lost something is told to begin anew"
            bench.register(feed, "agent-9", takeover=True)
            appended = bench.append(feed, "anew", producer="agent-9")
            assert appended.first_sequence_id == last + 1
            assert appended.first_lsn > truth.headers[-1].lsn(0), "no LSN is given a second time"
        assert bench.tail("a").epoch >= 3, "who was fenced in what was cut off stays fenced"
        walked, error = walk_all(store)
        assert error is None
        assert [header.lsn(0) for header in walked] == sorted({header.lsn(0) for header in walked})
        store.close()


def test_cut_of_a_journal_that_ends_below_its_mark(truth: Truth) -> None:
    """A lost end: nobody knows whose entries stood there, so every feed begins anew."""
    last = max(path for path in truth.contents if path.suffix == ".seg")
    disk = MemoryDisk()
    disk.load({**truth.contents, last: truth.contents[last][:-5]})
    with closing(Repair(FOLDER, disk=disk)) as mender, closing(mender.examine()) as findings:
        assert {damage.kind for damage in findings.damages} & {DamageKind.END, DamageKind.HOLE}
        with pytest.raises(Usage, match="can't be skipped"):
            mender.plan(findings, Mode.SKIP)
    repair(disk, Mode.CUT)
    with closing(FileStore(FOLDER, disk=disk)) as store:
        assert store.not_writable() is None
        for feed, incarnation in truth.incarnations.items():
            assert Bench(store).tail(feed).incarnation != incarnation


def test_what_costs_nothing_needs_no_mode(truth: Truth) -> None:
    rng = random.Random(SEED)
    disk = truth.disk()
    for header in truth.headers:
        disk.flip(*place(truth, header.position + rng.randrange(HEADER_SIZE)))
    for path in sorted(path for path in truth.contents if path.suffix == ".seg")[:-1]:
        disk.flip(path, len(truth.contents[path]) - 1 - rng.randrange(40))
    disk.flip(FOLDER / "mark", rng.randrange(4096))
    plan = repair(disk, Mode.NONE)
    assert plan.unmended == []
    assert plan.recreated == []
    assert {path: disk.bytes_of(path) for path in truth.contents if path.suffix == ".seg"} == {
        path: data for path, data in truth.contents.items() if path.suffix == ".seg"
    }
    check_skipped(truth, disk, [])


def test_damaged_start_is_made_again(truth: Truth) -> None:
    for path in sorted(path for path in truth.contents if path.suffix == ".seg"):
        for offset in (0, 18, 40 if len(truth.contents[path]) > 40 else 30):
            disk = truth.disk()
            disk.flip(path, offset)
            repair(disk, Mode.NONE)
            check_skipped(truth, disk, [])


def test_lost_mark_is_found_again(truth: Truth) -> None:
    disk = MemoryDisk()
    disk.load({path: data for path, data in truth.contents.items() if path.name != "mark"})
    with pytest.raises(JournalCorrupt, match="mark is missing"):
        FileStore(FOLDER, disk=disk)
    repair(disk, Mode.NONE)
    check_skipped(truth, disk, [])


def test_nothing_is_written_by_a_plan(truth: Truth) -> None:
    disk = truth.disk()
    hurt(truth, disk, truth.headers[5])
    before = disk.contents()
    for mode in Mode:
        with closing(Repair(FOLDER, disk=disk)) as mender, closing(mender.examine()) as findings:
            plan = mender.plan(findings, mode)
            assert bool(plan.unmended) == (mode == Mode.NONE)
    assert disk.contents() == before


def test_server_that_runs_keeps_the_repair_away(truth: Truth) -> None:
    disk = truth.disk()
    with closing(FileStore(FOLDER, disk=disk)), pytest.raises(DataFolderLocked, match="owns"):
        Repair(FOLDER, disk=disk)


@pytest.mark.parametrize("mode", [Mode.SKIP, Mode.CUT])
def test_crash_at_any_step_of_a_repair(truth: Truth, mode: Mode) -> None:
    """Run again, it ends as if nothing had happened; in between no server serves a half mended journal as whole."""
    rng = random.Random(SEED)
    frames = [header for header in truth.headers if header.kind == FrameKind.ENTRIES]
    for _ in range(scaled(sized(50, soak=120))):
        victims = sorted(rng.sample(frames, rng.randint(1, 2)), key=lambda header: header.position)
        disk = truth.disk(rng)
        for victim in victims:
            hurt(truth, disk, victim, hole=rng.random() < 0.3 and mode == Mode.SKIP)
        for _ in range(rng.randint(1, 3)):
            disk.crash_at = disk.steps + rng.randrange(30)
            try:
                repair(disk, mode)
            except PowerCut:
                disk = disk.crash(rng.choice(list(Crash)))
        disk.crash_at = None
        repair(disk, mode)
        if mode == Mode.SKIP:
            check_skipped(truth, disk, victims)
            continue
        with closing(FileStore(FOLDER, disk=disk)) as store:
            for feed, entries in truth.entries.items():
                last = max(
                    (
                        header.last_sequence_id
                        for header in frames
                        if header.end <= victims[0].position and truth.names[header.region_id] == feed
                    ),
                    default=0,
                )
                assert read_all(store, feed) == ({n: value for n, value in entries.items() if n <= last}, [])
                if last < max(entries):
                    assert Bench(store).tail(feed).incarnation != truth.incarnations[feed]
