"""What each call sends, and how the answer comes back as a value."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from headrace.client.http import FeedClient, place_headers
from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.wire import documents as doc
from tests.unit.client.servers import answering

FEED = "vmapi::vm"
PATH = "/feeds/vmapi%3A%3Avm"
LSN = Lsn(1, 2, 3)
CHANGES = doc.ChangesList(
    changes_list=[
        doc.EntryOut(
            sequence_id=1,
            lsn="1.2.3",
            committed_at="2026-01-01T00:00:00.000Z",
            changes=msgspec.Raw(b'{"a" : 1.50}'),
        )
    ],
    incarnation="inc",
    head_sequence_id=9,
    oldest_sequence_id=1,
)
APPENDED = doc.Appended(
    first_sequence_id=1, last_sequence_id=2, first_lsn="1.2.3", last_lsn="1.2.4", incarnation="inc"
)

SETTINGS = doc.FeedSettings(change_feed_id=FEED, key_field="uuid", changes="full", expected_offset="required")

Call = Callable[[FeedClient], Awaitable[Any]]
CALLS: dict[str, tuple[Call, Any, str, dict[str, str], Any]] = {
    "register publisher": (
        lambda client: client.register_publisher("a", FEED),
        doc.PublisherRegistered(
            change_feed_id=FEED, next_sequence_id=1, epoch=1, incarnation="inc", region_id=1
        ),
        "POST /publishers/register",
        {"content-type": "application/json"},
        {"agent-id": "a", "change-feed-id": FEED},
    ),
    "register publisher, all of it": (
        lambda client: client.register_publisher("a", FEED, instance="i", takeover=True, tenant_id="t"),
        doc.PublisherRegistered(
            change_feed_id=FEED, next_sequence_id=1, epoch=1, incarnation="inc", region_id=1
        ),
        "POST /publishers/register",
        {},
        {"agent-id": "a", "change-feed-id": FEED, "instance": "i", "takeover": True, "tenant-id": "t"},
    ),
    "register producer of a shared feed": (
        lambda client: client.register_publisher("a", FEED, instance="i", shared=True),
        doc.PublisherRegistered(
            change_feed_id=FEED, next_sequence_id=1, epoch=2, incarnation="inc", region_id=1, shared=True
        ),
        "POST /publishers/register",
        {},
        {"agent-id": "a", "change-feed-id": FEED, "instance": "i", "shared": True},
    ),
    "settings": (
        lambda client: client.settings(FEED),
        SETTINGS,
        f"GET {PATH}/settings",
        {},
        None,
    ),
    "configure": (
        lambda client: client.configure(FEED, doc.ChangeSettings(expected_offset="required")),
        SETTINGS,
        f"PUT {PATH}/settings",
        {"content-type": "application/json"},
        {"expected-offset": "required"},
    ),
    "append": (
        lambda client: client.append(
            FEED,
            [doc.EntryIn(changes=msgspec.Raw(b'{"n" : 1.50}'), agent_id="a", expected_offset=5)],
            epoch=3,
            incarnation="inc",
            source_position=b"\x00p",
            marked_at_ms=7,
            traceparent="00-x",
        ),
        APPENDED,
        f"POST {PATH}/entries",
        {
            "headrace-epoch": "3",
            "headrace-incarnation": "inc",
            "headrace-source-position": "AHA=",
            "headrace-marked-at": "7",
            "traceparent": "00-x",
        },
        {"entries": [{"changes": {"n": 1.5}, "agent-id": "a", "expected-offset": 5}]},
    ),
    "tail": (
        lambda client: client.tail(FEED, "a/b"),
        doc.Tail(
            change_feed_id=FEED,
            next_sequence_id=3,
            newest_lsn="1.2.3",
            incarnation="inc",
            region_id=1,
            owner="a",
            epoch=1,
            last_frame=doc.LastFrame(first_sequence_id=1, count=2, source_position="cDc="),
        ),
        f"GET {PATH}/tail?producer=a%2Fb",
        {},
        None,
    ),
    "register listener": (
        lambda client: client.register_listener("l", FEED),
        doc.ListenerRegistered(
            change_feed_id=FEED, incarnation="inc", oldest_sequence_id=1, head_sequence_id=2
        ),
        "POST /listeners/register",
        {},
        {"listener-id": "l", "change-feed-id": FEED},
    ),
    "poll": (
        lambda client: client.poll(FEED, "l", 7, bookmark=Bookmark("inc", 7, LSN), timeout_ms=10, limit=5),
        CHANGES,
        f"GET {PATH}/poll?listener-id=l&after-sequence-id=7&timeout-ms=10&limit=5",
        {"headrace-incarnation": "inc", "headrace-lsn": str(LSN)},
        None,
    ),
    "read": (
        lambda client: client.read(FEED, 1, 9, limit=5, bookmark=Bookmark("inc", 0)),
        CHANGES,
        f"GET {PATH}/entries?beg-sequence-id=1&end-sequence-id=9&limit=5",
        {"headrace-incarnation": "inc"},
        None,
    ),
}


@pytest.mark.parametrize(("call", "answer", "line", "headers", "body"), CALLS.values(), ids=CALLS)
async def test_call(call: Call, answer: Any, line: str, headers: dict[str, str], body: Any) -> None:
    async with (
        answering(body=msgspec.json.encode(answer)) as server,
        FeedClient(server.url, token="secret") as client,
    ):
        assert await call(client) == answer
    ((first, sent, content),) = server.requests
    assert first == f"{line} HTTP/1.1"
    assert headers.items() <= sent.items()
    assert sent["authorization"] == "Bearer secret"
    assert (json.loads(content) if content else None) == body


async def test_changes_go_out_and_come_in_byte_for_byte() -> None:
    raw = b'{"n" : 1.50,\n "n":"\\u00e9"}'
    async with answering(body=msgspec.json.encode(APPENDED)) as server, FeedClient(server.url) as client:
        await client.append(FEED, [doc.EntryIn(changes=msgspec.Raw(raw))])
        assert raw in server.requests[0][2]
        server.body = msgspec.json.encode(CHANGES)
        found = await client.read(FEED, 1)
    assert found.changes_list[0].changes == msgspec.Raw(b'{"a" : 1.50}')


async def test_members_of_a_newer_server_are_passed_over() -> None:
    async with (
        answering(body=b'{"new":{},' + msgspec.json.encode(APPENDED)[1:]) as server,
        FeedClient(server.url) as client,
    ):
        assert await client.append(FEED, []) == APPENDED


async def test_frames() -> None:
    bounds = {
        "Headrace-Incarnation": "inc",
        "Headrace-Head-Sequence-Id": "9",
        "Headrace-Oldest-Sequence-Id": "2",
    }
    async with answering(body=b"\x00frames", headers=bounds) as server, FeedClient(server.url) as client:
        assert await client.read_frames(FEED, 2, 9, incarnation="inc", lsn="1.2.3") == (
            b"\x00frames",
            "inc",
            9,
            2,
        )
    line, headers, _ = server.requests[0]
    assert line == f"GET {PATH}/entries?beg-sequence-id=2&end-sequence-id=9 HTTP/1.1"
    assert headers["accept"] == doc.FRAMES_TYPE
    assert (headers["headrace-incarnation"], headers["headrace-lsn"]) == ("inc", "1.2.3")


async def test_lists_and_commands() -> None:
    async with (
        answering(body=b'{"feeds":[],"alarms":[],"agent-id":"a"}') as server,
        FeedClient(server.url) as client,
    ):
        assert await client.feeds() == []
        assert await client.alarms() == []
        server.body = b'{"agent-id":"a","feeds":["f"]}'
        assert await client.release("host/4711") == ["f"]
        server.body = b""
        await client.put_position("l/1", FEED, Bookmark("inc", 7, LSN))
    assert [line for line, *_ in server.requests] == [
        "GET /feeds HTTP/1.1",
        "GET /alarms HTTP/1.1",
        "POST /publishers/host%2F4711/release HTTP/1.1",
        f"PUT /listeners/l%2F1{PATH}/position HTTP/1.1",
    ]
    assert json.loads(server.requests[3][2]) == {"incarnation": "inc", "sequence-id": 7, "lsn": str(LSN)}


async def test_not_ready_is_an_answer() -> None:
    body = b'{"status":"not-ready","version":"1","reasons":["the disk"]}'
    async with answering(status=503, body=body) as server, FeedClient(server.url) as client:
        assert (await client.ready()).reasons == ["the disk"]


def test_headers_of_a_place() -> None:
    assert place_headers(None) == {}
    assert place_headers(Bookmark("inc", 0)) == {"Headrace-Incarnation": "inc"}
