"""A database of bookmarks that is away for a moment: the listener waits for it, and hands over each change all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from headrace.errors import SourceUnavailable
from headrace.listener import Change, Listener, ListenerSettings, OnError, Refusals, open_bookmarks
from tests.postgres import Database
from tests.proxy import Proxy
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import async_wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", database.cluster.port) as running:
        yield running


def through(database: Database, proxy: Proxy) -> str:
    """The database's address, by way of the proxy."""
    return database.dsn.replace(f":{database.cluster.port}/", f":{proxy.port}/")


@pytest.mark.parametrize("way", ["each", "batches", "run"])
async def test_a_listener_outlasts_its_store(
    server: ServerProcess, database: Database, proxy: Proxy, way: str
) -> None:
    feed = Feed(server, f"shop-{way}")
    feed.register()
    feed.post({"changes": {"n": 1}})
    got: list[int] = []

    async def take(change: Change) -> None:
        got.append(change.sequence_id)
        if way == "run" and change.sequence_id == 3:
            raise ValueError("no")  # parked, while the store is away

    async def follow(listener: Listener) -> None:
        if way == "run":
            await listener.run(take)
        elif way == "each":
            async for change in listener:
                await take(change)
        else:
            async for batch in listener.batches():
                got.extend(change.sequence_id for change in batch.changes)
                await batch.done()

    async def at(sequence_id: int) -> bool:
        stored = await asyncio.to_thread(store.load, "l", feed.name)
        return stored is not None and stored.sequence_id == sequence_id

    settings = ListenerSettings(
        bookmark_changes_max=1, refusals=Refusals(OnError.PARK, 1, first_s=0.01, delay_s_max=0.01)
    )
    with closing(open_bookmarks(through(database, proxy))) as store:
        async with Listener(server.url, feed.name, "l", store, settings=settings) as listener:
            task = asyncio.create_task(follow(listener))
            await async_wait_until(lambda: got == [1] or task.done(), what="the first change")
            # The bookmark of its start is there before. And whoever asks for batches says "done" and waits.
            await async_wait_until(lambda: at(1), what="its bookmark")
            await asyncio.to_thread(proxy.cut)
            feed.post({"key": "a", "changes": {"n": 2}}, {"key": "b", "changes": {"n": 3}})
            await async_wait_until(lambda: 2 in got or task.done(), what="the second change")
            with pytest.raises(SourceUnavailable):
                await asyncio.to_thread(store.load, "l", feed.name)
            assert not task.done(), "the listener waits"
            await asyncio.to_thread(proxy.resume)
            feed.post({"key": "b", "changes": {"n": 4}}, {"key": "a", "changes": {"n": 5}})
            wanted = [1, 2, 3, 5] if way == "run" else [1, 2, 3, 4, 5]
            await async_wait_until(lambda: got == wanted or task.done(), what="all of them")
            task.cancel()
            await asyncio.wait({task})
    assert got == wanted
    if way == "run":
        with closing(open_bookmarks(database.dsn)) as store:
            assert [entry.sequence_id for entry in store.parked("l", feed.name)] == [3, 4]


async def test_who_is_cancelled_while_its_store_is_away_ends_and_is_given_the_change_again(
    server: ServerProcess, database: Database, proxy: Proxy
) -> None:
    feed = Feed(server, "shop-cancelled")
    feed.register()
    feed.post({"changes": {"n": 1}})
    got: list[int] = []

    async def follow(listener: Listener) -> None:
        async for change in listener:
            await asyncio.to_thread(proxy.cut)
            got.append(change.sequence_id)

    with closing(open_bookmarks(through(database, proxy))) as store:
        async with Listener(server.url, feed.name, "l", store) as listener:
            task = asyncio.create_task(follow(listener))
            with capture_logs() as logs:
                told = "the bookmark store is away"
                await async_wait_until(
                    lambda: any(one["event"] == told for one in logs), what="a try to store"
                )
                task.cancel()
                await asyncio.wait({task})
            assert task.cancelled()
            assert logs[-1]["event"] == "the last bookmark was not stored"
        await asyncio.to_thread(proxy.resume)
        async with Listener(
            server.url, feed.name, "l", store, settings=ListenerSettings(drain=True)
        ) as listener:
            got += [change.sequence_id async for change in listener]
    assert got == [1, 1]


def test_who_closes_a_store_waits_for_the_call_that_is_under_way(database: Database, proxy: Proxy) -> None:
    """Else the call would wait for ever on a connection that is gone."""
    store = open_bookmarks(through(database, proxy))
    proxy.freeze()
    with ThreadPoolExecutor(2) as threads:
        load = threads.submit(store.load, "l", "shop")
        close = threads.submit(store.close)
        wait([close], timeout=0.2)
        assert not load.done()
        assert not close.done()
        proxy.thaw()
        assert load.result(60) is None
        close.result(60)


async def test_a_drain_gives_a_store_that_stays_away_up(
    server: ServerProcess, database: Database, proxy: Proxy
) -> None:
    feed = Feed(server, "shop-drain")
    feed.register()
    feed.post({"changes": {"n": 1}})
    settings = ListenerSettings(drain=True, failures_max=2)
    with closing(open_bookmarks(through(database, proxy))) as store:
        async with Listener(server.url, feed.name, "l", store, settings=settings) as listener:
            batches = listener.batches()
            batch = await anext(batches)
            await asyncio.to_thread(proxy.cut)
            with pytest.raises(SourceUnavailable, match="bookmarks in PostgreSQL"):
                await batch.done()
            await batches.aclose()
