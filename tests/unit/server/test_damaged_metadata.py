"""A damaged row beside the journal, as a server's callers meet it: its owner is told, the rest goes on, an alarm stands."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import MetadataCorrupt
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.log.retention.consumers import find_consumers
from headrace.log.retention.plan import RetentionSettings
from headrace.server.reading import Known
from headrace.server.service import Service
from headrace.server.streams.subscriptions import Subscriber, Subscriptions
from headrace.testing.clock import ManualClock
from headrace.wire import documents as doc
from headrace.wire.batch import Batch
from tests.bench import append, register

NOBODY = Known(None, None)
ONE, TWO = Subscriber("anonymous", "one"), Subscriber("anonymous", "two")
DAY_MS = 86_400_000


def hurt(folder: Path, statement: str) -> None:
    """Change a row behind the server's back."""
    with closing(sqlite3.connect(folder / METADATA_NAME)) as database, database:
        assert database.execute(statement).rowcount == 1


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[tuple[Log, Service, Subscriptions, ManualClock]]:
    clock = ManualClock()
    settings = LogSettings(segment_bytes=2000, retention=RetentionSettings(retention_s=3600))
    log = Log.open(folder, clock=clock, settings=settings)
    await log.start()
    subscriptions = Subscriptions(log, clock=clock)
    await subscriptions.start()
    try:
        yield log, Service(log, clock=clock), subscriptions, clock
    finally:
        await subscriptions.close()
        await log.close()


def pass_days(clock: ManualClock, days: int) -> None:
    clock.ms += DAY_MS * days
    clock.seconds += 86_400 * days


async def written(log: Log, count: int = 10) -> list[Lsn]:
    await log.register(register("f"))
    return [(await log.append(append("f", f"{number}" + "." * 300))).last_lsn for number in range(count)]


async def listening(service: Service, *names: str) -> None:
    for name in names:
        await service.register_listener(doc.RegisterListener(listener_id=name, change_feed_id="f", hold=True))


async def standing(service: Service) -> list[tuple[str, str, str]]:
    alarms = (await service.alarms()).alarms
    return [(one.code, one.change_feed_id, one.agent_id) for one in alarms if one.cleared_at is None]


async def subscribed(subscriptions: Subscriptions, who: Subscriber) -> None:
    async with aclosing(subscriptions.subscribe(who)) as items:
        assert isinstance(await anext(items), Batch)


async def test_a_damaged_listener_is_told_and_heals_by_registering_again(tmp_path: Path) -> None:
    async with started(tmp_path) as (log, service, _, _):
        await written(log)
        await listening(service, "l1", "l2")
    hurt(tmp_path, "UPDATE listener SET hold = 0 WHERE listener_id = 'l1'")
    async with started(tmp_path) as (_, service, _, _):
        assert await standing(service) == [("metadata-corrupt", "f", "l1")]
        with pytest.raises(MetadataCorrupt, match=f"{METADATA_NAME}: table listener, key .l1, f."):
            await service.poll("f", "l1", 0, timeout_ms=0, known=NOBODY)
        assert (await service.poll("f", "l2", 0, timeout_ms=0, known=NOBODY)).entries
        assert [one.listener_id for one in (await service.feed("f")).listeners] == ["l2"]
        await listening(service, "l1")
        assert (await service.poll("f", "l1", 0, timeout_ms=0, known=NOBODY)).entries
        assert await standing(service) == []


async def test_a_damaged_subscriber_stops_and_holds_what_it_may_still_need(tmp_path: Path) -> None:
    async with started(tmp_path) as (log, _, subscriptions, _):
        lsns = await written(log)
        await subscribed(subscriptions, ONE)
        await subscribed(subscriptions, TWO)
        await subscriptions.ack(ONE, lsns[0])
        await subscriptions.ack(TWO, lsns[1])
    hurt(tmp_path, f"UPDATE subscriber SET lsn = '{lsns[-1]}' WHERE subscriber_id = 'one'")
    async with started(tmp_path) as (log, service, subscriptions, clock):
        assert await standing(service) == [("metadata-corrupt", "", "anonymous/one")]
        with pytest.raises(MetadataCorrupt, match=f"{METADATA_NAME}: table subscriber, key .anonymous, one."):
            await subscribed(subscriptions, ONE)
        with pytest.raises(MetadataCorrupt):
            await subscriptions.ack(ONE, lsns[5])
        await subscribed(subscriptions, TWO)
        await subscriptions.ack(TWO, lsns[-1])
        pass_days(clock, 30)
        oldest = log.store.oldest_position()
        consumers = {
            one.name: one for one in find_consumers(log.store, log.metadata, service.retention.terms())
        }
        assert consumers["anonymous/one"].position == oldest
        assert consumers["anonymous/one"].holds(service.retention.terms().now_ms)
        await service.retention.run_pass()
        assert log.store.oldest_position() == oldest, "nobody knows what it has read"
        log.metadata.forget_damaged()
        assert await standing(service) == []
        pass_days(clock, 30)
        await service.retention.run_pass()
        assert log.store.oldest_position() > oldest


async def test_damage_under_a_running_server_is_noticed_and_an_ack_is_not_confirmed(tmp_path: Path) -> None:
    async with started(tmp_path) as (log, service, subscriptions, _):
        lsns = await written(log)
        await subscribed(subscriptions, ONE)
        await subscribed(subscriptions, TWO)
        before = await subscriptions.ack(ONE, lsns[3])
        hurt(tmp_path, f"UPDATE subscriber SET lsn = '{lsns[7]}' WHERE subscriber_id = 'one'")
        with pytest.raises(MetadataCorrupt):
            await subscriptions.ack(ONE, lsns[8])
        assert await subscriptions.ack(TWO, lsns[9]) <= before, "the least place is not known any more"
        assert await standing(service) == [("metadata-corrupt", "", "anonymous/one")]


async def test_an_alarm_of_a_row_that_was_mended_while_no_server_ran_is_cleared(tmp_path: Path) -> None:
    async with started(tmp_path) as (log, service, _, _):
        await written(log)
        await listening(service, "l1")
    hurt(tmp_path, "UPDATE listener SET hold = 0 WHERE listener_id = 'l1'")
    async with started(tmp_path) as (_, service, _, _):
        assert len(await standing(service)) == 1
    hurt(tmp_path, "DELETE FROM listener WHERE listener_id = 'l1'")
    async with started(tmp_path) as (_, service, _, _):
        assert await standing(service) == []
