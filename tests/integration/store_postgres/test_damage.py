"""Rows that somebody changed by hand: reported with position and feed, never served, and nobody else's trouble."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from headrace.errors import JournalCorrupt, SequenceNotAvailable, WriterStopped
from headrace.log.history import frames_of_range
from headrace.log.requests import Appended
from headrace.runtime.clock import SystemClock
from tests.bench import Bench, append
from tests.integration.store_postgres.shared import opened, started
from tests.postgres import Database
from tests.stores import SMALL_SEGMENT

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


async def test_damaged_state_of_a_feed_stops_that_feed_only(bench: Bench, database: Database) -> None:
    changed = """convert_to(replace(convert_from(tail, 'UTF8'), '"next-sequence-id":6', '"next-sequence-id":5'), 'UTF8')"""
    database.sql(f"UPDATE headrace_log.feed SET tail = {changed} WHERE name = 'hurt' AND tail <> {changed}")
    async with started(database.dsn) as log:
        with pytest.raises(JournalCorrupt, match="state of the feed hurt"):
            log.tail("hurt")
        answers = await asyncio.gather(
            log.append(append("whole", "a")), log.append(append("hurt", "b")), log.append(append("whole", "c")),
            return_exceptions=True,
        )  # fmt: skip
        assert [type(answer) for answer in answers] == [Appended, JournalCorrupt, Appended]
        assert [tail.name for tail in log.feeds()] == ["whole"]
    # A server that knew it before goes on, and its next append writes the row anew.
    bench.clock.ms = SystemClock().wall_ms()
    assert bench.append("hurt", "mended").first_sequence_id == 6
    async with started(database.dsn) as log:
        assert log.tail("hurt").head == 6


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
