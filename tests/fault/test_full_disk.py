"""A nearly full disk refuses appends in time; one that is really full, or fails to sync, loses nothing and says why."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DiskReserve, JournalCorrupt, StoreUnavailable, WriterStopped, refusal_of
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.sqlite import SqliteMetadata
from headrace.log.requests import Register
from headrace.log.troubles import Troubles
from headrace.runtime.disk import Disk
from headrace.server.service import Service
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.wire import documents as doc
from tests.bench import AGENT, INCARNATION, append
from tests.fault.journals import flip
from tests.fault.volumes import VOLUME_BYTES, limit_files, small_volume
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import async_wait_until, wait_until


class RoomyDisk(Disk):
    """A disk whose free space is set by hand."""

    free = 10 << 30

    def free_bytes(self, folder: Path) -> int:
        return self.free

    def volume_bytes(self, folder: Path) -> int:
        return 100 << 30


@asynccontextmanager
async def opened(folder: Path, disk: Disk, **settings: Any) -> AsyncIterator[tuple[Log, Service]]:
    log = Log.open(folder, settings=LogSettings(**settings), disk=disk)
    await log.start()
    try:
        yield log, Service(log)
    finally:
        await log.close()


async def alarms(service: Service) -> dict[str, bool]:
    """Code -> whether it stands."""
    found: dict[str, bool] = {}
    for alarm in (await service.alarms()).alarms:
        found[alarm.code] = found.get(alarm.code, False) or alarm.cleared_at is None
    return found


async def told(service: Service, wanted: dict[str, bool]) -> None:
    """Wait until these are the alarms: they are raised behind the answers, by the writer's thread."""

    async def are_there() -> bool:
        return await alarms(service) == wanted

    await async_wait_until(are_there, what=f"the alarms {wanted}")


@pytest.mark.parametrize(("given", "reserve"), [(None, 5 << 30), (1 << 20, 1 << 20)], ids=["5 %", "setting"])
async def test_below_the_reserve_appends_wait_for_room(
    tmp_path: Path, given: int | None, reserve: int
) -> None:
    disk = RoomyDisk()
    async with opened(tmp_path, disk, disk_reserve_bytes=given) as (log, service):
        await log.register(Register("a", AGENT, AGENT, "", INCARNATION))
        disk.free = reserve + 10_000
        await log.append(append("a", "one", expected_offsets=[1]))
        disk.free = reserve + 10
        with pytest.raises(DiskReserve) as refusal:
            await log.append(append("a", "two"))
        assert refusal.value.http_status == 503
        assert refusal_of(refusal.value).side_effects == "possible", "it names no place: it may be a retry"
        await told(service, {"disk-reserve": True})
        assert len(await log.read("a", 1, 9, entries_max=10, bytes_max=1 << 20)) == 1, "readers go on"
        assert (await log.append(append("a", "one", expected_offsets=[1]))).duplicate, (
            "what needs no room is answered"
        )
        disk.free = reserve + 10_000
        assert (await log.append(append("a", "two"))).first_sequence_id == 2
        await told(service, {"disk-reserve": True})
        disk.free = 2 * reserve
        await log.append(append("a", "three"))
        await told(service, {"disk-reserve": False})


async def test_below_the_reserve_no_new_listener_is_taken(tmp_path: Path) -> None:
    """It would take room; one that is known already goes on reading."""
    disk = RoomyDisk()
    async with opened(tmp_path, disk, disk_reserve_bytes=1 << 20) as (log, service):
        await log.register(Register("a", AGENT, AGENT, "", INCARNATION))
        known, new = (doc.RegisterListener(listener_id=name, change_feed_id="a") for name in ("known", "new"))
        await service.register_listener(known)
        disk.free = (1 << 20) + 10
        await service.register_listener(known)
        with pytest.raises(DiskReserve):
            await service.register_listener(new)
        assert log.metadata.listener("new", "a") is None
        disk.free = 2 << 20
        await service.register_listener(new)


async def test_appends_about_the_reserve_raise_one_alarm(tmp_path: Path) -> None:
    """Large ones are refused, small ones taken: that is one state of the disk, not two that take turns."""
    disk = RoomyDisk()
    async with opened(tmp_path, disk, disk_reserve_bytes=1 << 20) as (log, service):
        await log.register(Register("a", AGENT, AGENT, "", INCARNATION))
        disk.free = (1 << 20) + 100_000
        for _ in range(20):
            with pytest.raises(DiskReserve):
                await log.append(append("a", bytes(200_000)))
            await log.append(append("a", "small"))
        await told(service, {"disk-reserve": True})
        assert len(log.metadata.alarms()) == 1


