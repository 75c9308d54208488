"""An alarm stands while its reason does: it outlives a restart, and is cleared by who puts the reason right."""

from __future__ import annotations

import errno
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt, WriterStopped
from headrace.log.log import Log, LogSettings
from headrace.log.requests import Register
from headrace.runtime.disk import Disk
from headrace.server.service import Service
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.wire.frame import HEADER_SIZE
from tests.bench import AGENT, INCARNATION, append
from tests.fault.journals import flip
from tests.waiting import async_wait_until

SEGMENT_BYTES = 4000


@asynccontextmanager
async def served(folder: Path, disk: Disk | None = None) -> AsyncIterator[Service]:
    """A server's use cases over a log of small segments, started as a server starts them."""
    settings = LogSettings(segment_bytes=SEGMENT_BYTES, disk_reserve_bytes=0)
    log = Log.open(folder, settings=settings, disk=disk)
    await log.start()
    service = Service(log)
    try:
        await service.start()
        yield service
    finally:
        await service.close()
        await log.close()


async def standing(service: Service) -> list[tuple[str, str]]:
    """The alarms that stand: (code, feed)."""
    found = (await service.alarms()).alarms
    return [(alarm.code, alarm.change_feed_id) for alarm in found if alarm.cleared_at is None]


async def looked(service: Service) -> list[tuple[str, str]]:
    """The alarms that stand after the damage was looked at once more."""
    service.log.damage.look_again()
    return await standing(service)


async def none_stands(service: Service) -> bool:
    return not await standing(service)


async def fill(service: Service) -> int:
    """Two feeds in several segments; returns the position of a frame of the feed ``a`` in the oldest one."""
    for feed in ("a", "b"):
        await service.log.register(Register(feed, AGENT, AGENT, "", INCARNATION))
    position = service.log.store.end()
    for number in range(12):
        await service.log.append(append("a", f"{number}" + "x" * 900))
        await service.log.append(append("b", f"{number}"))
    return position


async def meet_damage(service: Service, feed: str = "a") -> None:
    with pytest.raises(JournalCorrupt):
        await service.log.read(feed, 1, 12, entries_max=100, bytes_max=1 << 20)


async def test_damage_stands_over_restarts_until_the_file_is_put_back(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with served(data) as service:
        position = await fill(service)
    shutil.copytree(data, tmp_path / "copy")
    flip(data, position + 500)
    async with served(data) as service:
        assert await standing(service) == [], "nobody has read it yet"
        await meet_damage(service)
        assert await looked(service) == [("journal-corrupt", "a")]
    async with served(data) as service:
        assert await looked(service) == [("journal-corrupt", "a")], "another process, the same damage"
    for whole in sorted((tmp_path / "copy" / "journal").glob("*.seg")):
        shutil.copy(whole, data / "journal" / whole.name)
    async with served(data) as service:
        await async_wait_until(lambda: none_stands(service), what="the alarm to be cleared")
        (alarm,) = (await service.alarms()).alarms
        assert alarm.cleared_at is not None, "it stays to be seen"


async def test_damage_in_one_of_two_feeds_that_is_mended_leaves_the_other(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with served(data) as service:
        position = await fill(service)
        other = service.log.store.places(2, 1, 1, frames_max=1)[0].position
        flip(data, position + 500)
        flip(data, other + HEADER_SIZE + 20)
        await meet_damage(service)
        await meet_damage(service, "b")
        flip(data, other + HEADER_SIZE + 20)
        assert await looked(service) == [("journal-corrupt", "a")]
        await meet_damage(service)


async def test_damage_that_retention_has_dropped_is_no_alarm_any_more(tmp_path: Path) -> None:
    async with served(tmp_path) as service:
        position = await fill(service)
        flip(tmp_path, position + 500)
        await meet_damage(service)
        assert await looked(service) == [("journal-corrupt", "a")]
        await service.log.drop_before(service.log.store.end())
        assert await looked(service) == []


async def test_damage_that_an_opening_found_stands_until_the_journal_is_whole(tmp_path: Path) -> None:
    async with served(tmp_path) as service:
        await fill(service)
        last = service.log.store.end()
        await service.log.append(append("a", "last"))
    flip(tmp_path, last + 150)
    async with served(tmp_path) as service:
        assert await looked(service) == [("journal-corrupt", "")]
        flip(tmp_path, last + 150)
        assert await looked(service) == [("journal-corrupt", "")], (
            "what this opening found, only another one takes back"
        )
        flip(tmp_path, last + 150)
        await service.log.append(append("b", "more"))
        await service.log.roll()
        await service.log.append(append("b", "in a new segment, the only one that the next opening replays"))
    async with served(tmp_path) as service:
        assert await looked(service) == [("journal-corrupt", "")]
    flip(tmp_path, last + 150)
    async with served(tmp_path) as service:
        await async_wait_until(lambda: none_stands(service), what="the alarm to be cleared")


async def test_alarm_of_a_writer_that_stopped_says_what_it_takes(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with served(tmp_path, disk) as service:
        await fill(service)
        disk.faults.append(Fault(Step.SYNC, errno.EIO, suffix=".seg"))
        with pytest.raises(WriterStopped):
            await service.log.append(append("a", "x"))

        async def told() -> bool:
            return await standing(service) == [("writer-stopped", "")]

        await async_wait_until(told)
        (alarm,) = (await service.alarms()).alarms
        assert "until this server is restarted" in alarm.detail
