"""The log as servers use it: group commit, waiting for more, releases, alarms, and closing while others wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.errors import (
    DuplicateEntry,
    FeedNotFound,
    HeadraceError,
    InvalidRequest,
    JournalCorrupt,
    OffsetMismatch,
    WriterStopped,
)
from headrace.log.files.store import FileStore
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.opening import Opened
from headrace.log.requests import Appended
from headrace.log.tail import FeedTail
from headrace.runtime.disk import Disk
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.wire.frame import HEADER_SIZE
from tests.bench import AGENT, Bench, append, expecting, register
from tests.fault.journals import flip, headers, opened
from tests.waiting import async_wait_until

FEED = "vmapi::vm"


@asynccontextmanager
async def running(
    folder: Path, disk: Disk | None = None, clock: ManualClock | None = None
) -> AsyncIterator[Log]:
    """A started log with one registered feed."""
    log = Log.open(folder, disk=disk, clock=clock)
    await log.start()
    try:
        await log.register(register(FEED))
        yield log
    finally:
        await log.close()


async def test_appends_are_answered_in_the_order_of_the_journal(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        answers = await asyncio.gather(*[log.append(expecting(FEED, n, f"v{n}")) for n in range(1, 501)])
        assert [answer.first_sequence_id for answer in answers] == list(range(1, 501))
        lsns = [answer.first_lsn for answer in answers]
        assert lsns == sorted(set(lsns))
        assert (log.tail(FEED).head, log.tail(FEED).newest) == (500, lsns[-1])


async def test_requests_that_wait_share_one_sync(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running(tmp_path, disk) as log:
        for feed in ("x", "y", "z"):
            await log.register(register(feed))
        disk.steps.clear()
        await asyncio.gather(*[log.append(append(feed, "v")) for feed in ("x", "y", "z") for _ in range(100)])
        syncs = sum(1 for step, _ in disk.steps if step == Step.SYNC)
        assert 1 <= syncs <= 30, "300 appends over three feeds"


async def test_refusals_are_raised_and_hurt_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        answers = await asyncio.gather(
            log.append(append(FEED, "a")),
            log.append(expecting(FEED, 9, "b")),
            log.append(append("nowhere", "c")),
            log.append(append(FEED, "d")),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [Appended, OffsetMismatch, FeedNotFound, Appended]
        with pytest.raises(FeedNotFound):
            log.tail("nowhere")


async def test_caller_that_gives_up_takes_nothing_back(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        given_up = asyncio.create_task(log.append(expecting(FEED, 1, "a")))
        await asyncio.wait([given_up], timeout=0)
        given_up.cancel()
        answer = await log.append(expecting(FEED, 1, "a"))
        assert answer.first_sequence_id == 1
        assert log.tail(FEED).head == 1


async def test_waiting_ends_with_the_entry(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        waiting = [asyncio.create_task(log.wait_past(FEED, 0, 30)) for _ in range(20)]
        further = asyncio.create_task(log.wait_past(FEED, 1, 30))
        await asyncio.wait(waiting, timeout=0.01)
        await log.append(append(FEED, "a"))
        assert await asyncio.gather(*waiting) == [True] * 20
        assert not further.done()
        await log.append(append(FEED, "b"))
        assert await further
        assert await log.wait_past(FEED, 1, 0)


async def test_waiting_ends_at_its_time(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        assert not await log.wait_past(FEED, 0, 0)
        assert not await log.wait_past(FEED, 0, 0.02)
        await log.append(append(FEED, "a"))
        assert not await log.wait_past(FEED, 1, 0.02)
        assert not await log.wait_past(FEED, 77, 0.02)


async def test_waiting_minds_its_own_feed(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.register(register("other"))
        waiting = asyncio.create_task(log.wait_past(FEED, 0, 30))
        for _ in range(50):
            await log.append(append("other", "x"))
        assert not waiting.done()
        await log.append(append(FEED, "a"))
        assert await waiting


async def test_no_wake_up_is_lost(tmp_path: Path) -> None:
    """Readers that wait for exactly the next entry while a writer goes on: nobody waits until the time-out."""

    async def follow(log: Log, last: int) -> int:
        seen = 0
        while seen < last:
            assert await log.wait_past(FEED, seen, 20), (
                f"waited in vain at {seen}, the head is {log.tail(FEED).head}"
            )
            seen = log.tail(FEED).head
        return seen

    async with running(tmp_path) as log:
        readers = [asyncio.create_task(follow(log, 400)) for _ in range(5)]
        for number in range(1, 401):
            await log.append(expecting(FEED, number, "v"))
        assert await asyncio.wait_for(asyncio.gather(*readers), 10) == [400] * 5


class _MovingStore(FileStore):
    """Its end moves right after it was looked at, once: the moment in which a wake-up is easily lost."""

    armed = False

    def tail(self, feed: str) -> FeedTail | None:
        found = super().tail(feed)
        if self.armed:
            self.armed = False
            Bench(self).append(feed, "just now")
        return found


@pytest.mark.parametrize("others_wait", [False, True])
async def test_entry_that_comes_between_looking_and_waiting(tmp_path: Path, others_wait: bool) -> None:
    store = _MovingStore(tmp_path)
    Bench(store).register(FEED)
    log = Log(Opened(store, SqliteMetadata(tmp_path / METADATA_NAME), None), LogSettings(), ManualClock())
    await log.start()
    waiting = []
    if others_wait:
        waiting.append(asyncio.create_task(log.wait_past(FEED, 0, 30)))
        await asyncio.wait(waiting, timeout=0.01)
    store.armed = True
    waiting.append(asyncio.create_task(log.wait_past(FEED, 0, 30)))
    assert all(await asyncio.wait_for(asyncio.gather(*waiting), 10))
    await log.close()


async def test_closing_lets_those_go_who_wait(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await log.start()
    await log.register(register(FEED))
    waiting = asyncio.create_task(log.wait_past(FEED, 0, 30))
    await asyncio.wait([waiting], timeout=0.01)
    await log.close()
    assert not await asyncio.wait_for(waiting, 10)
    with pytest.raises(WriterStopped, match="stopping"):
        await log.append(append(FEED, "a"))


async def test_every_append_is_answered_however_close_the_end(tmp_path: Path) -> None:
    """Those sent while the log is closed are answered as well: with their place, or with a refusal."""
    for number in range(20):
        log = Log.open(tmp_path / str(number))
        await log.start()
        await log.register(register(FEED))
        sent = [asyncio.create_task(log.append(append(FEED, "v"))) for _ in range(50)]
        closing = asyncio.create_task(log.close())
        sent += [asyncio.create_task(log.append(append(FEED, "v"))) for _ in range(50)]
        answers = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), 20)
        await closing
        taken = sum(isinstance(answer, Appended) for answer in answers)
        assert all(isinstance(answer, Appended | WriterStopped) for answer in answers)
        with opened(tmp_path / str(number)) as bench:
            assert bench.tail(FEED).head == taken


async def test_log_that_was_not_started_takes_nothing(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    with pytest.raises(WriterStopped):
        await log.append(append(FEED, "a"))
    await log.close()


async def test_stopped_writer_says_why_and_readers_go_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with running(tmp_path, disk) as log:
        await log.append(append(FEED, "a"))
        assert log.not_ready == []
        disk.faults.append(Fault(Step.SYNC, suffix=".seg"))
        answers = await asyncio.gather(
            *[log.append(append(FEED, "b")) for _ in range(3)], return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {WriterStopped}
        assert "did not confirm" in log.not_ready[0]
        frames = await log.read(FEED, 1, 9, entries_max=9, bytes_max=1 << 20)
        assert [frame.header.first_sequence_id for frame in frames] == [1]


async def test_release_lifts_a_quarantine_wherever_it_stands(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        await log.register(register("other"))
        for feed in (FEED, "other"):
            await log.append(append(feed, "a"))
            with pytest.raises(DuplicateEntry):
                await log.append(append(feed, "a", sequence_ids=(1,)))
        assert await log.release("agent-2") == []
        assert await log.release(AGENT) == [FEED, "other"]
        assert await log.release(AGENT) == []
        assert (await log.append(append(FEED, "b"))).first_sequence_id == 2


async def test_bounds_of_a_read(tmp_path: Path) -> None:
    async with running(tmp_path) as log:
        for number in range(10):
            await log.append(append(FEED, f"{number}a", f"{number}b"))
        assert [
            f.header.first_sequence_id for f in await log.read(FEED, 4, 8, entries_max=99, bytes_max=9999)
        ] == [3, 5, 7]
        assert len(await log.read(FEED, 1, 20, entries_max=3, bytes_max=1 << 20)) == 2
        assert len(await log.read(FEED, 1, 20, entries_max=99, bytes_max=1)) == 1
        assert await log.read(FEED, 21, 30, entries_max=99, bytes_max=9999) == []
        assert await log.lsn_at(FEED, 20) == log.tail(FEED).newest
        assert await log.lsn_at(FEED, 21) is None
        first = (await log.read(FEED, 1, 1, entries_max=1, bytes_max=1))[0].header
        assert await log.lsn_at(FEED, 2) == first.lsn(1)


async def test_what_recovery_found_becomes_one_alarm(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.register(FEED)
        for value in "abc":
            bench.append(FEED, value)
        frames = headers(bench)[1:3]
    for header in frames:
        flip(tmp_path, header.position + HEADER_SIZE)
    log = Log.open(tmp_path, clock=ManualClock())
    (alarm,) = log.metadata.alarms()
    assert alarm.code == JournalCorrupt.code
    assert all(f"{header.position:#x}" in alarm.detail for header in frames)
    await log.close()


def test_region_must_be_a_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="region"):
        Log.open(tmp_path, settings=LogSettings(region="eu:west"))
    assert not list(tmp_path.iterdir())


async def test_folder_is_free_again_after_a_failed_opening(tmp_path: Path) -> None:
    (tmp_path / METADATA_NAME).write_bytes(b"no database at all, but long enough to be looked at" * 20)
    with pytest.raises(JournalCorrupt, match=METADATA_NAME):
        Log.open(tmp_path)
    (tmp_path / METADATA_NAME).unlink()
    async with running(tmp_path) as log:
        assert log.feeds()[0].name == FEED


async def test_clock_goes_on_after_a_restart_with_a_clock_set_back(tmp_path: Path) -> None:
    clock = ManualClock()
    async with running(tmp_path, clock=clock) as log:
        first = (await log.append(append(FEED, "a"))).last_lsn
    clock.ms -= 600_000
    async with running(tmp_path, clock=clock) as log:
        assert (await log.append(append(FEED, "b"))).first_lsn > first
    clock.ms -= 3_600_000
    with pytest.raises(HeadraceError) as refusal:
        async with running(tmp_path, clock=clock):
            raise AssertionError("the clock leads by more than an hour")
    assert refusal.value.code == "clock-lead"


async def test_wait_until_helper_sees_durable_tails(tmp_path: Path) -> None:
    """The tail moves only with durability, from the writer's thread."""
    async with running(tmp_path) as log:
        sent = asyncio.create_task(log.append(append(FEED, "a")))
        await async_wait_until(lambda: log.tail(FEED).head == 1)
        assert (await sent).last_sequence_id == 1
