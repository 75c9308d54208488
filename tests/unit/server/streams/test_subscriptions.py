"""Streams over all feeds on a log whose segments are dropped or damaged, and streams that are given up."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt, LsnNotAvailable, Unavailable
from headrace.log.log import Log, LogSettings
from headrace.log.requests import Appended
from headrace.log.retention.consumers import subscriber_consumer
from headrace.server.streams import walking
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.server.streams.terms import StreamTerms
from headrace.server.streams.walking import first_intact_after, oldest_of
from headrace.wire.batch import Batch
from headrace.wire.frame import HEADER_SIZE, FrameHeader
from tests.bench import append, register
from tests.fault.journals import flip
from tests.waiting import async_wait_until

ONE = Subscriber("anonymous", "one")
FEEDS = ("a", "b", "c")
WAIT_S_MAX = 30.0


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Log, Subscriptions]]:
    """A log of small segments with three feeds, and its subscriptions."""
    log = Log.open(folder, settings=LogSettings(segment_bytes=4096))
    subscriptions = Subscriptions(log, terms=StreamTerms(heartbeat_s=0.05))
    try:
        await log.start()
        await subscriptions.start()
        for feed in FEEDS:
            await log.register(register(feed))
        yield log, subscriptions
    finally:
        await subscriptions.close()
        await log.close()


async def fill(log: Log, count: int) -> list[Appended]:
    """Append so many frames of three entries, to the feeds in turn."""
    return [
        await log.append(append(FEEDS[number % 3], f"{number}-1", f"{number}-2", f"{number}-3" * 20))
        for number in range(count)
    ]


async def read(subscriptions: Subscriptions, start: Lsn | None, last: Lsn) -> list[Batch]:
    """The batches from ``start`` to ``last``."""
    found: list[Batch] = []
    async with asyncio.timeout(WAIT_S_MAX), aclosing(subscriptions.subscribe(ONE, Ask(start=start))) as items:
        async for item in items:
            if isinstance(item, Batch):
                found.append(item)
                if item.last_lsn >= last:
                    break
    return found


async def take_all(subscriptions: Subscriptions, found: list[Batch]) -> None:
    """Note the batches of a stream from the oldest entry on, until it ends."""
    async with asyncio.timeout(WAIT_S_MAX), aclosing(subscriptions.subscribe(ONE)) as items:
        async for item in items:
            found += [item] if isinstance(item, Batch) else []


def frames_of(log: Log) -> list[FrameHeader]:
    found: list[FrameHeader] = []
    position = log.store.oldest_position()
    while frames := log.store.walk(position, bytes_max=1 << 20):
        found += [frame.header for frame in frames]
        position = found[-1].end
    return found


async def drop_all(log: Log) -> None:
    await log.roll()
    await log.drop_before(log.store.end())


async def test_below_what_was_dropped_nothing_begins_and_the_words_are_the_rfcs(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, 60)
        await log.drop_before(log.store.segments()[3].end)
        bounds, dropped = await subscriptions.bounds(), log.store.dropped_lsn()
        assert done[0].first_lsn < dropped < bounds.oldest < bounds.head == done[-1].last_lsn
        words = (
            f"lsn_not_available: start_lsn={done[0].first_lsn} older than oldest_lsn={bounds.oldest}; "
            f"perform a base snapshot and restart from head_lsn={bounds.head}"
        )
        with pytest.raises(LsnNotAvailable, match=f"^{re.escape(words)}$"):
            await read(subscriptions, done[0].first_lsn, bounds.head)
        with pytest.raises(LsnNotAvailable):
            await read(subscriptions, Lsn.from_int(int(dropped) - 1), bounds.head)
        for start in (None, dropped, bounds.oldest):
            batches = await read(subscriptions, start, bounds.head)
            assert batches[0].first_lsn == bounds.oldest
            kept = [place for place in done if place.first_lsn >= bounds.oldest]
            assert sum(batch.entries for batch in batches) == 3 * len(kept)
        assert not subscriptions.open_streams


async def test_a_stream_that_retention_overtakes_ends_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walking, "CHUNK_BYTES", 512)
    async with running(tmp_path) as (log, subscriptions):
        await fill(log, 60)
        async with asyncio.timeout(WAIT_S_MAX), aclosing(subscriptions.subscribe(ONE)) as items:
            await anext(items)
            await drop_all(log)
            with pytest.raises(LsnNotAvailable, match="lsn_not_available: start_lsn="):
                async for _ in items:
                    pass


async def test_who_has_everything_loses_nothing_when_everything_is_dropped(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, 20)
        async with asyncio.timeout(WAIT_S_MAX), aclosing(subscriptions.subscribe(ONE)) as items:
            async for item in items:
                if isinstance(item, Batch) and item.last_lsn == done[-1].last_lsn:
                    break
            await drop_all(log)
            assert await subscriptions.bounds() == (done[-1].last_lsn, done[-1].last_lsn)
            await log.register(register("a", instance="another"))
            later = await log.append(append("a", "later"))
            async for item in items:
                if isinstance(item, Batch):
                    assert item.first_lsn == later.first_lsn
                    break
                assert item.lsn == done[-1].last_lsn
        batches = await read(subscriptions, done[-1].last_lsn, later.last_lsn)
        assert batches[0].first_lsn == later.first_lsn


async def test_a_first_subscription_waits_for_a_drop_that_has_looked_for_the_last_time(
    tmp_path: Path,
) -> None:
    """What it is answered is what is left, and one that is refused has no place."""
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, 60)
        await log.roll()
        looking, go_on = threading.Event(), threading.Event()

        def look() -> int:
            looking.set()
            assert go_on.wait(WAIT_S_MAX)
            return log.store.end()

        dropping = asyncio.create_task(log.drop_before(log.store.end(), look=look))
        assert await asyncio.to_thread(looking.wait, WAIT_S_MAX)
        late = asyncio.create_task(read(subscriptions, done[5].first_lsn, done[-1].last_lsn))
        with pytest.raises(AssertionError, match="in vain"):
            await async_wait_until(late.done, 0.2)
        go_on.set()
        await dropping
        with pytest.raises(LsnNotAvailable, match=f"older than oldest_lsn={done[-1].last_lsn}"):
            await late
        assert log.metadata.subscribers() == []
        assert not subscriptions.open_streams


async def test_a_subscription_is_held_durably_before_it_is_given_anything(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, 60)
        async with aclosing(subscriptions.subscribe(ONE, Ask(start=done[5].first_lsn))) as items:
            await anext(items)
            (row,) = log.metadata.subscribers()
            assert row.lsn == str(Lsn.from_int(int(done[5].first_lsn) - 1))


async def test_who_begins_at_the_newest_dropped_entry_holds_what_follows(tmp_path: Path) -> None:
    """It resumes from the last LSN that it had, as RFC-010 says, under a name that is new here."""
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, 20)
        await drop_all(log)
        later = await fill(log, 20)
        batches = await read(subscriptions, done[-1].last_lsn, later[-1].last_lsn)
        assert batches[0].first_lsn == later[0].first_lsn
        (row,) = log.metadata.subscribers()
        terms = log.retention.terms(row.seen_at_ms, row.seen_at_ms)
        consumer = subscriber_consumer(log.store, row, terms)
        assert (row.lsn, consumer.lost) == (str(done[-1].last_lsn), False)
        assert consumer.holds(terms.now_ms)
        assert consumer.position == log.store.oldest_position()


def damage_payload(folder: Path, header: FrameHeader) -> None:
    """A flipped bit in the frame's body."""
    flip(folder, header.position + HEADER_SIZE + header.area_size + 5)


