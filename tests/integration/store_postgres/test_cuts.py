"""The connection is cut at each step of a group: whoever is answered is answered rightly, and nothing is half written."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable

import psycopg
import pytest

from headrace.errors import StoreUnavailable, Unavailable, refusal_of
from headrace.log.log import Log
from headrace.log.postgres import connection, group, listening
from headrace.log.postgres.store import PostgresStore
from headrace.log.requests import Appended
from headrace.log.rules import Terms, judge
from tests.bench import append, expecting, register
from tests.integration.store_postgres.shared import connections, opened, started, through
from tests.postgres import Database
from tests.proxy import Proxy
from tests.scale import SEED, scaled
from tests.waiting import async_wait_until, wait_until

STEPS = {
    "begin": b"BEGIN",
    "lock": b"FOR UPDATE",
    "frames": b"COPY headrace_log.frame",
    "tails": b"INSERT INTO headrace_log.feed",
    "end": b"UPDATE headrace_log.journal SET end_position",
}


@pytest.mark.parametrize("delivered", [False, True], ids=["never-arrives", "answer-is-lost"])
@pytest.mark.parametrize("step", list(STEPS))
def test_cut_before_commit_writes_nothing_and_says_so(database: Database, step: str, delivered: bool) -> None:
    with Proxy("127.0.0.1", database.cluster.port) as proxy, opened(database.dsn) as direct:
        direct.register("f")
        with opened(through(database.dsn, proxy.port)) as bench:
            bench.append("f", "before")
            bench.clock.ms = direct.clock.ms = direct.clock.ms + 1
            proxy.cut_at(STEPS[step], delivered=delivered)
            with pytest.raises(StoreUnavailable) as refusal:
                bench.append("f", "cut")
            assert "side-effects" not in refusal.value.members, "certainly not written"
            assert proxy.sprung
            # The lost session must not keep the others waiting for its lock.
            assert direct.append("f", "of another server").first_sequence_id == 2
            proxy.resume()
            assert bench.append("f", "after").first_sequence_id == 3
            assert bench.values("f") == {1: b"before", 2: b"of another server", 3: b"after"}
        direct.store.refresh()
        assert [number for _, number in direct.walked()] == [1, 2, 3]


def resume_once_cut(proxy: Proxy) -> None:
    """Take connections again as soon as the cut has come."""
    wait_until(lambda: proxy.sprung)
    proxy.resume()


@pytest.mark.parametrize("landed", [False, True], ids=["not-committed", "committed"])
def test_commit_whose_answer_is_lost_is_read_back(database: Database, landed: bool) -> None:
    with (
        Proxy("127.0.0.1", database.cluster.port) as proxy,
        opened(through(database.dsn, proxy.port)) as bench,
    ):
        bench.register("f")
        proxy.cut_at(b"COMMIT", delivered=landed)
        resumed = threading.Thread(target=resume_once_cut, args=[proxy])
        resumed.start()
        if landed:
            appended = bench.append("f", "once")
            assert (appended.first_sequence_id, appended.duplicate) == (1, False)
        else:
            with pytest.raises(StoreUnavailable) as refusal:
                bench.append("f", "once")
            assert "side-effects" not in refusal.value.members, "certainly not written"
            assert bench.append("f", "once").first_sequence_id == 1
        resumed.join()
        assert bench.values("f") == {1: b"once"}


@pytest.mark.parametrize("landed", [False, True], ids=["not-committed", "committed"])
def test_unclear_commit_is_called_unclear_and_a_retry_clears_it(
    database: Database, landed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group, "READ_BACK_S_MAX", 0.3)
    with (
        Proxy("127.0.0.1", database.cluster.port) as proxy,
        opened(through(database.dsn, proxy.port)) as bench,
    ):
        bench.register("f")
        proxy.cut_at(b"COMMIT", delivered=landed)
        with pytest.raises(StoreUnavailable) as refusal:
            bench.send(expecting("f", 1, "once"))
        assert refusal_of(refusal.value).side_effects == "possible"
        assert bench.tail("f").head <= landed, "nothing is shown that is not known to be durable"
        proxy.resume()
        again = bench.send(expecting("f", 1, "once"))
        assert (again.first_sequence_id, again.duplicate) == (1, landed)
        assert bench.values("f") == {1: b"once"}


def test_another_server_s_append_at_that_place_is_not_taken_for_the_lost_one(database: Database) -> None:
    """Byte for byte the same append, in the same millisecond, at the same place: only one of the two is in the journal."""
    with Proxy("127.0.0.1", database.cluster.port) as proxy, opened(database.dsn) as other:
        other.register("f")
        with opened(through(database.dsn, proxy.port)) as bench:
            bench.clock.ms = other.clock.ms
            proxy.cut_at(b"COMMIT", delivered=False)
            answers: list[object] = []

            def lose() -> None:
                try:
                    answers.append(bench.append("f", "same"))
                except StoreUnavailable as refusal:
                    answers.append(refusal.members.get("side-effects"))

            losing = threading.Thread(target=lose)
            losing.start()
            wait_until(lambda: proxy.sprung)
            assert other.append("f", "same").first_sequence_id == 1
            proxy.resume()
            losing.join()
            assert answers == [None], "certainly not written"
            assert other.values("f") == {1: b"same"}


def test_dead_line_is_given_up_and_does_not_keep_the_lock(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half-open: nobody is told of anything, no byte arrives."""
    monkeypatch.setattr(group, "CALL_S_MAX", 1.0)
    monkeypatch.setattr(group, "READ_BACK_S_MAX", 0.1)
    monkeypatch.setattr(listening, "ANSWER_S_MAX", 1.0)
    with Proxy("127.0.0.1", database.cluster.port) as proxy, opened(database.dsn) as other:
        other.register("f")
        with opened(through(database.dsn, proxy.port)) as bench:
            bench.append("f", "before")
            proxy.freeze()
            with pytest.raises(Unavailable):
                bench.append("f", "frozen")
            proxy.thaw()
            assert other.append("f", "of another server").first_sequence_id == 2
            assert bench.append("f", "after").first_sequence_id == 3
            assert bench.values("f") == {1: b"before", 2: b"of another server", 3: b"after"}


