"""The face in this process, with short bounds: what a client can't make it wait for, hold, or do."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.log.log import Log
from headrace.server.pg import walking, wire
from headrace.server.pg.confirming import TELL_EVERY_S
from headrace.server.pg.face import PgFace
from headrace.server.pg.messages import CANCEL_REQUEST, MESSAGE_BYTES_MAX, STARTUP_BYTES_MAX
from headrace.server.pg.terms import PgTerms
from headrace.server.run import Address, bind
from headrace.server.service import Service
from tests.bench import append, register
from tests.pg import bounded, startup_packet, states_of
from tests.waiting import async_wait_until

WAIT_S = 30.0


class Served(NamedTuple):
    log: Log
    face: PgFace


@asynccontextmanager
async def served(folder: Path, **terms: Any) -> AsyncIterator[Served]:
    log = Log.open(folder)
    await log.start()
    service = Service(log)
    await service.start()
    face = PgFace(bounded(bind(Address("127.0.0.1", 0))), None, PgTerms(**terms))
    await face.start(service, log)
    await log.register(register("f"))
    try:
        yield Served(log, face)
    finally:
        await face.stop()
        await service.close()
        await log.close()


class Client:
    """Speaks over asyncio's streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, served: Served) -> Client:
        client = bounded(socket.socket())
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", served.face.port))
        return cls(*await asyncio.open_connection(sock=client))

    @classmethod
    async def login(cls, served: Served) -> Client:
        client = await cls.connect(served)
        client.writer.write(startup_packet())
        assert (await client.until(b"Z"))[-1][0] == b"Z"
        return client

    def query(self, sql: str) -> None:
        body = sql.encode() + b"\0"
        self.writer.write(b"Q" + struct.pack(">I", len(body) + 4) + body)

    async def until(self, kind: bytes) -> list[tuple[bytes, bytes]]:
        """Messages up to one of this kind, or to the end of the connection."""
        found: list[tuple[bytes, bytes]] = []
        async with asyncio.timeout(WAIT_S):
            try:
                while not found or found[-1][0] != kind:
                    head = await self.reader.readexactly(5)
                    body = await self.reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)
                    found.append((head[:1], body))
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
        return found

    async def all(self) -> list[tuple[bytes, bytes]]:
        return await self.until(b"")

    async def start(self, slot: str) -> None:
        self.query(f"CREATE_REPLICATION_SLOT {slot} LOGICAL headrace")
        await self.until(b"Z")
        self.query(f"START_REPLICATION SLOT {slot} LOGICAL 0/0")
        assert (await self.until(b"W"))[-1][0] == b"W"

    def close(self) -> None:
        self.writer.close()


@pytest.mark.parametrize("said", [b"", b"\0\0", b"\0\0\0\x20\0\x03\0\0user"])
async def test_a_login_that_does_not_come_to_its_end_is_ended(tmp_path: Path, said: bytes) -> None:
    async with served(tmp_path, login_timeout_s=0.2) as one:
        client = await Client.connect(one)
        client.writer.write(said)
        assert await client.all() == []
        client.close()


@pytest.mark.parametrize("size", [0, 3, 7, STARTUP_BYTES_MAX + 1, 1 << 31, (1 << 32) - 1])
async def test_a_startup_packet_of_an_absurd_length_is_refused_at_once(tmp_path: Path, size: int) -> None:
    async with served(tmp_path) as one:
        client = await Client.connect(one)
        client.writer.write(struct.pack(">I", size))
        assert states_of(await client.all()) == ["08P01"]
        client.close()


@pytest.mark.parametrize("size", [0, 3, MESSAGE_BYTES_MAX + 1, 1 << 31, (1 << 32) - 1])
async def test_a_message_of_an_absurd_length_is_refused_at_once(tmp_path: Path, size: int) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        client.writer.write(b"Q" + struct.pack(">I", size))
        assert states_of(await client.all()) == ["08P01"]
        client.close()


async def test_half_a_message_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    async with served(tmp_path, message_timeout_s=0.2) as one:
        client = await Client.login(one)
        client.writer.write(b"Q\0\0\1\0SELECT")
        assert states_of(await client.all()) == ["08P01"]
        client.close()


@pytest.mark.parametrize("kind", [b"\0", b"Y", b"p", b"R", b"\xff"])
async def test_an_unknown_message_ends_the_session(tmp_path: Path, kind: bytes) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        client.writer.write(kind + struct.pack(">I", 4))
        assert states_of(await client.all()) == ["08P01"]
        client.close()


async def test_no_more_sessions_than_there_may_be(tmp_path: Path) -> None:
    async with served(tmp_path, sessions_max=1) as one:
        first = await Client.login(one)
        second = await Client.connect(one)
        second.writer.write(startup_packet())
        assert states_of(await second.all()) == ["53300"]
        first.close()
        second.close()