def damage_headers(folder: Path, header: FrameHeader) -> None:
    """Both copies of the frame's header: nobody can say where the next frame begins."""
    flip(folder, header.position + 20)
    flip(folder, header.end - HEADER_SIZE + 20)


@pytest.mark.parametrize("damage", [damage_payload, damage_headers])
async def test_damage_ends_the_stream_and_names_where_to_go_on(
    tmp_path: Path, damage: Callable[[Path, FrameHeader], None]
) -> None:
    async with running(tmp_path) as (log, _):
        done = await fill(log, 60)
        with_entries = [header for header in frames_of(log) if header.count]
    hurt = with_entries[20:22]
    for header in hurt:
        damage(tmp_path, header)
    async with running(tmp_path) as (log, subscriptions):
        found: list[Batch] = []
        with pytest.raises(JournalCorrupt, match="data_loss") as caught:
            await take_all(subscriptions, found)
        assert sum(batch.entries for batch in found) == 3 * 20
        assert found[-1].last_lsn == done[19].last_lsn
        following = caught.value.members["resume-lsn"]
        assert following == str(with_entries[22].lsn(0))
        assert f"start_lsn={following}" in caught.value.detail
        rest = await read(subscriptions, Lsn.parse(following), done[-1].last_lsn)
        assert sum(batch.entries for batch in rest) == 3 * (60 - 22)


async def test_a_damaged_beginning_does_not_hide_the_bounds(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, _):
        done = await fill(log, 60)
        first = next(header for header in frames_of(log) if header.count)
    damage_headers(tmp_path, first)
    async with running(tmp_path) as (log, subscriptions):
        assert oldest_of(log.store) == done[1].first_lsn
        assert await subscriptions.bounds() == (done[-1].last_lsn, done[1].first_lsn)
        assert first_intact_after(log.store, frames_of_last(log)) is None


def frames_of_last(log: Log) -> int:
    """The position of the newest frame."""
    tail = max(log.feeds(), key=lambda feed: feed.newest_lsn)
    return log.store.places(tail.region_id, tail.head, tail.head, frames_max=1)[0].position


async def test_streams_that_are_given_up_leave_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        await fill(log, 5)

        async def follow(who: Subscriber) -> None:
            async with aclosing(subscriptions.subscribe(who)) as items:
                async for _ in items:
                    pass

        tasks = [asyncio.create_task(follow(Subscriber("anonymous", f"s{n % 3}"))) for n in range(12)]
        await async_wait_until(lambda: subscriptions.open_streams == 12, what="the streams to be open")
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        assert subscriptions.open_streams == 0


async def test_streams_end_when_the_server_stops(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        done = await fill(log, 5)
        items = subscriptions.subscribe(ONE, Ask(start=done[-1].last_lsn))
        assert isinstance(await anext(items), Batch)

        async def follow() -> None:
            async for _ in items:
                pass

        waiting = asyncio.create_task(follow())
        await asyncio.wait({waiting}, timeout=0)
        subscriptions.stop_waiting()
        with pytest.raises(Unavailable, match="stopping"):
            await waiting
        with pytest.raises(Unavailable):
            await anext(subscriptions.subscribe(ONE))
        assert subscriptions.open_streams == 0


async def test_heartbeats_never_tell_more_than_was_sent(tmp_path: Path) -> None:
    async with running(tmp_path) as (log, subscriptions):
        sent = ZERO
        beats = 0
        async with asyncio.timeout(WAIT_S_MAX), aclosing(subscriptions.subscribe(ONE)) as items:
            async for item in items:
                if isinstance(item, Batch):
                    sent = item.last_lsn
                    continue
                assert item.lsn == sent
                beats += 1
                if beats == 6:
                    break
                await log.append(append("a", "v"))
                await log.register(register("b", instance=f"instance-{beats}"))
