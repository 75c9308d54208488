"""What the writer's thread survives, and that nobody waits for one that has ended."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import DiskReserve, HeadraceError, WriterStopped, refusal_of
from headrace.log.contract import Begin
from headrace.log.log import Log, LogSettings
from headrace.server.service import Service
from headrace.testing.clock import ManualClock
from headrace.testing.disk import FaultyDisk
from tests.bench import append, register
from tests.waiting import async_wait_until

WAIT_S_MAX = 30.0
RESERVE = 1 << 20


class RoomyDisk(FaultyDisk):
    """A disk whose free space is set by hand."""

    free = 10 << 30

    def free_bytes(self, folder: Path) -> int:
        return self.free


@asynccontextmanager
async def running(folder: Path, disk: RoomyDisk) -> AsyncIterator[Log]:
    """A log with the feed ``f``."""
    log = Log.open(folder, settings=LogSettings(disk_reserve_bytes=RESERVE), disk=disk)
    await log.start()
    try:
        await log.register(register("f"))
        async with asyncio.timeout(WAIT_S_MAX):
            yield log
    finally:
        await log.close()


async def test_a_folder_whose_name_is_no_utf8_can_be_told_of(tmp_path: Path) -> None:
    disk = RoomyDisk()
    async with running(tmp_path / os.fsdecode(b"caf\xe9"), disk) as log:
        disk.free = 0
        with pytest.raises(DiskReserve) as refusal:
            await log.append(append("f", "x"))
        assert r"caf\udce9" in refusal.value.detail
        await async_wait_until(lambda: [row.code for row in log.metadata.alarms()] == ["disk-reserve"])
        (row,) = log.metadata.alarms()
        assert r"caf\udce9" in row.detail
        disk.free = 10 << 30
        assert (await log.append(append("f", "y"))).first_sequence_id == 1


async def test_an_alarm_that_can_not_be_raised_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("no alarm today")

    disk = RoomyDisk()
    async with running(tmp_path, disk) as log:
        monkeypatch.setattr(log.metadata, "raise_alarm", fail)
        monkeypatch.setattr(log._writer, "_on_trouble", fail)
        disk.free = 0
        for _ in range(2):
            with pytest.raises(DiskReserve):
                await log.append(append("f", "x"))
        log.troubles.tell(DiskReserve, "not stored")
        assert [row.detail for row in log.troubles.among([])] == ["not stored"]
        disk.free = 10 << 30
        assert (await log.append(append("f", "y"))).first_sequence_id == 1
        assert log.not_ready == []


class Sudden(BaseException):
    """What no handler of errors catches."""


async def test_nobody_waits_for_a_writer_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, RoomyDisk()) as log:

        def end(feeds: Collection[str]) -> Begin:
            raise Sudden("of its own")

        held = asyncio.Event()
        loop = asyncio.get_running_loop()
        working = asyncio.create_task(
            log._writer.run(lambda: asyncio.run_coroutine_threadsafe(held.wait(), loop).result())
        )
        await asyncio.wait({working}, timeout=0)
        monkeypatch.setattr(log.store, "begin", end)
        asked = [log.append_soon(append("f", f"{number}"), loop.create_future()) for number in range(5)]
        later = asyncio.create_task(log.roll())
        await asyncio.wait({later}, timeout=0)
        held.set()
        assert await working is True
        answers = await asyncio.gather(*asked, later, return_exceptions=True)
        assert [type(answer) for answer in answers] == [WriterStopped] * 6
        for answer in answers:
            assert isinstance(answer, HeadraceError)
            assert refusal_of(answer).side_effects == "possible"
        with pytest.raises(WriterStopped, match="Sudden"):
            await log.append_soon(append("f", "late"), loop.create_future())
        with pytest.raises(WriterStopped, match="Sudden"):
            await log.roll()
        assert any("Sudden: of its own" in reason for reason in log.not_ready)
        service = Service(log)
        assert service.readiness().status == "not-ready"
        assert service.not_appending()
        assert not service.not_reading()
        await async_wait_until(lambda: [row.code for row in log.metadata.alarms()] == ["writer-stopped"])


async def test_a_store_that_confirms_nothing_for_a_minute_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, go_on = ManualClock(), threading.Event()
    log = Log.open(tmp_path, settings=LogSettings(disk_reserve_bytes=RESERVE), clock=clock, disk=RoomyDisk())
    await log.start()
    await log.register(register("f"))
    put = log.store.put

    def hang(*given: Any) -> Any:
        go_on.wait(WAIT_S_MAX)
        return put(*given)

    monkeypatch.setattr(log.store, "put", hang)
    clock.seconds += 1_000
    assert log.not_ready == [], "nothing waits, however long"
    waiting = asyncio.create_task(log.append(append("f", "x")))
    await async_wait_until(lambda: log._writer._busy_since is not None)
    clock.seconds += 59.9
    assert log.not_ready == []
    clock.seconds += 0.1
    assert "for 60 s (stalled)" in log.not_ready[0]
    go_on.set()
    assert (await waiting).first_sequence_id == 1
    await async_wait_until(lambda: log.not_ready == [], what="the writer to be done with the group")
    await log.close()
