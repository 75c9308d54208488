"""What gRPC answers once retention has dropped what was asked for, in the words of RFC-010; on both stores."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import grpc
import pytest

from headrace.client.channel import open_channel
from headrace.client.log_append import LogAppendClient, Stored
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.wire.generated import wal_pb2
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import WAIT_S_MAX, halves, next_batch, read_until, writes
from tests.servers import Feed, ServerProcess, serving
from tests.stores import STORES, database_of
from tests.waiting import async_wait_until

AT_ONCE = ("--retention", "1ms", "--retention-every", "100ms")
CAPPED = ("--retention-bytes-max", "4m", "--segment-size", "1m", "--retention-every", "100ms")


@pytest.fixture(params=list(STORES))
def store_args(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """What a server of this test's own is started with, beside its retention."""
    if request.param == "postgres":
        return ["--store", database_of(request.getfixturevalue("cluster"), tmp_path)]
    return []


@asynccontextmanager
async def running(
    folder: Path, args: Sequence[str]
) -> AsyncIterator[tuple[ServerProcess, LogAppendClient, WalClient]]:
    """A server, and clients of it."""
    with serving(folder, args=args, grpc=True) as server:
        async with (
            LogAppendClient(server.grpc_address) as appender,
            WalClient(server.grpc_address, subscriber_id="s") as wal,
        ):
            yield server, appender, wal
        assert "Traceback" not in server.errors()


async def all_dropped(feed: Feed, last: Stored) -> None:
    """Wait until retention has dropped everything up to ``last``."""

    async def is_gone() -> bool:
        view = (await asyncio.to_thread(feed.server.http.get, feed.path)).json()
        return bool(view["oldest-sequence-id"] == last.last_sequence_id + 1)

    await async_wait_until(is_gone, WAIT_S_MAX, what="everything to be dropped")


async def answers(server: ServerProcess, start: Lsn) -> list[wal_pb2.WalResponse]:
    """All that a subscription from ``start`` is answered, which ends by itself."""
    found: list[wal_pb2.WalResponse] = []
    async with open_channel(server.grpc_address) as channel:
        ask = wal_pb2.SubscribeRequest(start_lsn=str(start)).SerializeToString()
        call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(ask)
        async with asyncio.timeout(WAIT_S_MAX):
            while (data := await call.read()) is not grpc.aio.EOF:
                found.append(wal_pb2.WalResponse.FromString(data))
    return found


async def test_right_after_everything_was_dropped(tmp_path: Path, store_args: list[str]) -> None:
    async with running(tmp_path, [*store_args, *AT_ONCE]) as (server, appender, wal):
        feed, empty = registered(server), registered(server)
        first = await appender.append(writes(feed), halves(1, 3))
        last = await appender.append(writes(feed), halves(4, 5))
        await all_dropped(feed, last)
        end = await appender.tail(feed.name, feed.agent)
        assert (end.next_sequence_id, end.newest_lsn) == (6, str(last.last_lsn))
        assert (end.last_frame.first_sequence_id, end.last_frame.count) == (4, 2)
        untouched = await appender.tail(empty.name, feed.agent)
        assert (untouched.next_sequence_id, untouched.HasField("last_frame")) == (1, False)
        over_http = (await asyncio.to_thread(server.http.get, f"{feed.path}/tail")).json()
        assert (over_http["next-sequence-id"], over_http["newest-lsn"]) == (6, str(last.last_lsn))
        assert await wal.bounds() == (last.last_lsn, last.last_lsn)
        words = (
            f"lsn_not_available: start_lsn={first.first_lsn} older than oldest_lsn={last.last_lsn}; "
            f"perform a base snapshot and restart from head_lsn={last.last_lsn}"
        )
        assert [one.error for one in await answers(server, first.first_lsn)] == [words], (
            "and a status that is OK"
        )
        # A retry of what was dropped, and the next append, go on as if it were there.
        again = await appender.append(writes(feed), halves(4, 5), expected_offset=4)
        assert (again.duplicate, again.first_lsn) == (True, last.first_lsn)
        async with aclosing(wal.subscribe(last.last_lsn)) as items:
            waiting = asyncio.create_task(next_batch(items))
            later = await appender.append(writes(feed), halves(6, 6), expected_offset=6)
            assert (await waiting).first_lsn == later.first_lsn
        assert await wal.bounds() == (later.last_lsn, later.first_lsn)


async def test_where_a_stream_may_begin(tmp_path: Path, store_args: list[str]) -> None:
    """At the newest dropped LSN and just above it: who had read everything lost nothing. Not just below."""
    async with running(tmp_path, [*store_args, *AT_ONCE]) as (server, appender, wal):
        feed = registered(server)
        dropped = await appender.append(writes(feed), halves(1, 3))
        await all_dropped(feed, dropped)
        # From here on a subscriber holds, so that what follows stays.
        async with aclosing(wal.subscribe(dropped.last_lsn)) as items:
            waiting = asyncio.create_task(next_batch(items))
            kept = await appender.append(writes(feed), halves(4, 6))
            assert (await waiting).first_lsn == kept.first_lsn
        above = Lsn.from_int(int(dropped.last_lsn) + 1)
        for start in (dropped.last_lsn, above, kept.first_lsn, None):
            (batch,) = await read_until(wal, start, kept.last_lsn)
            assert (batch.first_lsn, len(batch.sizes)) == (kept.first_lsn, 3)
        below = Lsn.from_int(int(dropped.last_lsn) - 1)
        for start in (below, dropped.first_lsn, Lsn(1, 0, 0)):
            (end,) = await answers(server, start)
            assert end.error == (
                f"lsn_not_available: start_lsn={start} older than oldest_lsn={kept.first_lsn}; "
                f"perform a base snapshot and restart from head_lsn={kept.last_lsn}"
            )


async def test_a_stream_whose_next_entry_was_dropped_ends_in_those_words(
    tmp_path: Path, store_args: list[str]
) -> None:
    """It takes nothing while the byte cap takes what it would read next: no gap, and a clear end."""
    async with running(tmp_path, [*store_args, *CAPPED]) as (server, appender, wal):
        feed, sent = registered(server), list[Stored]()
        sent.append(await appender.append(writes(feed), halves(1, 1, value=b" " * 900_000)))
        async with open_channel(server.grpc_address) as channel:
            call = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(b"")
            found = [wal_pb2.WalResponse.FromString(await call.read())]
            for number in range(2, 61):
                sent.append(await appender.append(writes(feed), halves(number, number, value=b" " * 900_000)))

            async def is_capped() -> bool:
                view = (await asyncio.to_thread(server.http.get, "/retention")).json()
                return bool(view["bytes"] <= 4 << 20)

            await async_wait_until(is_capped, WAIT_S_MAX, what="the byte cap to take the rest")
            async with asyncio.timeout(WAIT_S_MAX):
                while (data := await call.read()) is not grpc.aio.EOF:
                    found.append(wal_pb2.WalResponse.FromString(data))
        lsns = [entry.lsn for one in found[:-1] for entry in one.batch.entries]
        assert lsns == [str(one.first_lsn) for one in sent[: len(lsns)]], "no gap"
        head, oldest = await wal.bounds()
        assert len(lsns) < 50
        assert found[-1].error == (
            f"lsn_not_available: start_lsn={lsns[-1]} older than oldest_lsn={oldest}; "
            f"perform a base snapshot and restart from head_lsn={head}"
        )
        view = (await asyncio.to_thread(server.http.get, "/alarms")).json()
        assert "place-lost" in {alarm["code"] for alarm in view["alarms"]}
