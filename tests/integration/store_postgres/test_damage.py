"""Rows that somebody changed by hand: reported with position and feed, never served, and nobody else's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import replace

import pytest

from headrace.errors import JournalCorrupt, SequenceNotAvailable, StreamFailed, WriterStopped
from headrace.log.history import frames_of_range
from headrace.log.postgres.store import PostgresStore
from headrace.log.requests import Appended, Chain
from headrace.runtime.clock import SystemClock
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.wire.batch import Batch
from tests.bench import Bench, append, register
from tests.integration.store_postgres.shared import deafen, opened, started
from tests.postgres import Database
from tests.stores import SMALL_SEGMENT
from tests.waiting import async_wait_until

DAMAGE = {
    "body": "UPDATE headrace_log.frame SET data = set_byte(data, 200, get_byte(data, 200) # 1) WHERE {}",
    "header": "UPDATE headrace_log.frame SET data = set_byte(data, 9, get_byte(data, 9) # 1) WHERE {}",
    "second header": "UPDATE headrace_log.frame SET data = set_byte(data, length(data) - 9, 7) WHERE {}",
    "cut off": "UPDATE headrace_log.frame SET data = substring(data FOR 120) WHERE {}",
    "longer": "UPDATE headrace_log.frame SET data = data || '\\x00' WHERE {}",
    "place": "UPDATE headrace_log.frame SET first_sequence_id = first_sequence_id + 40 WHERE {}",
    "count": "UPDATE headrace_log.frame SET count = count + 1 WHERE {}",
    "feed": "UPDATE headrace_log.frame SET region_id = region_id + 7 WHERE {}",
    "gone": "DELETE FROM headrace_log.frame WHERE {}",
}


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    with opened(database.dsn, segment_bytes=SMALL_SEGMENT) as running:
        for feed in ("hurt", "whole"):
            running.register(feed)
        for number in range(1, 6):
            running.append("hurt", f"h{number}")
            running.append("whole", f"w{number}")
        yield running


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_damaged_frame_stops_its_feed_and_streams_over_all_but_no_other_feed(
    bench: Bench, database: Database, kind: str
) -> None:
    tail = bench.tail("hurt")
    (place,) = bench.store.places(tail.region_id, 3, 3, frames_max=1)
    begin = bench.store.oldest_position()
    database.sql(DAMAGE[kind].format(f"position = {place.position}"))
    assert [
        frame.header.first_sequence_id
        for frame in frames_of_range(bench.store, tail, 1, tail.head, entries_max=9, bytes_max=1 << 20)
    ] == [1, 2]
    with pytest.raises(JournalCorrupt) as damage:
        frames_of_range(bench.store, tail, 3, tail.head, entries_max=9, bytes_max=1 << 20)
    assert damage.value.members.get("position") == place.position or damage.value.members["sequence-id"] == 3
    assert bench.values("hurt", 4, 5) == {4: b"h4", 5: b"h5"}
    assert len(bench.values("whole")) == 5
    walked = bench.store.walk(begin, bytes_max=1 << 20)
    assert walked[-1].header.end == place.position, "a stream over all feeds ends before it"
    with pytest.raises(JournalCorrupt, match=f"{place.position:#x}"):
        bench.store.walk(place.position, bytes_max=1 << 20)
    assert bench.append("hurt", "next").first_sequence_id == 6
    assert bench.append("whole", "next").first_sequence_id == 6
    with opened(database.dsn) as again:
        assert bench.values("whole") == again.values("whole")
        assert again.values("hurt", 4) == {4: b"h4", 5: b"h5", 6: b"next"}


FEED_DAMAGE = {
    "state": "UPDATE headrace_log.feed SET tail = set_byte(tail, 40, get_byte(tail, 40) # 1) WHERE name = 'hurt'",
    "checksum": "UPDATE headrace_log.feed SET crc = crc + 1 WHERE name = 'hurt'",
    "name": "UPDATE headrace_log.feed SET name = 'hurd' WHERE name = 'hurt'",
    "number": "UPDATE headrace_log.feed SET region_id = region_id + 70 WHERE name = 'hurt'",
    "gone": "DELETE FROM headrace_log.feed WHERE name = 'hurt'",
}


@pytest.mark.parametrize("kind", list(FEED_DAMAGE))
async def test_damaged_row_of_a_feed_stops_that_feed_and_is_an_alarm(
    bench: Bench, database: Database, kind: str
) -> None:
    number, oldest = bench.tail("hurt").region_id, bench.store.oldest_position()
    database.sql(FEED_DAMAGE[kind])
    async with started(database.dsn) as log:
        alarms = [one for one in log.metadata.alarms() if one.cleared_at_ms is None]
        assert {one.code for one in alarms} == {"journal-corrupt"}
        assert any(f"headrace_log.feed, region_id {number}: " in one.detail for one in alarms)
        assert "hurt" in {one.feed for one in alarms}
        with pytest.raises(JournalCorrupt, match=r"headrace_log\.feed, region_id"):
            log.tail("hurt")
        answers = await asyncio.gather(
            log.append(append("whole", "a")), log.append(append("hurt", "b")), log.append(append("whole", "c")),
            log.register(register("hurt", new_incarnation="another history")),
            return_exceptions=True,
        )  # fmt: skip
        assert [type(answer) for answer in answers] == [Appended, JournalCorrupt, Appended, JournalCorrupt]
        assert [tail.name for tail in log.feeds()] == ["whole"]
        made = await log.register(register("new"))
        assert made.region_id == 3
        await asyncio.to_thread(log.damage.look_again)
        assert len([one for one in log.metadata.alarms() if one.cleared_at_ms is None]) == len(alarms)
        subscriptions = Subscriptions(log)
        await subscriptions.start()
        newest = bench.tail("hurt").newest
        for start, entries in (
            (None, 12),
            (newest, 4),
        ):  # the frames are whole, and are told to streams over all feeds
            found = 0
            items = subscriptions.subscribe(Subscriber("anonymous", "s"), Ask(start=start))
            async with asyncio.timeout(30), aclosing(items):
                while found < entries:
                    item = await anext(items)
                    found += item.entries if isinstance(item, Batch) else 0
        await subscriptions.close()
        with pytest.raises(JournalCorrupt, match=r"headrace_log\.feed"):
            await log.drop_before(log.store.end())
        assert log.store.oldest_position() == oldest, "nobody can say who holds what of it"


async def test_behind_a_damaged_feed_nothing_of_its_chain_is_taken(bench: Bench, database: Database) -> None:
    """The appends of one stream: what was sent behind the one that failed must not be applied. Other streams go on."""
    database.sql(FEED_DAMAGE["state"])
    async with started(database.dsn) as log:
        first, second = Chain(), Chain()
        answers = await asyncio.gather(
            *[
                log.append(replace(append(feed, value), chain=chain))
                for feed, value, chain in (
                    ("whole", "a", first), ("hurt", "b", first), ("whole", "c", first),
                    ("whole", "d", second), ("whole", "e", first), ("whole", "f", second),
                )
            ],
            return_exceptions=True,
        )  # fmt: skip
        assert [type(answer) for answer in answers] == [
            Appended, JournalCorrupt, StreamFailed, Appended, StreamFailed, Appended,
        ]  # fmt: skip
        later = await asyncio.gather(
            log.append(replace(append("whole", "g"), chain=first)), return_exceptions=True
        )
        assert [type(answer) for answer in later] == [StreamFailed], "in a later group neither"
        assert log.tail("whole").head == 8
        assert (first.failed, second.failed) == (True, False)


async def test_who_waits_at_a_feed_that_turns_out_damaged_is_told_and_keeps_nobody_waiting(
    bench: Bench, database: Database
) -> None:
    """The damage comes with the very commit that its waiters are to be woken by."""
    database.sql(
        "CREATE FUNCTION public.damage() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN NEW.crc := NEW.crc + 1; RETURN NEW; END$$"
    )
    async with started(database.dsn) as log:
        hurt, whole = (asyncio.create_task(log.wait_past(feed, 5, 60)) for feed in ("hurt", "whole"))
        await async_wait_until(lambda: len(log._waiting) == 2, what="both to wait")
        database.sql(
            "CREATE TRIGGER damage BEFORE UPDATE ON headrace_log.feed FOR EACH ROW"
            " WHEN (NEW.name = 'hurt') EXECUTE FUNCTION public.damage()"
        )
        await asyncio.to_thread(bench.append, "hurt", "6")
        with pytest.raises(JournalCorrupt, match="state of the feed hurt"):
            await asyncio.wait_for(hurt, 30)
        assert not whole.done()
        await asyncio.to_thread(bench.append, "whole", "6")
        assert await asyncio.wait_for(whole, 30)
        alarm = [one for one in log.metadata.alarms() if one.feed == "hurt"]
        assert [one.code for one in alarm] == ["journal-corrupt"], "a server that runs says so too"


async def test_a_number_that_no_feed_ever_had_is_no_damage(bench: Bench, database: Database) -> None:
    database.sql("UPDATE headrace_log.journal SET next_region_id = next_region_id + 3")
    async with started(database.dsn) as log:
        assert log.metadata.alarms() == []
        assert (await log.register(register("new"))).region_id == 6
        assert await log.drop_before(log.store.end()) > 0


async def test_a_row_that_is_gone_and_that_nobody_can_name_lets_no_feed_begin(
    bench: Bench, database: Database
) -> None:
    """It might be that very feed, and its history must not begin again. The others go on."""
    database.sql(FEED_DAMAGE["gone"])
    database.sql("UPDATE headrace_log.segment SET crc = crc + 1")
    async with started(database.dsn) as log:
        (alarm,) = log.metadata.alarms()
        assert (alarm.feed, "region_id 1: there is no such row" in alarm.detail) == ("(unnamed)", True)
        await asyncio.to_thread(log.damage.look_again)
        assert [one.cleared_at_ms for one in log.metadata.alarms()] == [None], (
            "it stands while the row is gone"
        )
        for feed in ("hurt", "new"):
            with pytest.raises(JournalCorrupt, match="nobody can say which feed"):
                await log.register(register(feed))
        assert (await log.append(append("whole", "x"))).first_sequence_id == 6


async def test_server_that_knew_a_feed_before_its_row_was_damaged_writes_it_anew(
    bench: Bench, database: Database
) -> None:
    database.sql(FEED_DAMAGE["state"])
    bench.clock.ms = SystemClock().wall_ms()
    assert bench.append("hurt", "mended").first_sequence_id == 6
    async with started(database.dsn) as log:
        assert log.tail("hurt").head == 6
        assert log.metadata.alarms() == []


def test_running_server_that_meets_a_damaged_row_says_so_once(bench: Bench, database: Database) -> None:
    told: list[tuple[str, str]] = []
    with opened(database.dsn) as other:
        assert isinstance(other.store, PostgresStore)
        deafen(other.store)
        other.store.on_damaged(lambda feed, what: told.append((feed, what)))
        assert told == []
        for number in (6, 7):
            bench.append("hurt", str(number))
            database.sql(FEED_DAMAGE["checksum"])
            other.store.refresh()
            with pytest.raises(JournalCorrupt):
                other.store.tail("hurt")
        ((feed, what),) = told
        assert (feed, "headrace_log.feed, region_id 1: " in what) == ("hurt", True)
        bench.append("hurt", "8")
        other.store.refresh()
        assert other.tail("hurt").head == 8
        assert len(other.values("hurt")) == 8


def test_damaged_segment_is_not_dropped(bench: Bench, database: Database) -> None:
    second = bench.store.segments()[1].first_position
    database.sql(
        f"UPDATE headrace_log.segment SET state = set_byte(state, 5, 65) WHERE first_position = {second}"
    )
    oldest = bench.store.oldest_position()
    with pytest.raises(JournalCorrupt, match=f"{second:#x}"):
        bench.store.drop_before(bench.store.end())
    assert bench.store.oldest_position() == oldest
    assert len(bench.walked()) == 10


def test_older_state_put_back_under_a_running_server_stops_its_writer(
    bench: Bench, database: Database
) -> None:
    tables = ("journal", "feed", "frame", "segment")
    for table in tables:
        database.sql(f"CREATE TABLE kept_{table} AS SELECT * FROM headrace_log.{table}")
    bench.append("whole", "acknowledged")
    for table in tables:
        database.sql(f"DELETE FROM headrace_log.{table}")
        database.sql(f"INSERT INTO headrace_log.{table} SELECT * FROM kept_{table}")
    with pytest.raises(WriterStopped, match="was acknowledged"):
        bench.append("whole", "another history")
    assert bench.store.not_writable() is not None
    with pytest.raises(JournalCorrupt):
        bench.values("whole", 6, 6)


def test_position_below_the_oldest_is_dropped_and_not_damaged(bench: Bench) -> None:
    with pytest.raises(SequenceNotAvailable):
        bench.store.walk(1, bytes_max=1)
