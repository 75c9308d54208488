"""A producer sends the same range again until it is answered, and goes on only by what it was answered."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from headrace.client import producer as module
from headrace.client.http import FeedClient
from headrace.client.producer import Producer
from headrace.errors import InvalidRequest, OffsetMismatch, Unavailable
from headrace.wire import documents as doc
from tests.unit.client.servers import listening, read_request

FEED = "ledger"


@dataclass
class Script:
    """A server that acts out a script, one step a request; ``bodies`` are the requests it got."""

    steps: list[bytes | None]
    bodies: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line, headers, body = await read_request(reader)
            self.bodies.append((line, headers, json.loads(body) if body else None))
            answer = self.steps.pop(0)
            if answer is None:
                return
            writer.write(answer)
            await writer.drain()


def answer(document: Any, status: int = 200) -> bytes:
    body = msgspec.json.encode(document)
    head = f"HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


REGISTERED = answer(
    doc.PublisherRegistered(change_feed_id=FEED, next_sequence_id=7, epoch=3, incarnation="inc", region_id=1)
)


def appended(first: int, last: int, *, duplicate: bool = False) -> bytes:
    return answer(
        doc.Appended(
            first_sequence_id=first, last_sequence_id=last, first_lsn="1.1.1", last_lsn="1.1.2", incarnation="inc",
            duplicate=duplicate,
        )
    )  # fmt: skip


def problem(status: int, code: str, **members: Any) -> bytes:
    return answer({"code": code, "detail": "d", "hint": "h", **members}, status)


@asynccontextmanager
async def producing(*steps: bytes | None) -> AsyncIterator[tuple[Producer, Script]]:
    """A producer whose registration was answered, and the script's server."""
    script = Script([REGISTERED, *steps])
    async with listening(script.converse) as url, FeedClient(url) as client:
        yield await Producer.register(client, FEED, "agent-1"), script


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_FIRST_S", 0.001)
    monkeypatch.setattr(module, "RETRY_DELAY_S_MAX", 0.01)


async def test_each_entry_names_its_place() -> None:
    async with producing(appended(7, 8), appended(9, 9)) as (producer, script):
        await producer.append([{"n": 1}, doc.EntryIn(changes=msgspec.Raw(b"{}"), key="k", op="delete")])
        assert producer.next_sequence_id == 9
        await producer.append([{"n": 3}], source_position=b"p")
    (_, first, body), (_, second, later) = script.bodies[1:]
    assert body == {
        "entries": [
            {"changes": {"n": 1}, "agent-id": "agent-1", "expected-offset": 7},
            {"changes": {}, "agent-id": "agent-1", "expected-offset": 8, "key": "k", "op": "delete"},
        ]
    }
    assert (first["headrace-epoch"], first["headrace-incarnation"]) == ("3", "inc")
    assert second["headrace-source-position"] == "cA=="
    assert later["entries"][0]["expected-offset"] == 9


async def test_unclear_outcomes_send_the_very_same_again() -> None:
    unclear = [
        None,
        problem(503, "store-unavailable"),
        problem(503, "writer-stopped", **{"side-effects": "possible"}),
        b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n",
        None,
    ]
    async with producing(*unclear, appended(7, 8, duplicate=True)) as (producer, script):
        done = await producer.append([{"n": 1}, {"n": 2}])
        assert done.duplicate
        assert producer.next_sequence_id == 9
    sent = [body for _, _, body in script.bodies[1:]]
    assert len(sent) == 6
    assert all(body == sent[0] for body in sent)


async def test_mismatch_is_the_callers_to_judge() -> None:
    refusal = problem(409, "offset-mismatch", **{"actual-next": 9, "side-effects": "none"})
    async with producing(None, refusal) as (producer, script):
        with pytest.raises(OffsetMismatch) as raised:
            await producer.append([{"n": 1}])
        assert raised.value.members["actual-next"] == 9
        assert producer.next_sequence_id == 7, "nothing moves before somebody has read what is there"
    assert len(script.bodies) == 3


async def test_time_out_leaves_the_place_so_that_the_same_call_goes_on() -> None:
    async with producing(problem(503, "store-unavailable"), appended(7, 7)) as (producer, script):
        with pytest.raises(Unavailable):
            await producer.append([{"n": 1}], retry_s_max=0)
        assert producer.next_sequence_id == 7
        await producer.append([{"n": 1}], retry_s_max=0)
    assert script.bodies[1][2] == script.bodies[2][2]


async def test_registration_is_sent_again_as_the_same_instance() -> None:
    script = Script([None, problem(503, "store-unavailable"), REGISTERED])
    async with listening(script.converse) as url, FeedClient(url) as client:
        producer = await Producer.register(client, FEED, "agent-1", shared=True)
    assert (producer.epoch, producer.next_sequence_id) == (3, 7)
    instances = {body["instance"] for _, _, body in script.bodies}
    assert len(instances) == 1
    assert all(body["shared"] for _, _, body in script.bodies)


async def test_two_producers_of_one_agent_are_two_instances() -> None:
    script = Script([REGISTERED, REGISTERED])
    async with listening(script.converse) as url, FeedClient(url) as client:
        for _ in range(2):
            await Producer.register(client, FEED, "agent-1")
    assert len({body["instance"] for _, _, body in script.bodies}) == 2


async def test_resume_goes_to_the_end() -> None:
    tail = doc.Tail(
        change_feed_id=FEED, next_sequence_id=12, newest_lsn="1.1.1", incarnation="inc", region_id=1, owner="agent-1",
        epoch=3, last_frame=doc.LastFrame(first_sequence_id=9, count=2, source_position="cA=="),
    )  # fmt: skip
    async with producing(None, answer(tail)) as (producer, script):
        assert await producer.resume() == tail
        assert producer.next_sequence_id == 12
    assert script.bodies[2][0] == f"GET /feeds/{FEED}/tail?producer=agent-1 HTTP/1.1"


async def test_nothing_to_append_is_no_append() -> None:
    async with producing() as (producer, script):
        with pytest.raises(InvalidRequest):
            await producer.append([])
    assert len(script.bodies) == 1
