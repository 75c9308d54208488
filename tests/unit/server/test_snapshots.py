"""Where a publisher serves snapshots, between a takeover and the note of it: a crash may stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import NoSnapshot, SequenceNotAvailable
from headrace.log.log import Log
from headrace.server.snapshots import SnapshotAsk, Snapshots
from headrace.testing.clock import ManualClock
from tests.bench import register

URL = "http://127.0.0.1:1/snapshot"


async def test_address_of_a_publisher_that_was_taken_over_is_good_for_nobody(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path, clock=clock)
    await log.start()
    try:
        snapshots = Snapshots(log, clock)
        first = await log.register(register("f", "agent-1"))
        key = await snapshots.registered(first, URL)
        assert (await snapshots.address("f", SnapshotAsk("l"))).startswith(f"{URL}?")
        second = await log.register(register("f", "agent-2", takeover=True))
        with pytest.raises(NoSnapshot):
            await snapshots.address("f", SnapshotAsk("l"))
        refusal = SequenceNotAvailable("gone")
        await snapshots.complete(refusal, "f")
        assert "snapshot" not in refusal.members
        own = await snapshots.registered(second, URL)
        assert own not in {None, key}
        late = await snapshots.registered(first, f"{URL}/late")
        assert late not in {own, key}, "who comes too late learns nothing"
        assert (await snapshots.address("f", SnapshotAsk("l"))).startswith(f"{URL}?")
        await snapshots.complete(refusal, "f")
        assert refusal.members["snapshot"] == "/feeds/f/snapshot"
    finally:
        await log.close()
