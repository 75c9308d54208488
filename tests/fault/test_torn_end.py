"""Opening after a crash: torn ends, frames above the mark, damaged and missing marks (design rule 4)."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt, JournalLoss, StoreUnavailable
from headrace.log.files.store import FileStore
from headrace.testing.disk import Fault, FaultyDisk, PowerLossDisk, Step
from headrace.testing.memory import Crash
from headrace.wire.frame import FIRST_POSITION, HEADER_SIZE
from headrace.wire.mark import SLOT_SIZE, Mark, decode_marks
from tests.bench import expecting
from tests.fault.journals import (
    copied,
    files_of,
    headers,
    offset_of,
    opened,
    read_mark,
    segments,
    set_mark,
    snapshot,
)
from tests.fault.memory_journals import FOLDER, made

ONE_SEGMENT = 1 << 20


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Two feeds; the newest frame holds entries 3 and 4 of feed a."""
    folder = tmp_path / "made"
    with opened(folder, segment_bytes=ONE_SEGMENT) as bench:
        bench.register("a")
        bench.register("b")
        bench.append("a", "one", "two")
        bench.append("b", "x")
        bench.append("a", "three", "four", source=b"p")
    return folder


def newest(folder: Path) -> tuple[int, int]:
    """Position and size of the newest frame."""
    with opened(folder, segment_bytes=ONE_SEGMENT) as bench:
        header = headers(bench)[-1]
    return header.position, header.size


def torn_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("torn-*.bin")}


def test_every_cut_of_the_newest_frame(journal: Path, tmp_path: Path) -> None:
    position, size = newest(journal)
    made = segments(journal)[0].read_bytes()
    frame = made[offset_of(segments(journal)[0], position) :][:size]
    set_mark(journal, position)
    for kept in range(size):
        folder = copied(journal, tmp_path / "cut")
        segments(folder)[0].write_bytes(made[: len(made) - size + kept])
        with opened(folder) as bench:
            assert bench.store.not_writable() is None
            assert bench.values("a") == {1: b"one", 2: b"two"}
            assert bench.store.end() == position
            assert bool(files_of(bench).alarms) == (kept >= HEADER_SIZE), "an intact header is worth an alarm"
            assert bench.send(expecting("a", 3, "three", "four")).duplicate is False
        assert torn_files(folder) == ({f"torn-{position:016x}.bin": frame[:kept]} if kept else {})
        if kept % 10:
            continue
        with opened(folder) as bench:
            assert bench.values("a") == {1: b"one", 2: b"two", 3: b"three", 4: b"four"}
            assert files_of(bench).alarms == []


def test_every_damaged_byte_of_the_newest_frame(journal: Path, tmp_path: Path) -> None:
    position, size = newest(journal)
    made = bytearray(segments(journal)[0].read_bytes())
    start = offset_of(segments(journal)[0], position)
    set_mark(journal, position)
    for at in range(start, start + size, 7):
        folder = copied(journal, tmp_path / "damaged")
        made[at] ^= 0x10
        segments(folder)[0].write_bytes(bytes(made))
        made[at] ^= 0x10
        with opened(folder) as bench:
            assert bench.tail("a").head == 2
            assert bench.append("a", "3").first_sequence_id == 3


def test_intact_frames_above_the_mark_are_taken_over(journal: Path) -> None:
    with opened(journal) as bench:
        before, tails = bench.walked(), list(bench.store.tails())
        frames = headers(bench)
    for header in frames:
        set_mark(journal, header.position)
        with opened(journal) as bench:
            assert bench.walked() == before
            assert list(bench.store.tails()) == tails
            assert bench.send(expecting("a", 3, "three", "four")).duplicate
        assert read_mark(journal).end == frames[-1].end
        assert torn_files(journal) == {}


