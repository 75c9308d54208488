"""Retention on full disks, beside wrong clocks, after outages, and against whoever comes while it works."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path

import pytest

from headrace.errors import StoreUnavailable
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, FaultyDisk, Step
from headrace.wire import documents as doc
from tests.unit.server.retention.benches import HOUR, opened
from tests.waiting import async_wait_until


async def test_who_begins_to_hold_while_a_pass_runs_is_answered_what_is_left(tmp_path: Path) -> None:
    """The pass has looked for the last time without the newcomer: the answer must wait for what it drops."""
    async with opened(tmp_path) as bench:
        await bench.write("a", 30)
        await bench.log.roll()
        ask = doc.RegisterListener(listener_id="new", change_feed_id="a", hold=True)
        looking, go_on = threading.Event(), threading.Event()

        def look() -> int:
            looking.set()
            assert go_on.wait(30)
            return bench.log.store.end()

        dropping = asyncio.create_task(bench.log.drop_before(bench.log.store.end(), look=look))
        assert await asyncio.to_thread(looking.wait, 30)
        answer = asyncio.create_task(bench.service.register_listener(ask))
        with pytest.raises(AssertionError, match="in vain"):
            await async_wait_until(answer.done, 0.2)
        go_on.set()
        await dropping
        assert (await answer).oldest_sequence_id == bench.oldest() == 31


async def test_who_begins_to_hold_while_a_pass_makes_its_plan_keeps_what_it_was_answered(
    tmp_path: Path,
) -> None:
    """The plan would drop everything; the last look finds the newcomer."""
    async with opened(tmp_path) as bench:
        await bench.write("a", 30)
        await bench.later(10)
        bench.wait(48)
        retention, survey = bench.service.retention, await bench.service.retention.survey()
        assert survey.plan.position > survey.segments[0].first_position
        ask = doc.RegisterListener(listener_id="new", change_feed_id="a", hold=True)
        assert (await bench.service.register_listener(ask)).oldest_sequence_id == 1
        gone_by = await retention._drop(survey)
        assert bench.oldest() == 1
        assert [one.name for one in gone_by.consumers] == ["new"]
        assert retention.segments_dropped.total() == 0
        await bench.report("new", 12)
        await bench.later(0)
        assert 1 < bench.oldest() <= 13
        survey = await retention.survey()
        await bench.report("new", 30)
        await retention._drop(survey)
        assert bench.oldest() <= 13, "who has moved forward lets go at the next pass"
        await bench.report("new", 14)
        survey = await retention.survey()
        await bench.report("new", 13)
        await retention._drop(survey)
        assert bench.oldest() <= 14, "who has moved back is looked up"


async def test_nobody_expires_while_the_server_was_down(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path, clock) as bench:
        await bench.write("a", 30)
        await bench.listen("holds", 17, hold=True)
        await bench.later(10)
    clock.ms += 100 * HOUR
    async with opened(tmp_path, clock) as bench:
        await bench.later(0)
        assert 1 < bench.oldest() <= 18
        await bench.later(0.99)
        assert bench.oldest() <= 18
        await bench.later(0.01)
        assert bench.oldest() == 31, "an hour was given"


async def test_a_clock_that_leaps_ahead_does_not_empty_the_log(tmp_path: Path) -> None:
    """It is followed at twice the pace of the steady clock; set right again, nothing was lost."""
    async with opened(tmp_path) as bench:
        await bench.write("a", 30)
        await bench.later(10)
        bench.clock.ms += 1000 * HOUR
        await bench.later(18)
        assert bench.oldest() == 1
        bench.clock.ms -= 1000 * HOUR
        await bench.later(19.99)
        assert bench.oldest() == 1
        await bench.later(0.01)
        assert bench.oldest() == 31


async def test_a_leap_is_followed_in_the_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        await bench.write("a", 30)
        await bench.later(0)
        bench.clock.ms += 1000 * HOUR
        await bench.later(23)
        assert bench.oldest() == 1
        await bench.later(1)
        assert bench.oldest() > 20, "48 hours in 24"


async def test_a_full_disk_stops_neither_drop_nor_readers(tmp_path: Path) -> None:
    """Nothing can be sealed there, and what could be dropped before still is."""
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as bench:
        await bench.write("a", 30)
        await bench.later(1)
        disk.faults.append(Fault(Step.WRITE, errno.ENOSPC, suffix=".seg", times=None))
        await bench.later(47)
        assert bench.oldest() > 20
        disk.faults.clear()
        await bench.later(0)
        await bench.later(0)
        assert bench.oldest() == 31


async def test_what_could_not_be_removed_is_removed_by_the_next_pass(tmp_path: Path) -> None:
    disk = FaultyDisk()
    async with opened(tmp_path, disk=disk) as bench:
        await bench.write("a", 30)
        await bench.later(10)
        disk.faults.append(Fault(Step.REMOVE, errno.EACCES))
        with pytest.raises(StoreUnavailable):
            await bench.later(48)
        assert len(list((tmp_path / "journal").iterdir())) > 5
        await bench.later(0)
        assert len(list((tmp_path / "journal").iterdir())) == 1
