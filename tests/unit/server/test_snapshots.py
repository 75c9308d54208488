"""Where a publisher serves snapshots, between a takeover and the note of it: a crash may stand there."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import NoSnapshot, SequenceNotAvailable, SnapshotForbidden
from headrace.log.log import Log
from headrace.server.snapshots import SnapshotAsk, Snapshots, parse_origins
from headrace.testing.clock import ManualClock
from tests.bench import register

URL = "http://127.0.0.1:1/snapshot"


async def test_address_of_a_publisher_that_was_taken_over_is_good_for_nobody(tmp_path: Path) -> None:
    clock = ManualClock()
    log = Log.open(tmp_path, clock=clock)
    await log.start()
    try:
        snapshots = Snapshots(log, clock, local=True)
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
        late = await snapshots.registered(first, URL.replace("1/", "2/"))
        assert late not in {own, key}, "who comes too late learns nothing"
        assert (await snapshots.address("f", SnapshotAsk("l"))).startswith(f"{URL}?")
        await snapshots.complete(refusal, "f")
        assert refusal.members["snapshot"] == "/feeds/f/snapshot"
    finally:
        await log.close()


@pytest.mark.parametrize(
    ("allowed", "local", "sent"),
    [
        ((), True, True),
        ((), False, False),
        (("http://127.0.0.1:1",), False, True),
        (("http://a",), True, False),
    ],
)
async def test_listeners_are_sent_where_it_is_allowed(
    tmp_path: Path, allowed: tuple[str, ...], *, local: bool, sent: bool
) -> None:
    log = Log.open(tmp_path, clock=ManualClock())
    await log.start()
    try:
        snapshots = Snapshots(log, ManualClock(), parse_origins(allowed), local=local)
        tail = await log.register(register("f", "agent-1"))
        await snapshots.registered(tail, URL)
        refusal = SequenceNotAvailable("gone")
        await snapshots.complete(refusal, "f")
        assert ("snapshot" in refusal.members) == sent
        if sent:
            await snapshots.address("f", SnapshotAsk("l"))
        else:
            with pytest.raises(SnapshotForbidden, match="not allowed"):
                await snapshots.address("f", SnapshotAsk("l"))
        # as an earlier version took it at a registration
        await snapshots.registered(tail, "http://127.0.0.1:1/admin")
        with pytest.raises(SnapshotForbidden):
            await snapshots.address("f", SnapshotAsk("l"))
    finally:
        await log.close()
