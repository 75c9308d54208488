"""What one server knows of what another one did: told by NOTIFY, polled while nobody tells, asked before a refusal."""

from __future__ import annotations

import asyncio
import threading

import pytest
from psycopg import Connection
from psycopg.rows import TupleRow

from headrace.errors import BeyondHead, FeedRecreated, SequenceNotAvailable
from headrace.log.history import frames_of_range
from headrace.log.postgres import listening
from headrace.log.postgres.group import CHANNEL
from headrace.log.postgres.listening import Listening
from headrace.log.postgres.store import PostgresStore
from headrace.server.reading import Known
from headrace.server.service import Service
from headrace.wire import documents as doc
from tests.bench import INCARNATION, append, register
from tests.integration.store_postgres.shared import deafen, opened, started, through
from tests.postgres import Database
from tests.proxy import Proxy
from tests.stores import SMALL_SEGMENT, fill
from tests.waiting import async_wait_until, wait_until

HEARTBEAT_NEVER_S = 3600.0


def postgres(store: object) -> PostgresStore:
    """The store as what it is."""
    assert isinstance(store, PostgresStore)
    return store


def test_an_append_is_told_by_notify_and_not_found_by_a_poll(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HEARTBEAT_S", HEARTBEAT_NEVER_S)
    with opened(database.dsn) as a, opened(database.dsn) as b:
        wait_until(lambda: b.store.unreachable() is None)
        moved = threading.Event()
        b.store.on_moved(moved.set)
        a.register("f")
        assert moved.wait(30)
        for number in range(1, 20):
            moved.clear()
            a.append("f", str(number))
            assert moved.wait(30)
            assert b.tail("f") == a.tail("f")
            assert b.store.end() == a.store.end()
        # The same without the NOTIFY: nobody hears of it.
        deafen(postgres(b.store))
        a.append("f", "untold")
        assert b.tail("f").head == 19
        b.store.refresh()
        assert b.tail("f").head == 20


def test_own_appends_are_not_looked_up_again(database: Database) -> None:
    with opened(database.dsn) as bench:
        told = postgres(bench.store)._listening
        wait_until_it_listens(told, database)
        looks: list[int] = []
        look = told._look

        def counted(connection: Connection[TupleRow]) -> None:
            looks.append(1)
            look(connection)

        told._look = counted
        bench.register("f")
        for number in range(20):
            bench.append("f", str(number))
        assert len(looks) <= 21, "at most one each, where the NOTIFY came before the commit's answer"


def wait_until_it_listens(told: Listening, database: Database) -> None:
    """Wait until a notification has come: then the look with which listening begins is over. It asks for no other one."""
    heard = threading.Event()
    is_news = told._is_news

    def hears(payload: str) -> bool:
        if payload != "do you listen?":
            return is_news(payload)
        heard.set()
        return False

    def asked() -> bool:
        database.sql(f"SELECT pg_notify('{CHANNEL}', 'do you listen?')")
        return heard.is_set()

    told._is_news = hears  # type: ignore[method-assign]  # the thread is running already
    wait_until(asked, what="the store to listen")


async def test_long_poll_is_woken_from_the_other_server(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HEARTBEAT_S", HEARTBEAT_NEVER_S)
    async with started(database.dsn) as a, started(database.dsn) as b:
        await a.register(register("f"))
        await b.find("f")
        waiting = asyncio.create_task(b.wait_past("f", 0, 60))
        walking = asyncio.create_task(b.wait_end_past(b.store.end(), 60))
        await asyncio.wait([waiting, walking], timeout=0.05)
        await a.append(append("f", "x"))
        assert await asyncio.wait_for(waiting, 30)
        assert await asyncio.wait_for(walking, 30)


def test_what_came_while_the_connection_was_cut_is_seen_when_it_is_back(database: Database) -> None:
    with Proxy("127.0.0.1", database.cluster.port) as proxy, opened(database.dsn) as a:
        a.register("f")
        with opened(through(database.dsn, proxy.port)) as b:
            for number in range(1, 4):
                wait_until(lambda: b.store.unreachable() is None)
                proxy.cut()
                a.append("f", str(number))
                wait_until(lambda: b.store.unreachable() is not None)
                assert b.tail("f").head == number - 1
                proxy.resume()
                wait_until(lambda at=number: b.tail("f").head == at, what="the view to catch up")  # type: ignore[misc]  # bound now


async def test_long_polls_are_woken_by_what_came_while_the_connection_was_cut(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No notification will ever come for it, and no heartbeat either: the look after the reconnect wakes them."""
    monkeypatch.setattr(listening, "HEARTBEAT_S", HEARTBEAT_NEVER_S)
    with Proxy("127.0.0.1", database.cluster.port) as proxy:
        async with started(database.dsn) as a, started(through(database.dsn, proxy.port)) as b:
            await a.register(register("f"))
            await a.register(register("quiet"))
            for feed in ("f", "quiet"):
                await b.find(feed)
            for number in range(3):
                await async_wait_until(lambda: b.store.unreachable() is None)
                waiting = asyncio.create_task(b.wait_past("f", number, 60))
                walking = asyncio.create_task(b.wait_end_past(b.store.end(), 60))
                quiet = asyncio.create_task(b.wait_past("quiet", 0, 60))
                await asyncio.to_thread(proxy.cut)
                await a.append(append("f", str(number)))
                await async_wait_until(lambda: b.store.unreachable() is not None)
                assert not waiting.done()
                assert not walking.done()
                await asyncio.to_thread(proxy.resume)
                assert await asyncio.wait_for(waiting, 30)
                assert await asyncio.wait_for(walking, 30)
                assert b.tail("f").head == number + 1
                assert not quiet.done(), "nothing came there"
                quiet.cancel()


def test_journal_is_polled_while_nothing_can_listen(database: Database) -> None:
    """No new connection is to be had, but the pool still has one."""
    role = f"{database.name}_few"
    database.sql(f"CREATE ROLE {role} LOGIN")
    with opened(database.dsn) as a:
        a.register("f")
        a.append("f", "1")
        for grant in ("USAGE ON SCHEMA headrace_log", "ALL ON ALL TABLES IN SCHEMA headrace_log"):
            database.sql(f"GRANT {grant} TO {role}")
        with opened(database.dsn_as(role)) as b:
            assert b.values("f") == {1: b"1"}
            listens = wait_until(lambda: postgres(b.store)._listening._connection, what="the store to listen")
            assert listens is not None
            database.sql(f"ALTER ROLE {role} CONNECTION LIMIT 1")
            database.sql(f"SELECT pg_terminate_backend({listens.info.backend_pid})")
            wait_until(lambda: b.store.unreachable() is not None)
            a.append("f", "2")
            wait_until(lambda: b.tail("f").head == 2, what="the journal to be polled")
            assert b.store.unreachable() is not None


async def test_stale_view_refuses_nobody(database: Database) -> None:
    async with started(database.dsn) as a, started(database.dsn) as b:
        deafen(postgres(b.store))
        at_a, at_b = Service(a), Service(b)
        await at_a.register_publisher(doc.RegisterPublisher(agent_id="agent-1", change_feed_id="f"))
        assert b.store.tail("f") is None, "it knows nothing of it"
        await at_b.register_listener(doc.RegisterListener(listener_id="l", change_feed_id="f"))
        done = await a.append(append("f", "1"))
        assert b.tail("f").head == 0, "it knows nothing of it"
        known = Known(done.incarnation, done.last_lsn)
        found = await at_b.poll("f", "l", 1, timeout_ms=0, known=known)
        assert (found.last_sequence_id, found.entries) == (1, 0)
        await a.append(append("f", "2"))
        assert (await at_b.tail("f", "agent-1")).next_sequence_id == 3
        await a.append(append("f", "3"))
        assert len((await at_b.read_range("f", 2, 3, 9, known=Known())).frames) == 1
        for refusal, place in ((BeyondHead, Known()), (FeedRecreated, Known("another"))):
            with pytest.raises(refusal):
                await at_b.read_range("f", 8, None, 9, known=place)


def test_what_another_server_dropped_is_not_available_here_either(database: Database) -> None:
    with opened(database.dsn, segment_bytes=SMALL_SEGMENT) as a, opened(database.dsn) as b:
        fill(a, ["f"], 80)
        b.store.refresh()
        deafen(postgres(b.store))
        tail = b.tail("f")
        old = b.store.places(tail.region_id, 1, 9, frames_max=1)
        start = b.store.oldest_position()
        a.store.drop_before(a.store.end())
        with pytest.raises(SequenceNotAvailable):
            frames_of_range(b.store, tail, 1, tail.head, entries_max=9, bytes_max=1 << 20)
        with pytest.raises(SequenceNotAvailable):
            b.store.read(old)
        with pytest.raises(SequenceNotAvailable):
            b.store.walk(start, bytes_max=1)
        assert b.tail("f") == a.tail("f")
        assert b.store.segments() == a.store.segments()
        assert b.values("f") == a.values("f")
        assert b.append("f", "next").first_sequence_id == tail.head + 1


def test_two_servers_drop_at_once_and_append_meanwhile(database: Database) -> None:
    with (
        opened(database.dsn, segment_bytes=SMALL_SEGMENT) as a,
        opened(database.dsn, segment_bytes=SMALL_SEGMENT) as b,
    ):
        fill(a, ["f"], 150)
        b.store.refresh()
        with opened(database.dsn, segment_bytes=SMALL_SEGMENT) as writing:
            dropping = [
                threading.Thread(target=bench.store.drop_before, args=[bench.store.end()]) for bench in (a, b)
            ]
            for one in dropping:
                one.start()
            head = writing.tail("f").head
            while any(one.is_alive() for one in dropping):
                head += 1
                assert writing.append("f", "meanwhile").first_sequence_id == head
            writing.store.refresh()
            assert writing.tail("f").dropped_sequence_id > 0
            assert max(writing.values("f")) == head
            assert [number for _, number in writing.walked()] == sorted(writing.values("f"))
        oldest = writing.store.oldest_position()
        wait_until(lambda: a.store.oldest_position() == b.store.oldest_position() == oldest)


def test_registration_at_both_servers_makes_one_feed(database: Database) -> None:
    with opened(database.dsn) as a, opened(database.dsn) as b:
        made = a.register("f", instance="i")
        again = b.register("f", instance="i", new_incarnation="of-nobody")
        assert (again.incarnation, again.region_id, again.epoch) == (INCARNATION, made.region_id, 1)
        assert b.register("g").region_id == made.region_id + 1