def test_frames_above_the_mark_are_synced_before_the_mark_moves(journal: Path) -> None:
    set_mark(journal, headers_of(journal)[-2])
    disk = FaultyDisk(Fault(Step.SYNC, suffix=".seg"))
    before = snapshot(journal)
    with pytest.raises(StoreUnavailable):
        FileStore(journal, disk=disk)
    assert snapshot(journal)["mark"] == before["mark"]
    with opened(journal, disk) as bench:
        assert bench.tail("a").head == 4
    assert [step for step, name in disk.steps if name.endswith(".seg")][-3:] == [
        Step.WRITE,
        Step.TRUNCATE,
        Step.SYNC,
    ]


def headers_of(folder: Path) -> list[int]:
    with opened(folder) as bench:
        return [header.position for header in headers(bench)]


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        (b"\x00" * 5000, False),
        (b"\x00" * 100 + b"x", True),
        (b"garbage", True),
        (b"HRFR" * 50, True),
        (b"\xff" * 200_000, True),
    ],
    ids=["zeros", "zeros and a byte", "garbage", "magic words", "much"],
)
def test_bytes_after_the_end(journal: Path, end: bytes, kept: bool) -> None:
    made = segments(journal)[0].read_bytes()
    segments(journal)[0].write_bytes(made + end)
    with opened(journal) as bench:
        position = bench.store.end()
        assert torn_files(journal) == ({f"torn-{position:016x}.bin": end} if kept else {})
        assert files_of(bench).alarms == []
        assert segments(journal)[0].read_bytes() == made
        assert bench.append("a", "five").first_sequence_id == 5


def test_frame_of_another_place_is_no_frame(journal: Path) -> None:
    """Old bytes of the very journal, left after the end by the file system: each frame names its own position."""
    with opened(journal) as bench:
        frames, tails = headers(bench), list(bench.store.tails())
    path = segments(journal)[0]
    made = path.read_bytes()
    for header in frames:
        at = offset_of(path, header.position)
        path.write_bytes(made + made[at : at + header.size])
        with opened(journal) as bench:
            assert list(bench.store.tails()) == tails
            assert bench.store.end() == frames[-1].end


def test_second_crash_in_the_middle_of_recovery_loses_nothing(journal: Path, tmp_path: Path) -> None:
    """A crash of the machine had set the mark back, so frames above it may have been answered."""
    set_mark(journal, FIRST_POSITION)
    for step in (Step.WRITE, Step.TRUNCATE, Step.SYNC):
        folder = copied(journal, tmp_path / step)
        with pytest.raises(StoreUnavailable):
            FileStore(folder, disk=FaultyDisk(Fault(step, suffix=".seg", written=50)))
        with opened(folder) as bench:
            assert bench.values("a") == {1: b"one", 2: b"two", 3: b"three", 4: b"four"}


