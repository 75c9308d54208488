"""Dropping and sealing go through the one writer: between groups, in order with appends, with errors where they belong."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StoreUnavailable, WriterStopped
from headrace.log.history import SIZED_FRAMES_MAX, bytes_behind
from headrace.log.log import Log
from headrace.log.requests import Appended
from headrace.testing.disk import Fault, FaultyDisk, Step
from tests.bench import append, expecting, register


async def test_seals_and_drops_come_between_the_groups_that_wait(tmp_path: Path) -> None:
    """Appends, seals and drops that are asked for at once: none is lost, none is torn, and each is answered."""
    log = Log.open(tmp_path)
    await log.start()
    await log.register(register("a"))
    asked: list[Coroutine[Any, Any, object]] = []
    for number in range(1, 301):
        asked.append(log.append(expecting("a", number, f"v{number}")))
        if number % 50 == 0:
            asked += [log.roll(), log.drop_before(log.store.oldest_position() + 1)]
    answers = await asyncio.gather(*asked)
    places = [one.first_sequence_id for one in answers if isinstance(one, Appended)]
    assert places == list(range(1, 301))
    assert log.tail("a").head == 300
    assert len(log.store.segments()) > 2
    frames = await log.read("a", log.tail("a").oldest, 300, entries_max=300, bytes_max=1 << 20)
    assert frames[-1].header.last_sequence_id == 300
    await log.close()


async def test_what_work_raises_comes_back_and_appends_go_on(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = Log.open(tmp_path, disk=disk)
    await log.start()
    await log.register(register("a"))
    await log.append(append("a", "x"))
    await log.roll()
    disk.faults.append(Fault(Step.REMOVE, errno.EACCES))
    with pytest.raises(StoreUnavailable):
        await log.drop_before(log.store.end())
    assert (await log.append(append("a", "y"))).first_sequence_id == 2
    assert await log.drop_before(0) == log.store.oldest_position(), "what was left is done first"
    assert len(list((tmp_path / "journal").iterdir())) == 1
    await log.close()
    with pytest.raises(WriterStopped):
        await log.roll()


async def test_a_long_lag_in_bytes_is_reckoned_from_its_beginning(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await log.start()
    await log.register(register("a"))
    count = 2 * SIZED_FRAMES_MAX
    await asyncio.gather(*[log.append(append("a", "same size")) for _ in range(count)])
    tail = log.tail("a")
    (place,) = log.store.places(tail.region_id, count, count, frames_max=1)
    assert bytes_behind(log.store, tail, 0) == count * place.size
    assert bytes_behind(log.store, tail, count - 5) == 5 * place.size
    await log.close()
