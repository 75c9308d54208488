"""``DROP_REPLICATION_SLOT … WAIT``: it waits for who uses the slot, and ends where its client does, or asks for it."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Sequence
from pathlib import Path

from headrace.server.pg.messages import CANCEL_REQUEST
from tests.pg import startup_packet, states_of
from tests.unit.server.pg.test_bounds import Client, Served, served
from tests.waiting import async_wait_until


async def waiting(one: Served) -> tuple[Client, bytes]:
    """A client whose drop of a slot waits, and its key for cancel requests."""
    client = await Client.connect(one)
    client.writer.write(startup_packet())
    keys = [body for kind, body in await client.until(b"Z") if kind == b"K"]
    client.query("DROP_REPLICATION_SLOT s WAIT")
    return client, keys[0]


def tags(messages: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    return [body.rstrip(b"\0") for kind, body in messages if kind == b"C"]


async def test_it_drops_once_the_slot_is_free(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        user = await Client.login(one)
        await user.start("s")
        dropping, _ = await waiting(one)
        user.close()
        assert tags(await dropping.until(b"Z")) == [b"DROP_REPLICATION_SLOT"]
        assert one.log.metadata.slots.one("s") is None
        dropping.close()


async def test_a_cancel_request_ends_it(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        user = await Client.login(one)
        await user.start("s")
        dropping, key = await waiting(one)
        answer = asyncio.create_task(dropping.until(b"Z"))

        async def cancelled() -> bool:
            """Ask until it is heard: a request before the statement has begun ends nothing."""
            cancelling = await Client.connect(one)
            cancelling.writer.write(struct.pack(">II", 16, CANCEL_REQUEST) + key)
            assert await cancelling.all() == []
            cancelling.close()
            return answer.done()

        await async_wait_until(cancelled, what="an answer")
        assert states_of(await answer) == ["57014"]
        assert one.log.metadata.slots.one("s") is not None
        for client in (user, dropping):
            client.close()


async def test_a_client_that_goes_away_drops_nothing_any_more(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        user = await Client.login(one)
        await user.start("s")
        dropping, _ = await waiting(one)
        dropping.close()
        await async_wait_until(lambda: len(one.face._sessions) == 1, what="its session to end")
        user.close()
        await async_wait_until(lambda: not one.face._sessions, what="the other one to end")
        assert one.log.metadata.slots.one("s") is not None
