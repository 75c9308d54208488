"""Damage at the journal's end that a torn end could be taken for: nothing acknowledged is set aside without a word."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt, SequenceLost
from headrace.log.damage import DamageKind
from headrace.log.files.examine import examine
from headrace.log.files.plan import Mode, Plan
from headrace.log.files.repair import Repair
from headrace.log.files.store import FileStore
from headrace.testing.clock import ManualClock
from headrace.wire.frame import HEADER_SIZE, FrameHeader
from headrace.wire.mark import SLOT_SIZE, decode_marks
from tests.bench import Bench
from tests.fault.journals import (
    copied,
    files_of,
    flip,
    headers,
    offset_of,
    opened,
    read_mark,
    segments,
    set_mark,
    snapshot,
)

ONE_SEGMENT = 1 << 20


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, list[FrameHeader], str]:
    """A journal of four acknowledged entries as a killed server leaves it, its frames, and its feed's incarnation."""
    with opened(tmp_path / "live", segment_bytes=ONE_SEGMENT) as bench:
        bench.register("a")
        for value in ("one", "two", "three", "four"):
            bench.clock.ms += 5
            bench.append("a", value)
        return copied(tmp_path / "live", tmp_path / "killed"), headers(bench), bench.tail("a").incarnation


def hurt_newest_mark(folder: Path) -> None:
    page = bytearray((folder / "mark").read_bytes())
    page[read_mark(folder).offset + 20] ^= 1
    (folder / "mark").write_bytes(page)


def hurt(folder: Path, frame: FrameHeader, what: str) -> None:
    if what == "payload":
        flip(folder, frame.position + HEADER_SIZE + 30)
    elif what == "both headers":
        flip(folder, frame.position + 10)
        flip(folder, frame.end - HEADER_SIZE + 10)
    else:
        path = segments(folder)[-1]
        data = path.read_bytes()
        at = offset_of(path, frame.position)
        path.write_bytes(data[: at + 50] if what == "cut off" else data[:at] + bytes(frame.size))


def repaired(folder: Path, mode: Mode) -> Plan:
    with closing(Repair(folder, clock=ManualClock())) as mender, closing(mender.examine()) as findings:
        plan = mender.plan(findings, mode)
        mender.apply(plan)
    return plan


WAYS = ["payload", "both headers", "cut off", "zeros"]


@pytest.mark.parametrize("what", WAYS)
def test_newest_mark_and_newest_frame_damaged(killed: tuple[Path, list[FrameHeader], str], what: str) -> None:
    """The older mark ends before an acknowledged frame that can't be read any more: its place must not be given again."""
    folder, frames, incarnation = killed
    hurt_newest_mark(folder)
    hurt(folder, frames[-1], what)
    for _ in range(2):
        before = snapshot(folder)
        with opened(folder) as bench:
            reason = bench.store.not_writable()
            assert reason is not None
            assert "may have been acknowledged" in reason
            assert "half written" in files_of(bench).alarms[0]
            assert bench.values("a") == {1: b"one", 2: b"two", 3: b"three"}, "readers go on"
        assert snapshot(folder) == before, "nothing is cut, and the mark stays as it is"
    with closing(Repair(folder, clock=ManualClock())) as mender, closing(mender.examine()) as findings:
        assert mender.plan(findings, Mode.NONE).unmended
    with closing(examine(folder)) as findings:
        kinds = {damage.kind for damage in findings.damages}
    assert DamageKind.MARK in kinds
    assert kinds & {DamageKind.PAYLOAD, DamageKind.HOLE}
    plan = repaired(folder, Mode.CUT)
    if what == "payload":
        assert [(gap.first_sequence_id, gap.last_sequence_id) for gap in plan.lost["a"]] == [(4, 4)]
    assert plan.recreated == ["a"]
    with opened(folder) as bench:
        assert files_of(bench).alarms == []
        assert bench.store.not_writable() is None
        assert bench.tail("a").incarnation != incarnation
        assert bench.values("a") == {1: b"one", 2: b"two", 3: b"three"}
        bench.register("a", instance="again")
        assert bench.append("a", "other").first_sequence_id == 4


@pytest.mark.parametrize("what", WAYS)
def test_doubtful_end_can_be_skipped(killed: tuple[Path, list[FrameHeader], str], what: str) -> None:
    folder, frames, incarnation = killed
    hurt_newest_mark(folder)
    hurt(folder, frames[-1], what)
    repaired(folder, Mode.SKIP)
    with closing(examine(folder)) as findings:
        assert findings.damages == []
    with opened(folder) as bench:
        assert files_of(bench).alarms == []
        assert bench.values("a", 1, 3) == {1: b"one", 2: b"two", 3: b"three"}
        assert bench.tail("a").incarnation != incarnation
        if what == "payload":
            assert bench.tail("a").next_sequence_id == 5
            with pytest.raises(SequenceLost):
                bench.values("a", 4, 4)
        bench.register("a", instance="again")
        bench.append("a", "goes on")