async def test_reserve_is_never_less_than_a_gigabyte(tmp_path: Path) -> None:
    disk = RoomyDisk()
    disk.volume_bytes = lambda folder: 1 << 30  # type: ignore[method-assign]  # a small volume
    disk.free = 1 << 30
    async with opened(tmp_path, disk) as (log, _):
        with pytest.raises(DiskReserve):
            await log.register(Register("a", AGENT, AGENT, "", INCARNATION))


async def test_failed_sync_is_told_until_the_restart_and_after_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk, disk_reserve_bytes=0) as (log, service):
        await log.register(Register("a", AGENT, AGENT, "", INCARNATION))
        await log.append(append("a", "one"))
        disk.faults.append(Fault(Step.SYNC, errno.EIO, suffix=".seg"))
        for _ in range(2):
            with pytest.raises(WriterStopped):
                await log.append(append("a", "two"))
        health = service.readiness()
        assert health.status == "not-ready"
        assert any("did not confirm a write" in reason for reason in health.reasons)
        await told(service, {"writer-stopped": True})
        assert len(await log.read("a", 1, 9, entries_max=10, bytes_max=1 << 20)) == 1, "readers go on"
    async with opened(tmp_path, Disk(), disk_reserve_bytes=0) as (log, service):
        assert service.readiness().status == "ok"
        await told(service, {"writer-stopped": False})
        await log.append(append("a", "three"))


async def test_damage_that_a_reader_meets_is_an_alarm(tmp_path: Path) -> None:
    async with opened(tmp_path, Disk(), disk_reserve_bytes=0, segment_bytes=2000) as (log, service):
        await log.register(Register("a", AGENT, AGENT, "", INCARNATION))
        for _ in range(4):
            await log.append(append("a", "x" * 900))
        flip(tmp_path, log.store.oldest_position() + 900)
        for _ in range(2):
            with pytest.raises(JournalCorrupt):
                await log.read("a", 1, 9, entries_max=10, bytes_max=1 << 20)
        (alarm,) = (await service.alarms()).alarms
        assert (alarm.code, alarm.change_feed_id) == ("journal-corrupt", "a")
        assert str(tmp_path) in alarm.detail


class _FullMetadata(SqliteMetadata):
    """A metadata database that can't be written any more."""

    def raise_alarm(self, code: str, detail: str, now_ms: int, *, feed: str = "", agent_id: str = "") -> int:
        raise StoreUnavailable("the metadata database can't be used: disk full")


def test_alarm_that_can_not_be_stored_is_told_all_the_same(tmp_path: Path) -> None:
    metadata = _FullMetadata(tmp_path / "metadata.sqlite3")
    troubles = Troubles(metadata, ManualClock())
    troubles.tell(WriterStopped, "the disk did not confirm a write")
    assert metadata.alarms() == []
    (row,) = troubles.among(metadata.alarms())
    assert (row.code, row.detail, row.cleared_at_ms) == (
        "writer-stopped",
        "the disk did not confirm a write",
        None,
    )
    metadata.close()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[ServerProcess, bool]]:
    """A running server on a small volume, and the way to fill that."""
    data_dir = tmp_path / "volume" / "data"
    with (
        small_volume(tmp_path / "volume") as mounted,
        serving(tmp_path, data_dir=data_dir, args=["--disk-reserve", "1"]) as server,
    ):
        yield server, mounted


def test_really_full_disk_loses_nothing(small: tuple[ServerProcess, bool]) -> None:
    """Appends are refused, readers go on, and as soon as there is room appends go on where they were."""
    server, mounted = small
    feed = Feed(server, "test::feed")
    assert feed.register().status_code == 200
    if not mounted:
        limit_files(server, VOLUME_BYTES)
    stored: dict[int, int] = {}

    def post(number: int) -> Any:
        return feed.post(
            {"changes": changes(number) | {"ballast": "x" * 50_000}, "expected-offset": len(stored) + 1}
        )

    while (answer := post(len(stored))).status_code == 200:
        stored[answer.json()["first-sequence-id"]] = len(stored)
    assert code_of(answer) in {"store-unavailable", "disk-reserve"}
    assert answer.headers["Retry-After"]
    assert len(stored) > 20
    read = [entry["changes"]["number"] for entry in feed.entries(limit=1000)]
    assert read == list(stored.values()), "readers go on, and see what was acknowledged"
    small_one = feed.post({"changes": {"n": 1}, "expected-offset": len(stored) + 2})
    assert code_of(small_one) == "offset-mismatch", "nothing of the refused append is there"
    server.kill()
    if mounted:
        resized = ["mount", "-o", f"remount,size={VOLUME_BYTES * 4}", str(server.data_dir.parent)]
        subprocess.run(resized, check=True)
    server.start()
    wait_until(lambda: server.http.get("/readyz").status_code == 200)
    assert [entry["changes"]["number"] for entry in feed.entries(limit=1000)] == list(stored.values())
    assert post(len(stored)).json()["first-sequence-id"] == len(stored) + 1