async def test_who_says_nothing_keeps_nobody_else_out(tmp_path: Path) -> None:
    async with served(tmp_path, sessions_max=2) as one:
        silent = [await Client.connect(one) for _ in range(5)]
        for client in silent[:3]:  # the oldest went for those that came after them
            assert await client.all() == []
        for client in [await Client.login(one), await Client.login(one), *silent]:
            client.close()


async def test_a_cancel_request_is_heard_where_all_sessions_are_taken(tmp_path: Path) -> None:
    async with served(tmp_path, sessions_max=1) as one:
        client = await Client.connect(one)
        client.writer.write(startup_packet())
        key = next(body for kind, body in await client.until(b"Z") if kind == b"K")
        await client.start("s")
        asking = await Client.connect(one)
        asking.writer.write(struct.pack(">II", 16, CANCEL_REQUEST) + key)
        assert await asking.all() == []
        assert states_of(await client.until(b"Z")) == ["57014"]
        for each in (client, asking):
            each.close()


async def test_a_session_that_has_ended_counts_until_its_client_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it left unread takes memory, for so long as the server waits for it to be read."""
    monkeypatch.setattr(wire, "CLOSE_S_MAX", 0.5)
    async with served(tmp_path, sessions_max=1) as one:
        client = await Client.login(one)
        await client.start("s")
        for _ in range(20):
            await one.log.append(append("f", *["x" * 1000] * 1000))
        client.writer.write(b"Y" + struct.pack(">I", 4))

        async def second_comes_in() -> bool:
            second = await Client.connect(one)
            second.writer.write(startup_packet())
            refused = states_of(await second.until(b"Z"))
            second.close()
            assert refused in ([], ["53300"])
            return not refused

        await async_wait_until(second_comes_in, what="the first one to be given up")
        client.close()


async def test_a_client_that_reads_no_answers_is_left(tmp_path: Path) -> None:
    async with served(tmp_path, sender_timeout_s=0.5, sessions_max=1) as one:
        client = await Client.login(one)
        statements = ";".join(["SHOW server_version"] * 99)

        async def ask_without_end() -> None:
            while True:
                client.query(statements)
                await client.writer.drain()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(ask_without_end(), 2 * WAIT_S)
        client.close()


@pytest.mark.parametrize(("minor", "options"), [(2, {}), (0, {"_pq_.x": "1"}), (7, {"_pq_.x": "1"})])
async def test_a_client_of_a_newer_protocol_is_told_which_one_is_spoken(
    tmp_path: Path, minor: int, options: dict[str, str]
) -> None:
    async with served(tmp_path) as one:
        client = await Client.connect(one)
        parameters = {"user": "ann", "replication": "database", **options}
        words = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
        client.writer.write(struct.pack(">II", len(words) + 8, 3 << 16 | minor) + words)
        told = [body for kind, body in await client.until(b"Z") if kind == b"v"]
        names = b"".join(f"{name}\0".encode() for name in options)
        assert told == [struct.pack(">II", 3 << 16, len(options)) + names]
        client.close()


async def test_no_more_slots_than_there_may_be(tmp_path: Path) -> None:
    async with served(tmp_path, slots_max=1) as one:
        client = await Client.login(one)
        for name, states in (("a", []), ("b", ["53400"])):
            client.query(f"CREATE_REPLICATION_SLOT {name} LOGICAL headrace")
            assert states_of(await client.until(b"Z")) == states
        client.close()


@pytest.mark.parametrize(
    "asked",
    [
        "CREATE_REPLICATION_SLOT s LOGICAL headrace",
        "SELECT pg_create_logical_replication_slot('s', 'headrace')",
    ],
)
async def test_who_makes_a_slot_is_warned_of_a_torn_transaction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    async with served(tmp_path) as one:
        for _ in range(3):
            await one.log.append(append("f", "x"))
        monkeypatch.setattr(walking, "LOOK_BACK_BYTES", 300)
        client = await Client.login(one)
        client.query(asked)
        answer = await client.until(b"Z")
        assert [kind for kind, _ in answer] == [b"N", b"T", b"D", b"C", b"Z"]
        assert answer[0][1].startswith(b"SWARNING\0VWARNING\0C01000\0Ma transaction")
        client.close()


async def test_a_silent_client_is_asked_and_then_left(tmp_path: Path) -> None:
    async with served(tmp_path, sender_timeout_s=1.0) as one:
        client = await Client.login(one)
        await client.start("s")
        asked = [body for kind, body in await client.all() if kind == b"d" and body[:1] == b"k"]
        assert asked[-1][-1] == 1, "the last word asks for an answer"
        await async_wait_until(lambda: not one.log.present_subscribers(), what="the slot to be free")
        client.close()


async def test_a_client_that_answers_stays(tmp_path: Path) -> None:
    async with served(tmp_path, sender_timeout_s=0.5) as one:
        client = await Client.login(one)
        await client.start("s")
        answered = 0
        async with asyncio.timeout(WAIT_S):
            while answered < 4:
                _, body = (await client.until(b"d"))[-1]
                if body[:1] == b"k" and body[-1]:
                    client.writer.write(b"d" + struct.pack(">IcQQQQB", 38, b"r", 0, 0, 0, 0, 0))
                    answered += 1
        client.close()


async def test_a_client_that_reads_nothing_loses_its_stream(tmp_path: Path) -> None:
    async with served(tmp_path, sender_timeout_s=1.5) as one:
        client = await Client.login(one)
        await client.start("s")
        for _ in range(40):
            await one.log.append(append("f", *["x" * 1000] * 1000))
        await async_wait_until(lambda: not one.log.present_subscribers(), what="the stream to end")
        (slot,) = one.log.metadata.slots.all()
        assert slot.holder == ""
        client.close()


async def test_a_client_that_asks_without_end_and_reads_nothing_loses_its_stream(tmp_path: Path) -> None:
    """Answers to it wait in no memory: it is not listened to before it has read them."""
    async with served(tmp_path, sender_timeout_s=1.5) as one:
        client = await Client.login(one)
        await client.start("s")
        asking = (b"d" + struct.pack(">IcQQQQB", 38, b"r", 0, 0, 0, 0, 1)) * 1000

        async def ask_without_end() -> None:
            while True:
                client.writer.write(asking)
                await client.writer.drain()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(ask_without_end(), 2 * WAIT_S)
        await async_wait_until(lambda: not one.log.present_subscribers(), what="the stream to end")
        client.close()


async def test_a_client_of_which_nothing_is_wanted_is_told_once_a_second(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        await one.log.register(register("other"))
        client = await Client.login(one)
        client.query("CREATE_REPLICATION_SLOT s LOGICAL headrace")
        await client.until(b"Z")
        client.query("START_REPLICATION SLOT s LOGICAL 0/0 (\"feeds\" 'other')")
        await client.until(b"W")
        loop = asyncio.get_running_loop()
        begun_s, appends, told = loop.time(), 0, list[int]()

        async def hear() -> None:
            while True:
                (message,) = await client.until(b"d")
                told.append(int.from_bytes(message[1][1:9], "big"))

        hearing = asyncio.create_task(hear())
        while len(told) < 3:
            await one.log.append(append("f", "x"))
            appends += 1
            assert loop.time() - begun_s < WAIT_S
        took_s = loop.time() - begun_s
        hearing.cancel()
        assert told == sorted(told)
        assert took_s >= (len(told) - 1) * TELL_EVERY_S
        assert appends > len(told)
        client.close()


async def test_a_client_that_is_far_from_the_end_is_told_how_far_the_journal_was_walked(
    tmp_path: Path,
) -> None:
    """What it confirms so is kept: else a long walk past what others wrote would begin anew each time."""
    async with served(tmp_path) as one:
        await one.log.register(register("other"))
        client = await Client.login(one)
        client.query("CREATE_REPLICATION_SLOT s LOGICAL headrace")
        await client.until(b"Z")
        begin = one.log.store.end()
        for _ in range(40):
            await one.log.append(append("f", *["x" * 1000] * 1000))
        end = one.log.store.end()
        client.query("START_REPLICATION SLOT s LOGICAL 0/0 (\"feeds\" 'other')")
        _, body = (await client.until(b"d"))[-1]
        told = int.from_bytes(body[1:9], "big")
        assert (body[:1], begin < told < end) == (b"k", True)
        client.writer.write(b"d" + struct.pack(">IcQQQQB", 38, b"r", told, told, told, 0, 0))

        async def kept() -> bool:
            (slot,) = await asyncio.to_thread(one.log.metadata.slots.all)
            return slot.position >= told

        await async_wait_until(kept, what="the confirmation to be durable")
        client.close()


async def test_a_stream_whose_slot_was_dropped_elsewhere_ends_with_that_word(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        await client.start("s")
        await one.log.append(append("f", "x"))
        assert (await client.until(b"d"))[-1][0] == b"d"
        assert await asyncio.to_thread(one.log.metadata.slots.drop, "s")
        client.writer.write(b"d" + struct.pack(">IcQQQQB", 38, b"r", 1 << 62, 1 << 62, 1 << 62, 0, 0))
        assert states_of(await client.until(b"Z")) == ["55006"]
        client.close()


async def test_a_stop_ends_streams_with_a_word(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        await client.start("s")
        one.face.begin_stop()
        assert states_of(await client.all()) == ["57P01"]
        client.close()


async def test_a_session_in_the_middle_of_nothing_does_not_keep_a_stop(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        async with asyncio.timeout(5):
            await one.face.stop()
        client.close()