def test_newest_mark_alone_damaged(killed: tuple[Path, list[FrameHeader], str]) -> None:
    folder, _, _ = killed
    hurt_newest_mark(folder)
    with opened(folder) as bench:
        assert bench.store.not_writable() is None
        assert ["half written" in alarm for alarm in files_of(bench).alarms] == [True]
        assert list(bench.values("a")) == [1, 2, 3, 4]
    with opened(folder) as bench:
        assert files_of(bench).alarms == []


def test_both_copies_name_the_end_after_opening_and_after_a_clean_stop(
    killed: tuple[Path, list[FrameHeader], str], tmp_path: Path
) -> None:
    folder, frames, _ = killed
    with opened(folder) as bench:
        assert _ends(folder) == [frames[-1].end] * 2
        bench.append("a", "five")
        end = bench.store.end()
        assert _ends(folder) != [end] * 2
    assert _ends(folder) == [end] * 2
    with opened(tmp_path / "fresh"):
        assert len(set(_ends(tmp_path / "fresh"))) == 1


def _ends(folder: Path) -> list[int]:
    page = (folder / "mark").read_bytes()
    copies = [bytes(at) + page[at : at + SLOT_SIZE] for at in (0, SLOT_SIZE)]
    return [mark.end for mark in (decode_marks(copy, "mark") for copy in copies) if mark is not None]


@pytest.mark.parametrize("what", ["payload", "both headers"])
def test_damage_above_a_mark_that_a_power_failure_set_back(
    killed: tuple[Path, list[FrameHeader], str], what: str
) -> None:
    """The frame behind it was written once it was durable, so it is damage and no torn end."""
    folder, frames, incarnation = killed
    set_mark(folder, frames[1].end)
    hurt(folder, frames[2], what)
    with closing(examine(folder)) as findings:
        assert [damage.position for damage in findings.damages] == [frames[2].position]
    with opened(folder) as bench:
        assert (bench.store.not_writable() is None) == (what == "payload")
        assert any("0x" in alarm for alarm in files_of(bench).alarms)
        assert not list(folder.glob("torn-*"))
        assert bench.values("a", 1, 1) == {1: b"one"}
        if what == "payload":
            assert bench.values("a", 3, 4) == {3: b"three", 4: b"four"}
            with pytest.raises(JournalCorrupt):
                bench.values("a", 2, 2)
    repaired(folder, Mode.SKIP)
    with opened(folder) as bench:
        assert bench.values("a", 3, 4) == {3: b"three", 4: b"four"}
        assert bench.tail("a").incarnation != incarnation
        with pytest.raises(SequenceLost):
            bench.values("a", 2, 2)


def test_frames_of_one_group_can_be_torn_in_any_order(tmp_path: Path) -> None:
    """Their timestamps follow each other, so an intact one behind a bad one proves nothing."""
    with opened(tmp_path / "a", segment_bytes=ONE_SEGMENT) as bench:
        bench.register("a")
        for value in ("one", "two", "three"):
            bench.append("a", value)
        frames = headers(bench)
    set_mark(tmp_path / "a", frames[1].end)
    hurt(tmp_path / "a", frames[2], "payload")
    with opened(tmp_path / "a") as bench:
        assert bench.store.not_writable() is None
        assert bench.values("a") == {1: b"one"}
        assert len(files_of(bench).alarms) == 1, "but its header is worth an alarm"
    assert len(list((tmp_path / "a").glob("torn-*"))) == 1


def test_torn_ends_of_one_position_are_all_kept(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    with opened(folder) as bench:
        bench.register("a")
        position = bench.store.end()
    made = segments(folder)[0].read_bytes()
    for end in (b"first", b"second", b"second"):
        segments(folder)[0].write_bytes(made + end)
        with opened(folder):
            pass
    kept = {path.name: path.read_bytes() for path in folder.glob("torn-*")}
    assert kept == {f"torn-{position:016x}.bin": b"first", f"torn-{position:016x}-2.bin": b"second"}


@pytest.mark.parametrize("what", ["missing", "both copies"])
def test_without_a_mark_a_person_decides_on_a_damaged_end(
    killed: tuple[Path, list[FrameHeader], str], what: str
) -> None:
    folder, frames, incarnation = killed
    hurt(folder, frames[-1], "both headers")
    if what == "missing":
        (folder / "mark").unlink()
    else:
        (folder / "mark").write_bytes(bytes(4096))
    assert repaired(folder, Mode.NONE).unmended
    with pytest.raises(JournalCorrupt):
        FileStore(folder)
    assert repaired(folder, Mode.CUT).recreated == ["a"]
    with closing(FileStore(folder)) as store:
        assert Bench(store).tail("a").incarnation != incarnation
        assert list(Bench(store).values("a")) == [1, 2, 3]