def test_server_that_freezes_in_a_group_loses_the_lock_and_writes_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection._SETTINGS, "idle_in_transaction_session_timeout", "300")
    with opened(database.dsn) as frozen, opened(database.dsn) as other:
        frozen.register("f")
        begin = frozen.store.begin({"f"})
        verdict = judge([append("f", "late")], begin, Terms(frozen.clock.ms), lambda *_: [])
        assert other.append("f", "of another server").first_sequence_id == 1
        with pytest.raises(StoreUnavailable) as refusal:
            frozen.store.put(begin, verdict.group)
        assert "side-effects" not in refusal.value.members, "certainly not written"
        assert frozen.append("f", "after").first_sequence_id == 2
        assert frozen.values("f") == {1: b"of another server", 2: b"after"}


def test_session_that_was_lost_in_a_group_is_ended_for_its_lock(database: Database) -> None:
    """PostgreSQL may not know for long that its client is gone: the server that lost the session ends it."""
    with opened(database.dsn) as bench, database.connect(autocommit=False) as lost:
        bench.register("f")
        assert isinstance(bench.store, PostgresStore)
        writer = bench.store._writer
        lost.execute("SELECT 1 FROM headrace_log.journal FOR UPDATE")
        ((started,),) = database.sql(
            f"SELECT backend_start::text FROM pg_stat_activity WHERE pid = {lost.info.backend_pid}"
        )
        writer._drop()
        writer._ghost = group._Session(lost, lost.info.backend_pid, started)
        assert bench.append("f", "x").first_sequence_id == 1
        with pytest.raises(psycopg.OperationalError):
            lost.execute("SELECT 1")


async def test_producers_that_retry_end_exactly_where_they_should(database: Database) -> None:
    """Cuts at random messages, two servers, conditional retries: each feed holds exactly what its producer sent."""
    rng = random.Random(SEED)
    feeds = [f"f{number}" for number in range(4)]
    with Proxy("127.0.0.1", database.cluster.port) as proxy:
        async with started(through(database.dsn, proxy.port)) as first, started(database.dsn) as second:
            for feed in feeds:
                await second.register(register(feed))
            done = asyncio.Event()
            nemesis = asyncio.create_task(_cut_at_random(proxy, rng, done))
            logs = (first, second)
            counts = await asyncio.gather(*[
                _produce(random.Random(f"{SEED} {at}"), logs, feed, done) for at, feed in enumerate(feeds)
            ])  # fmt: skip
            await nemesis
    with opened(database.dsn) as bench:
        for feed, count in zip(feeds, counts, strict=True):
            assert list(bench.values(feed).values()) == [
                f"{feed}-{number}".encode() for number in range(count)
            ]
        lsns = [lsn for lsn, _ in bench.walked()]
        assert lsns == sorted(set(lsns))
        assert len(lsns) == sum(counts)
    wait_until(lambda: connections(database) == 0, what="every connection to be closed")


async def _cut_at_random(proxy: Proxy, rng: random.Random, done: asyncio.Event) -> None:
    """Cut so often, then let everybody finish. A statement that is prepared by now is not met by its text: choose again."""
    try:
        for _ in range(scaled(10)):
            sprung = False
            while not sprung:
                step = rng.choice([*STEPS.values(), b"COMMIT", b"COMMIT"])
                proxy.cut_at(step, delivered=rng.random() < 0.5)
                sprung = await _passes(lambda: proxy.sprung, 0.2)
            await _passes(lambda: False, rng.random() / 10)
            await asyncio.to_thread(proxy.resume)
    finally:
        done.set()


async def _passes(condition: Callable[[], bool], within_s: float) -> bool:
    try:
        return await async_wait_until(condition, within_s)
    except AssertionError:
        return False


async def _produce(rng: random.Random, logs: tuple[Log, Log], feed: str, done: asyncio.Event) -> int:
    """Send each append again and again, at either server, until it is known to be stored; returns the entries."""
    sent = 0
    while not done.is_set():
        values = [f"{feed}-{sent + at}" for at in range(rng.randint(1, 3))]
        answer: Appended | None = None
        while answer is None:
            with contextlib.suppress(Unavailable):
                answer = await rng.choice(logs).append(expecting(feed, sent + 1, *values))
        assert (answer.first_sequence_id, answer.last_sequence_id) == (sent + 1, sent + len(values))
        sent += len(values)
    return sent
