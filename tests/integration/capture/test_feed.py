"""The feed is the checkpoint: whatever dies, each source row stands there once, and a feed of somebody else is refused."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.capture.changes import Append, TransactionEntries
from headrace.capture.control import ControlEntry, schema_entry, watermark_entry
from headrace.capture.feed import CaptureFeed
from headrace.capture.position import SourcePosition
from headrace.capture.row_form import RowForm
from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient
from headrace.errors import AgentFenced, FeedOwned, FeedUnfit, Unavailable
from headrace.simple.schema import TableSchema
from headrace.wire import documents as doc
from tests.scale import SEED, scaled
from tests.servers import Feed, ServerProcess, changes, serving
from tests.simple_tables import BUILD_TS, column, table

AGENT = "capture"
FORM = RowForm(table("shop.orders", "n", key=("n",)))
TSO = 447984084414103554
ENTRIES_MAX = 7
"""Entries of one append in this source, so that larger transactions are cut."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), grpc=True) as running:
        yield running


@asynccontextmanager
async def opened(
    server: ServerProcess,
    feed: str,
    *,
    agent: str = AGENT,
    takeover: bool = False,
    retry_s_max: float | None = None,
) -> AsyncIterator[CaptureFeed]:
    async with (
        FeedClient(server.url) as http,
        LogAppendClient(server.grpc_address) as appends,
        await CaptureFeed.open(
            http, appends, feed, agent, takeover=takeover, retry_s_max=retry_s_max
        ) as made,
    ):
        yield made


class Source:
    """A history of numbered rows in transactions of many sizes; it can be read from any position on."""

    def __init__(self, seed: int, transactions: int) -> None:
        sizes = random.Random(seed)  # repeatable
        self.sizes = [sizes.choice([1, 1, 1, 2, 3, 20]) for _ in range(transactions)]
        self.first = [sum(self.sizes[:at]) for at in range(transactions)]

    def appends_from(self, position: SourcePosition | None) -> Iterator[Append]:
        """What a capture that knows nothing but ``position`` sends."""
        done = int(position.gtid.rpartition("-")[2]) if position is not None and position.gtid else 0
        parts, entries = (position.parts, position.entries) if position is not None else (0, 0)
        for at in range(done, len(self.sizes)):
            made = TransactionEntries(
                f"0-1-{at + 1}", 1 + at, BUILD_TS, 1_760_000_000_000, parts=parts, entries=entries
            )
            for row in range(parts, self.sizes[at]):
                made.add_part(FORM, [(None, (str(self.first[at] + row),))])
                if made.count > ENTRIES_MAX:
                    yield Append(made.take(), self.position(at, made))
            yield Append(made.end(), self.position(at + 1))
            parts = entries = 0

    @property
    def entries(self) -> list[tuple[str, str, int, bool]]:
        """What must stand in the feed: key, transaction, index in it, last in it."""
        return [
            (f'["shop","orders","{self.first[at] + row}"]', f"0-1-{at + 1}", row, row == size - 1)
            for at, size in enumerate(self.sizes)
            for row in range(size)
        ]

    def position(self, done: int, under_way: TransactionEntries | None = None) -> SourcePosition:
        return SourcePosition(
            gtid=f"0-1-{done}" if done else "",
            file="binlog.000001",
            offset=4 + done,
            server_id=1,
            commit_ts=done + (under_way is not None),
            table_id=1,
            parts=0 if under_way is None else under_way.parts_taken,
            entries=0 if under_way is None else under_way.entries_taken,
            under_way="" if under_way is None else under_way.gtid,
        )


async def send_all(feed: CaptureFeed, appends: Iterable[Append]) -> None:
    """Send, and wait until all is durable."""
    for append in appends:
        await feed.send(append)
    await feed.flush()


def entries_of(server: ServerProcess, feed: str) -> list[tuple[str, str, int, bool]]:
    """What stands in the feed, checked to be dense."""
    found: list[dict[str, Any]] = []
    reader = Feed(server, feed)
    while page := reader.entries(len(found) + 1, limit=10_000):
        found += page
    assert [entry["sequence-id"] for entry in found] == list(range(1, len(found) + 1))
    return [(one["key"], one["tx"], one.get("tx-index", 0), one.get("tx-last", False)) for one in found]


async def test_a_new_feed_has_no_position_and_an_old_one_its_last(server: ServerProcess) -> None:
    source = Source(1, 5)
    *_, last = source.appends_from(None)
    async with opened(server, "feed::position") as feed:
        assert (feed.position, feed.next_sequence_id) == (None, 1)
        await send_all(feed, source.appends_from(None))
        assert feed.position == last.position
    async with opened(server, "feed::position") as feed:
        assert feed.position == last.position
        assert feed.next_sequence_id == len(source.entries) + 1
    assert entries_of(server, "feed::position") == source.entries


