"""What a query may cost, and what a stream says of a row that it can't write; over the wire, in this process."""

from __future__ import annotations

import asyncio
import re
import struct
from functools import partial
from pathlib import Path

from headrace.entries.entry import Change
from headrace.log.requests import Append
from headrace.server.pg.answers import ANSWER_BYTES_MAX, SLOT_COLUMNS
from headrace.wire.entry import digest, encode_half
from tests.bench import AGENT
from tests.pg import states_of
from tests.unit.server.pg.test_bounds import WAIT_S, Client, Served, served
from tests.waiting import async_wait_until


async def test_an_answer_that_would_be_too_long_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        for name in ("a", "b", "c"):
            client.query(f"CREATE_REPLICATION_SLOT {name} TEMPORARY LOGICAL headrace")
            await client.until(b"Z")
        asked = f"SELECT {','.join([repr('x' * 5_000)] * 100)} FROM pg_replication_slots"
        client.query(f"{asked} LIMIT 2")
        assert sum(len(body) for kind, body in await client.until(b"Z") if kind == b"D") > 1_000_000
        client.query(asked)
        answer = await client.until(b"Z")
        assert states_of(answer) == ["54000"]
        assert sum(len(body) for _, body in answer) < ANSWER_BYTES_MAX // 1_000
        client.query("SELECT * FROM pg_replication_slots LIMIT " + "9" * 5_000)
        assert states_of(await client.until(b"Z")) == ["54000"]
        client.query("SELECT * FROM pg_replication_slots")
        (columns, *_) = await client.until(b"Z")
        assert struct.unpack(">H", columns[1][:2]) == (len(SLOT_COLUMNS),)
        client.close()


def put(table: str, value: bytes) -> Append:
    half = encode_half(Change(value, key=b"k", table=("public", table)))
    return Append("f", AGENT, [half], digest([half]))


async def started(one: Served, asked: str) -> tuple[Client, tuple[bytes, bytes]]:
    """A stream, and its first message that is an error or a record of the table ``good``."""
    client = await Client.login(one)
    client.query(f"START_REPLICATION SLOT s LOGICAL {asked}")
    async with asyncio.timeout(WAIT_S):
        while True:
            head = await client.reader.readexactly(5)
            body = await client.reader.readexactly(struct.unpack(">I", head[1:])[0] - 4)
            if head[:1] == b"E" or b'"good"' in body:
                return client, (head[:1], body)


def hint_of(error: bytes) -> str:
    return next(part[1:].decode() for part in error.split(b"\0") if part[:1] == b"H")


async def is_free(one: Served) -> bool:
    """Whether nobody uses the slot."""
    client = await Client.login(one)
    client.query("SELECT active FROM pg_replication_slots WHERE slot_name = 's'")
    (row,) = [body for kind, body in await client.until(b"Z") if kind == b"D"]
    client.close()
    return row.endswith(b"f")


async def test_a_row_that_can_not_be_read_does_not_stop_a_slot_for_good(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        client.query("CREATE_REPLICATION_SLOT s LOGICAL wal2json")
        await client.until(b"Z")
        client.close()
        await one.log.append(put("b.ad", b"[1]"))
        await one.log.append(put("good", b'{"id":1}'))
        client, (kind, body) = await started(one, "0/0")
        assert states_of([(kind, body)]) == ["22P02"]
        client.close()
        hint = hint_of(body)
        behind = re.search(r"LOGICAL ([0-9A-F]+/[0-9A-F]+)", hint)
        without = re.search(r"filter-tables '([^']+)'", hint)
        assert behind is not None
        assert without is not None
        for asked in (f"0/0 (\"filter-tables\" '{without[1]}')", behind[1]):
            await async_wait_until(partial(is_free, one), what="the slot to be free")
            client, (kind, _) = await started(one, asked)
            assert kind == b"d"
            client.close()


async def test_a_stream_whose_slot_is_gone_says_so(tmp_path: Path) -> None:
    async with served(tmp_path) as one:
        client = await Client.login(one)
        await client.start("s")
        one.log.metadata.slots.drop("s")  # as another server of the store would do it
        assert one.face._slots is not None
        await one.face._slots.note()
        assert states_of(await client.until(b"Z")) == ["55006"]
        client.close()
