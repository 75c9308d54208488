"""Subscribers' rows that go while servers are at work: what is acked is stored, and who has a stream open holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.entries.lsn import ZERO, Lsn
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.contract import RowDamage, SubscriberRow
from headrace.log.metadata.rows import Table
from headrace.log.retention.consumers import find_consumers
from headrace.log.retention.plan import FORGET_MS, RetentionSettings, Terms
from headrace.server.retention.explaining import explain
from headrace.server.retention.loop import Retention
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.testing.clock import ManualClock
from headrace.wire.batch import Batch, Heartbeat
from tests.bench import append, register

ONE, TWO = Subscriber("anonymous", "one"), Subscriber("anonymous", "two")
EXPIRY_S = 24 * 3600


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Log, Subscriptions, ManualClock]]:
    """A log of small segments with 20 frames, which are old after an hour."""
    clock = ManualClock()
    retention = RetentionSettings(retention_s=3600, subscriber_expiry_s=EXPIRY_S)
    log = Log.open(folder, clock=clock, settings=LogSettings(segment_bytes=1000, retention=retention))
    subscriptions = Subscriptions(log, clock=clock)
    try:
        await log.start()
        await subscriptions.start()
        await log.register(register("f"))
        for number in range(20):
            await log.append(append("f", f"{number}" * 100))
        yield log, subscriptions, clock
    finally:
        await subscriptions.close()
        await log.close()


def remove_rows(log: Log) -> None:
    """What ``headrace log repair`` comes to where every row is damaged."""
    assert log.metadata.forget_subscribers(1 << 62, 1 << 30)


def row_of(who: Subscriber, lsn: Lsn, seen_at_ms: int) -> SubscriberRow:
    return SubscriberRow(who.subject, who.subscriber_id, str(lsn), seen_at_ms)


def pass_seconds(clock: ManualClock, seconds: float) -> None:
    clock.ms += round(seconds * 1000)
    clock.seconds += seconds


async def next_place(items: AsyncIterator[Batch | Heartbeat]) -> Lsn:
    """The last LSN of the stream's next batch."""
    batch = await anext(items)
    assert isinstance(batch, Batch)
    return batch.last_lsn


async def note_nothing() -> None:
    pass


@pytest.mark.parametrize("again", [False, True], ids=["a new place", "the same place again"])
async def test_an_ack_is_answered_once_it_is_stored_though_the_row_had_gone(
    tmp_path: Path, again: bool
) -> None:
    async with (
        running(tmp_path) as (log, subscriptions, clock),
        aclosing(subscriptions.subscribe(ONE, Ask(entries_max=1))) as items,
    ):
        lsns = [await next_place(items) for _ in range(3)]
        await subscriptions.ack(ONE, lsns[1])
        remove_rows(log)
        at = lsns[1] if again else lsns[2]
        assert await subscriptions.ack(ONE, at) == at
        assert log.metadata.subscribers() == [row_of(ONE, at, clock.wall_ms())]


async def test_a_row_that_has_gone_comes_back_where_it_was(tmp_path: Path) -> None:
    async with (
        running(tmp_path) as (log, subscriptions, clock),
        aclosing(subscriptions.subscribe(ONE, Ask(entries_max=1))) as items,
    ):
        at = await next_place(items)
        await subscriptions.ack(ONE, at)
        remove_rows(log)
        await subscriptions._acks.seen([ONE])
        assert log.metadata.subscribers() == [row_of(ONE, at, clock.wall_ms())]


@pytest.mark.parametrize("state", ["gone", "expired", "moved on"])
async def test_who_has_a_stream_open_holds_whatever_is_stored(tmp_path: Path, state: str) -> None:
    async with running(tmp_path) as (log, subscriptions, clock):
        retention = Retention(log, clock, note_nothing)
        async with aclosing(subscriptions.subscribe(ONE, Ask(entries_max=1))) as items:
            lsns = [await next_place(items) for _ in range(8)]
            await subscriptions.ack(ONE, lsns[-1])
            if state == "gone":
                remove_rows(log)
            elif (
                state == "moved on"
            ):  # what a flipped bit may come to, or another server that was told too much
                log.metadata.move_subscribers([(*ONE, str(log.tail("f").newest))], clock.wall_ms())
            pass_seconds(clock, 3 * EXPIRY_S)
            await retention.run_pass()
            oldest = log.tail("f").oldest
            assert 2 < oldest <= 9, "what is behind it goes, and nothing of what it needs"
            (consumer,) = (await explain(log, retention)).consumers
            assert consumer.holds_until is not None
        await retention.run_pass()
        assert log.tail("f").oldest > 9, "and once it has gone for long it does not"


async def test_who_has_held_nothing_for_long_is_removed(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions, clock):
        retention = Retention(log, clock, note_nothing)
        for who in (ONE, TWO):
            async with aclosing(subscriptions.subscribe(who)) as items:
                await anext(items)
        pass_seconds(clock, EXPIRY_S + FORGET_MS / 1000 - 2)
        await subscriptions._acks.seen([TWO])
        await retention.run_pass()
        assert len(log.metadata.subscribers()) == 2
        shown = {one.name: one for one in (await explain(log, retention)).consumers}
        assert shown["anonymous/one"].holds_until is None
        assert shown["anonymous/one"].forgotten_at is not None
        pass_seconds(clock, 2)
        await retention.run_pass()
        assert [row.subscriber_id for row in log.metadata.subscribers()] == ["two"]
        await subscriptions._acks.load()
        assert subscriptions._acks.place(ONE) is None


async def test_right_after_a_start_nobody_is_removed(tmp_path: Path) -> None:
    """The clock may have been wrong, or the server away for weeks."""
    async with running(tmp_path) as (log, subscriptions, clock):
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            await anext(items)
        pass_seconds(clock, 100 * EXPIRY_S)
        await Retention(log, clock, note_nothing).run_pass()
        assert len(log.metadata.subscribers()) == 1


async def test_an_ack_reads_no_other_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as (log, subscriptions, clock):
        async with (
            aclosing(subscriptions.subscribe(ONE, Ask(entries_max=1))) as items,
            aclosing(subscriptions.subscribe(TWO, Ask(entries_max=1))) as others,
        ):
            first = await next_place(others)

            def read_all() -> list[SubscriberRow]:
                raise AssertionError("an ack reads all rows")

            monkeypatch.setattr(log.metadata, "subscribers", read_all)
            newest = ZERO
            for at in [await next_place(items) for _ in range(5)]:
                newest = at
                assert await subscriptions.ack(ONE, at) == ZERO, "the other one has acked nothing"
            assert await subscriptions.ack(TWO, first) == first
        monkeypatch.undo()
        pass_seconds(clock, EXPIRY_S + 3600)
        async with aclosing(subscriptions.subscribe(ONE)) as items:
            again = await next_place(items)
            assert await subscriptions.ack(ONE, again) == newest, "the other one has expired"


async def test_damage_outside_of_who_holds_is_not_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be many alarms, and each look of retention would read them all."""
    async with running(tmp_path) as (log, _, _):
        looked: list[str] = []
        check = log.metadata.check

        def noting(tables: Sequence[Table[Any]]) -> list[RowDamage]:
            looked.extend(table.name for table in tables)
            return check(tables)

        monkeypatch.setattr(log.metadata, "check", noting)
        find_consumers(log.store, log.metadata, Terms(0, 0, 0, 0))
        assert sorted(looked) == ["hydration", "listener", "subscriber"]
