"""A disk that is full, refuses writes, or does not confirm them: what is answered, and what is there afterwards."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, StoreUnavailable, WriterStopped
from headrace.runtime.disk import DiskFile, SyncFailed
from headrace.testing.disk import Fault, FaultyDisk, PowerLossDisk, Step
from tests.bench import Bench, expecting
from tests.fault.journals import files_of, opened, segments, snapshot
from tests.stores import SMALL_SEGMENT

ONE_SEGMENT = 1 << 20


def check_alive(bench: Bench, wanted: dict[int, bytes]) -> None:
    """Readers go on, and nothing is there that was not acknowledged."""
    assert bench.values("a") == wanted
    assert [number for _, number in bench.walked()] == list(wanted)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
@pytest.mark.parametrize("written", [0, 1, 96, 400, 700])
def test_full_disk_refuses_the_group_and_goes_on_when_there_is_space(
    tmp_path: Path, number: int, written: int
) -> None:
    """However much of the write reached the file, nothing of it may ever be read."""
    disk = FaultyDisk()
    with opened(tmp_path, disk, ONE_SEGMENT) as bench:
        bench.register("a")
        bench.append("a", "one")
        before = snapshot(tmp_path / "journal")
        disk.faults.append(Fault(Step.WRITE, number, suffix=".seg", written=written))
        with pytest.raises(StoreUnavailable, match="full") as refusal:
            bench.ask(expecting("a", 2, "two"), expecting("a", 3, "three"))
        assert refusal.value.retryable
        assert snapshot(tmp_path / "journal") == before
        check_alive(bench, {1: b"one"})
        assert bench.store.not_writable() is None
        assert bench.send(expecting("a", 2, "zwei")).duplicate is False
        wanted = {1: b"one", 2: b"zwei"}
        check_alive(bench, wanted)
    with opened(tmp_path) as bench:
        check_alive(bench, wanted)


def test_what_a_full_disk_cut_off_never_comes_back(tmp_path: Path) -> None:
    """Not even after a power failure right then: the client was told that nothing was written."""
    disk = _FullAfterWriting()
    with opened(tmp_path / "live", disk) as bench:
        bench.register("a")
        disk.full = True
        with pytest.raises(StoreUnavailable):
            bench.append("a", "one", "two")
        disk.lose_power(
            tmp_path / "live",
            tmp_path / "left",
            written_back={path.name for path in segments(tmp_path / "live")},
        )
        disk.lose_power(tmp_path / "live", tmp_path / "synced")
    for left in ("left", "synced"):
        with opened(tmp_path / left) as bench:
            assert bench.tail("a").head == 0


class _FullAfterWriting(PowerLossDisk):
    """Says once that it is full although all bytes were written, and even flushed."""

    full = False

    def _opened(self, path: Path, fd: int) -> DiskFile:
        return _FullFile(path, fd, self)


class _FullFile(DiskFile):
    def __init__(self, path: Path, fd: int, disk: _FullAfterWriting) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        super().write_at(offset, data)
        if self._disk.full:
            self._disk.full = False
            self._disk.synced(self)
            raise OSError(errno.ENOSPC, "on purpose")

    def _flush(self) -> None:
        self._disk.synced(self)


def test_disk_full_for_the_cut_as_well_stops_the_writer(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk) as bench:
        bench.register("a")
        disk.faults += [
            Fault(Step.WRITE, errno.ENOSPC, suffix=".seg", written=50),
            Fault(Step.TRUNCATE, suffix=".seg"),
        ]
        with pytest.raises(WriterStopped):
            bench.append("a", "one")
        with pytest.raises(WriterStopped):
            bench.append("a", "one")
        check_alive(bench, {})
    with opened(tmp_path) as bench:
        assert bench.append("a", "one").first_sequence_id == 1


def test_refused_write_stops_the_writer_for_good(tmp_path: Path) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk) as bench:
        bench.register("a")
        bench.append("a", "one")
        disk.faults.append(Fault(Step.WRITE, errno.EIO, suffix=".seg"))
        with pytest.raises(WriterStopped):
            bench.append("a", "two")
        check_stopped(bench, {1: b"one"})


def check_stopped(bench: Bench, wanted: dict[int, bytes]) -> None:
    """No append is taken however often it is asked; readers see what was acknowledged."""
    for _ in range(3):
        with pytest.raises(WriterStopped) as refusal:
            bench.append("a", "again")
        assert refusal.value.http_status == 503
        assert (bench.store.not_writable() or "") in refusal.value.detail
    assert bench.store.not_writable()
    check_alive(bench, wanted)


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_failed_sync_stops_the_writer_whatever_its_reason(tmp_path: Path, number: int) -> None:
    """Never retried and then acknowledged; after the restart the entry may be there or not, but a retry tells."""
    disk = FaultyDisk()
    with opened(tmp_path, disk) as bench:
        bench.register("a")
        bench.append("a", "one")
        disk.faults.append(Fault(Step.SYNC, number, suffix=".seg"))
        syncs = disk.steps.count((Step.SYNC, segments(tmp_path)[-1].name))
        with pytest.raises(WriterStopped):
            bench.send(expecting("a", 2, "two"))
        check_stopped(bench, {1: b"one"})
        assert disk.steps.count((Step.SYNC, segments(tmp_path)[-1].name)) == syncs + 1
    with opened(tmp_path) as bench:
        bench.send(expecting("a", 2, "two"))
        check_alive(bench, {1: b"one", 2: b"two"})


def test_nothing_is_visible_before_it_is_durable(tmp_path: Path) -> None:
    """At each sync of a segment, no reader sees anything of the group that it is for."""
    seen: list[tuple[int, int, int]] = []
    disk = _Watching()
    with opened(tmp_path, disk) as bench:
        bench.register("a")
        disk.watch = lambda: seen.append((bench.tail("a").head, bench.store.end(), len(bench.walked())))
        ends = [bench.store.end()]
        for number in range(3):
            bench.append("a", str(number))
            ends.append(bench.store.end())
        disk.watch = lambda: None
    assert seen == [(0, ends[0], 0), (1, ends[1], 1), (2, ends[2], 2)]


class _Watching(FaultyDisk):
    watch = staticmethod(lambda: None)

    def check(self, step: Step, path: Path) -> None:
        super().check(step, path)
        if step == Step.SYNC and path.name.endswith(".seg"):
            self.watch()


# -- while a segment is begun -----------------------------------------------------------------------------------------

ROLLING = [
    Fault(Step.WRITE, suffix=".seg"),
    Fault(Step.TRUNCATE, suffix=".seg"),
    Fault(Step.SYNC, suffix=".seg"),
    Fault(Step.SYNC, suffix="mark"),
    Fault(Step.OPEN, suffix=".tmp"),
    Fault(Step.WRITE, suffix=".tmp"),
    Fault(Step.WRITE, suffix=".tmp", written=40),
    Fault(Step.SYNC, suffix=".tmp"),
    Fault(Step.RENAME, suffix=".seg"),
    Fault(Step.SYNC_FOLDER, suffix="journal"),
    Fault(Step.OPEN, suffix=".seg"),
    Fault(Step.WRITE, suffix=".seg", after=1),
    Fault(Step.SYNC, suffix=".seg", after=1),
]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["full", "io error"])
@pytest.mark.parametrize(
    "fault", ROLLING, ids=lambda fault: f"{fault.step}{fault.suffix}+{fault.after}+{fault.written}"
)
def test_fault_while_a_segment_is_begun(tmp_path: Path, fault: Fault, number: int) -> None:
    disk = FaultyDisk()
    with opened(tmp_path, disk) as bench:
        bench.register("a")
        wanted = {1: b"x" * (SMALL_SEGMENT // 2)}
        bench.append("a", wanted[1])
        disk.faults = [
            Fault(fault.step, number, after=fault.after, suffix=fault.suffix, written=fault.written)
        ]
        disk.steps.clear()
        with pytest.raises((StoreUnavailable, WriterStopped)):
            bench.send(expecting("a", 2, "too large for this segment" * 200))
        assert disk.faults[0].times == 0, f"the fault never struck: {disk.steps}"
        stops = (
            number == errno.EIO
            or fault.step in {Step.SYNC, Step.SYNC_FOLDER}
            or (fault.step == Step.OPEN and fault.suffix == ".seg")
        )
        assert bool(bench.store.not_writable()) == stops
        check_alive(bench, wanted)
        if not stops:
            for value in (b"fits", b"three", b"y" * SMALL_SEGMENT, b"four"):
                wanted[bench.append("a", value).first_sequence_id] = value
                check_alive(bench, wanted)
            assert list(wanted) == [1, 2, 3, 4, 5]
        assert len(bench.walked()) == len(wanted)
    with opened(tmp_path) as bench:
        assert files_of(bench).alarms == []
        assert {number: value for number, value in bench.values("a").items() if number in wanted} == wanted
        assert bench.tail("a").head in ({len(wanted), len(wanted) + 1} if stops else {len(wanted)})
        bench.append("a", "more")
    with opened(tmp_path) as bench:
        assert bench.values("a")[bench.tail("a").head] == b"more"


def test_fault_at_any_step_of_making_a_journal(tmp_path: Path) -> None:
    """Whatever fails while the folder is made: a clear error, and the next start makes it."""
    probe = FaultyDisk()
    with opened(tmp_path / "probe", probe):
        steps = list(probe.steps)
    for number, (step, name) in enumerate(steps):
        before = sum(1 for earlier in steps[:number] if earlier[0] == step)
        folder = tmp_path / str(number)
        with pytest.raises(HeadraceError), opened(folder, FaultyDisk(Fault(step, after=before))):
            raise AssertionError(f"{step} {name} went unnoticed")
        with opened(folder) as bench:
            assert bench.register("a").region_id == 1


def test_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="can't be used"), opened(tmp_path / "data"):
        raise AssertionError("a file is no folder")


def test_sync_failures_are_told_apart(tmp_path: Path) -> None:
    disk = FaultyDisk(Fault(Step.SYNC, errno.ENOSPC), Fault(Step.SYNC_FOLDER, errno.EIO))
    with disk.open(tmp_path / "x", create=True) as file:
        with pytest.raises(SyncFailed) as failure:
            file.sync()
        assert failure.value.errno == errno.ENOSPC
        file.sync()
    with pytest.raises(SyncFailed):
        disk.sync_folder(tmp_path)