class _ForgetfulDisk(PowerLossDisk):
    """Its next sync of a segment fails, and the page cache calls the pages clean all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False

    def synced(self, file: object) -> None:
        if self.fails:
            self.fails = False
            raise OSError(5, "on purpose")
        super().synced(file)  # type: ignore[arg-type]  # handed through


def test_what_a_failed_sync_left_in_memory_is_written_again(tmp_path: Path) -> None:
    """The writer stops; the restarted one finds the frame in the page cache, and must make it durable before it shows it."""
    folder, disk = tmp_path / "live", _ForgetfulDisk()
    with opened(folder, disk) as bench:
        bench.register("a")
        disk.fails = True
        with pytest.raises(Exception, match="did not confirm"):
            bench.append("a", "one")
    with opened(folder, disk) as bench:
        assert bench.values("a") == {1: b"one"}
    disk.lose_power(folder, tmp_path / "left")
    with opened(tmp_path / "left") as bench:
        assert bench.values("a") == {1: b"one"}


# -- the mark ---------------------------------------------------------------------------------------------------------


def damage_slots(folder: Path, *slots: int) -> None:
    data = bytearray((folder / "mark").read_bytes())
    for slot in slots:
        half = SLOT_SIZE * slot + SLOT_SIZE // 2
        data[half : half + SLOT_SIZE // 2] = bytes(SLOT_SIZE // 2)
    (folder / "mark").write_bytes(bytes(data))


def test_half_written_slot_leaves_the_older_mark(journal: Path) -> None:
    """Killed while the mark was stored: the frame it named is intact above the older one."""
    current = read_mark(journal)
    damage_slots(journal, current.counter % 2)
    assert read_mark(journal).counter == current.counter - 1
    with opened(journal) as bench:
        assert bench.values("a") == {1: b"one", 2: b"two", 3: b"three", 4: b"four"}
        assert bench.append("a", "five").first_sequence_id == 5
    assert read_mark(journal).counter > current.counter


def refuses(folder: Path, kind: type[Exception], match: str) -> None:
    """Opening must be refused, and change nothing."""
    before = snapshot(folder)
    with pytest.raises(kind, match=match):
        FileStore(folder)
    assert snapshot(folder) == before


def test_both_slots_damaged(journal: Path) -> None:
    damage_slots(journal, 0, 1)
    refuses(journal, JournalCorrupt, "both copies of the mark")


def test_mark_missing(journal: Path) -> None:
    (journal / "mark").unlink()
    refuses(journal, JournalCorrupt, "the mark is missing beside 1 journal segments")


def test_mark_cut_short(journal: Path) -> None:
    (journal / "mark").write_bytes((journal / "mark").read_bytes()[:100])
    refuses(journal, JournalCorrupt, "100 bytes")


@pytest.mark.parametrize("lost", [1, HEADER_SIZE, 400])
def test_end_below_the_mark_is_a_loss(journal: Path, lost: int) -> None:
    made = segments(journal)[0].read_bytes()
    segments(journal)[0].write_bytes(made[:-lost])
    refuses(journal, JournalLoss, "was acknowledged")


def test_all_segments_lost(journal: Path) -> None:
    segments(journal)[0].unlink()
    refuses(journal, JournalLoss, "no journal segment")


@pytest.mark.parametrize("off", [-1, 1, 97])
def test_mark_that_names_no_end_of_a_frame(journal: Path, off: int) -> None:
    """The mark of another journal, or of another moment: nothing may be cut by it."""
    set_mark(journal, newest(journal)[0] + off)
    refuses(journal, JournalCorrupt, "inside the frame")


def test_mark_below_the_newest_segment(tmp_path: Path) -> None:
    with opened(tmp_path / "a") as bench:
        bench.register("a")
        for _ in range(3):
            bench.append("a", "x" * 3000)
    set_mark(tmp_path / "a", FIRST_POSITION)
    refuses(tmp_path / "a", JournalLoss, "0x100 was acknowledged")


def test_folder_that_was_only_just_made(tmp_path: Path) -> None:
    """A crash after the mark was made and before the first segment was."""
    with opened(tmp_path / "a"):
        pass
    segments(tmp_path / "a")[0].unlink()
    with opened(tmp_path / "a") as bench:
        assert bench.register("a").region_id == 1


def test_a_cut_that_was_never_synced_is_durable_once_the_journal_is_open() -> None:
    """Else frames that nobody answered could come back by a power failure, after others were judged without them."""
    truth = made(ONE_SEGMENT)
    newest_frame = truth.headers[-1]
    for seed in range(20):
        disk = truth.disk(random.Random(seed))
        mark = decode_marks(disk.bytes_of(FOLDER / "mark"), "mark")
        assert mark is not None
        older = Mark(mark.counter + 1, newest_frame.position, 0)
        with closing(disk.open(FOLDER / "mark")) as file:
            file.write_at(older.offset, older.encode())
            file.sync()
        (segment,) = disk.list(FOLDER / "journal", ".seg")
        with closing(disk.open(segment)) as file:
            file.truncate(file.size() - newest_frame.size)  # by a process that is killed right then
        FileStore(FOLDER, disk=disk.crash(Crash.KILL)).close()
        with closing(FileStore(FOLDER, disk=disk.crash(Crash.POWER))) as store:
            assert store.end() == newest_frame.position