async def test_nothing_twice_nothing_missing_whatever_is_killed(server: ServerProcess) -> None:
    """The server dies by SIGKILL while appends are under way; capture ends anywhere, and a new one knows only the feed."""
    chance = random.Random(SEED)  # repeatable; the moments are not
    source, name = Source(SEED, scaled(400)), "feed::kill"
    appends = sum(1 for _ in source.appends_from(None))
    part = len(source.entries) // 4
    kills = [chance.randrange(part * number, part * (number + 1)) for number in range(3)]
    lives, ended = 0, False
    restart: asyncio.Task[None] | None = None
    while not ended:
        lives += 1
        assert lives < 100, "each life gets further"
        limit = chance.randrange(appends // 10, appends // 3)
        async with opened(server, name) as feed:
            begun = feed.position
            for append in source.appends_from(begun):
                await feed.send(append)
                limit -= 1
                if kills and feed.next_sequence_id > kills[0] and (restart is None or restart.done()):
                    del kills[0]
                    restart = asyncio.create_task(asyncio.to_thread(server.restart))
                if limit <= 0 and feed.position != begun:  # it got further
                    break
            else:
                await feed.flush()
                ended = True
    assert restart is not None
    await restart
    assert lives > 2
    assert len(kills) < 2, "two at least were at work"
    assert entries_of(server, name) == source.entries


async def test_a_second_process_fences_the_first(server: ServerProcess) -> None:
    source = Source(3, 40)
    async with opened(server, "feed::fenced") as older:
        appends = source.appends_from(None)
        for _ in range(20):
            await older.send(next(appends))
        async with opened(server, "feed::fenced") as newer:
            with pytest.raises(AgentFenced):
                await send_all(older, appends)
            with pytest.raises(AgentFenced):
                await older.send(Append([watermark_entry(99, BUILD_TS).alone()], source.position(0)))
            await send_all(newer, source.appends_from(newer.position))
    assert entries_of(server, "feed::fenced") == source.entries


async def test_positions_are_told_once_they_are_durable(server: ServerProcess) -> None:
    source, told = Source(4, 30), list[SourcePosition]()
    async with FeedClient(server.url) as http, LogAppendClient(server.grpc_address) as appends:
        feed = await CaptureFeed.open(http, appends, "feed::told", AGENT, on_durable=told.append)
        sent = list(source.appends_from(None))
        await send_all(feed, sent)
        assert told == [append.position for append in sent]
        await feed.close()


async def test_an_owner_is_left_alone_unless_told_otherwise(server: ServerProcess) -> None:
    async with opened(server, "feed::owned", agent="other"):
        with pytest.raises(FeedOwned):
            async with opened(server, "feed::owned"):
                pass
        async with opened(server, "feed::owned", takeover=True) as feed:
            assert feed.position is None, "nothing stands there yet"


async def test_a_feed_of_somebody_elses_entries_is_refused(server: ServerProcess) -> None:
    other = Feed(server, "feed::other")
    other.register("shop-agent")
    assert other.post({"changes": changes(1), "agent-id": "shop-agent"}).status_code == 200
    with pytest.raises(FeedUnfit, match="holds entries, but none that capture wrote"):
        async with opened(server, other.name, takeover=True):
            pass


async def test_a_feed_that_somebody_else_went_on_with_is_refused(server: ServerProcess) -> None:
    async with opened(server, "feed::went-on") as feed:
        await send_all(feed, Source(5, 1).appends_from(None))
        last = feed.next_sequence_id - 1
    other = Feed(server, "feed::went-on")
    assert other.register("shop-agent", takeover=True).status_code == 200
    assert other.post({"changes": changes(1), "agent-id": "shop-agent"}).status_code == 200
    with pytest.raises(FeedUnfit, match=f"goes on behind the last entry of capture, {last}: somebody else"):
        async with opened(server, other.name, takeover=True):
            pass


@pytest.mark.parametrize(
    ("position", "said"), [(None, "has no source position"), (b"p7", "is none of capture's")]
)
async def test_an_append_without_a_position_of_capture_is_refused(
    server: ServerProcess, position: bytes | None, said: str
) -> None:
    feed = f"feed::without-{len(said)}"
    async with FeedClient(server.url) as http:
        registered = await http.register_publisher(AGENT, feed)
        entry = doc.EntryIn(agent_id=AGENT, changes=msgspec.Raw(b"{}"), expected_offset=1)
        await http.append(feed, [entry], epoch=registered.epoch, source_position=position)
    with pytest.raises(FeedUnfit, match=said):
        async with opened(server, feed):
            pass


async def test_the_newest_schema_of_each_table_is_found_again(server: ServerProcess) -> None:
    orders, places = (table(f"shop.{name}", "n", key=("n",), version=1) for name in ("orders", "a/b"))
    wider = table("shop.orders", "n", column("note", "text"), key=("n",), version=TSO)
    position = Source(7, 1).position(1)
    async with opened(server, "feed::schemas") as feed:
        assert await feed.schemas() == []
        for schema in (orders, places, wider):
            await feed.send(Append([schema_entry(schema, BUILD_TS).alone()], position))
        await feed.flush()
        assert await feed.schemas() == [places, wider]
    async with opened(server, "feed::schemas") as feed:
        assert await feed.schemas() == [places, wider]


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (table("shop.orders", "n", key=("n",), version=2), "is no BOOTSTRAP message of it"),
        (None, "is no message"),
    ],
)
async def test_schemas_of_something_else_are_refused(
    server: ServerProcess, schema: TableSchema | None, said: str
) -> None:
    value = b'{"columns":[]}' if schema is None else schema_entry(schema, BUILD_TS).value
    entry = ControlEntry("schema", b"\0schema/shop/orders/1", value, ("shop", "orders"))
    async with opened(server, f"feed::odd-{len(said)}") as feed:
        await feed.send(Append([entry.alone()], Source(7, 1).position(1)))
        await feed.flush()
        with pytest.raises(FeedUnfit, match=rf"schema of shop\.orders, version 1, {said}"):
            await feed.schemas()


async def test_a_server_that_is_away_is_waited_for_as_long_as_was_said(tmp_path: Path) -> None:
    with serving(tmp_path, grpc=True) as own:
        async with opened(own, "feed::away", retry_s_max=0.2) as feed:
            await asyncio.to_thread(own.kill)
            await feed.send(next(Source(6, 1).appends_from(None)))
            with pytest.raises(Unavailable):
                await feed.flush()
            assert feed.position is None
        with pytest.raises(Unavailable):
            async with opened(own, "feed::away", retry_s_max=0.2):
                pass
