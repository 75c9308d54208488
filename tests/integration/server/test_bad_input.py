"""Bad input: each gets a clear error (code, member, hint), nothing is written, and the server goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from tests.servers import Feed, ServerProcess, code_of

OWN = b'"agent-id":"agent-1"'

BAD_BODIES: dict[str, tuple[bytes, str | None, int | None]] = {
    "empty": (b"", None, None),
    "cut off": (b'{"changes":{', None, None),
    "trailing": (b"{" + OWN + b',"changes":{}} x', None, None),
    "not an object": (b"[]", None, None),
    "not UTF-8": (b"{" + OWN + b',"changes":{"a":"\xff"}}', None, None),
    "a byte order mark": (b"\xef\xbb\xbf{" + OWN + b',"changes":{}}', None, None),
    "control character": (b"{" + OWN + b',"changes":{"a":"\x01"}}', None, None),
    "NaN": (b"{" + OWN + b',"changes":{"a":NaN}}', None, None),
    "nested too deeply": (b"{" + OWN + b',"changes":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None, None),
    "unknown member": (b"{" + OWN + b',"changes":{},"colour":1}', "colour", None),
    "no changes": (b"{" + OWN + b"}", "changes", None),
    "changes no object": (b"{" + OWN + b',"changes":[1]}', "changes", 0),
    "no agent id": (b'{"changes":{}}', "agent-id", 0),
    "agent id of a wrong type": (b'{"agent-id":7,"changes":{}}', "agent-id", None),
    "another feed": (b"{" + OWN + b',"changes":{},"change-feed-id":"test::other"}', "change-feed-id", 0),
    "sequence id no number": (b"{" + OWN + b',"changes":{},"sequence-id":"7"}', "sequence-id", None),
    "sequence id zero": (b"{" + OWN + b',"changes":{},"sequence-id":0}', "sequence-id", None),
    "expected offset too low": (b"{" + OWN + b',"changes":{},"expected-offset":-2}', "expected-offset", None),
    "places disagree": (
        b"{" + OWN + b',"changes":{},"sequence-id":1,"expected-offset":2}',
        "expected-offset",
        0,
    ),
    "unknown op": (b"{" + OWN + b',"changes":{},"op":"upsert"}', "op", None),
    "reserved key": (b"{" + OWN + b',"changes":{},"key":"\\u0000x"}', "key", 0),
    "reserved key in changes": (b"{" + OWN + b',"changes":{"uuid":"\\u0000x"}}', "key", 0),
    "control without its key": (b"{" + OWN + b',"changes":{},"control":"ddl","key":"x"}', "key", 0),
    "control without a key": (b"{" + OWN + b',"changes":{},"control":"ddl"}', "key", 0),
    "source time": (b"{" + OWN + b',"changes":{},"source-time":"yesterday"}', "source-time", 0),
    "changed of a wrong type": (b"{" + OWN + b',"changes":{},"changed":[1]}', "changed[0]", None),
    "no entries": (b'{"entries":[]}', "entries", None),
    "entries no list": (b'{"entries":{}}', "entries", None),
    "entries and more": (b'{"entries":[],"sequence-id":1}', "sequence-id", None),
    "unknown member in the second": (
        b'{"entries":[{' + OWN + b',"changes":{}},{' + OWN + b',"changes":{},"colour":1}]}',
        "colour",
        1,
    ),
    "wrong type in the second": (
        b'{"entries":[{' + OWN + b',"changes":{}},{' + OWN + b',"changes":{},"tx":5}]}',
        "tx",
        1,
    ),
    "two agents": (
        b'{"entries":[{' + OWN + b',"changes":{}},{"agent-id":"other","changes":{}}]}',
        "agent-id",
        1,
    ),
}


@pytest.mark.parametrize("name", BAD_BODIES)
def test_bad_post_names_member_and_entry_and_writes_nothing(feed: Feed, name: str) -> None:
    body, member, index = BAD_BODIES[name]
    answer = feed.post_raw(body)
    assert (answer.status_code, code_of(answer)) == (400, "invalid-request")
    problem = answer.json()
    assert problem.get("member") == member, problem["detail"]
    assert problem.get("index") == index, problem["detail"]
    if member is not None:
        assert member in problem["detail"]
    assert feed.entries() == []
    assert feed.post({"changes": {}}).status_code == 200


def test_bad_line_of_ndjson_is_named(feed: Feed) -> None:
    good = b"{" + OWN + b',"changes":{}}\n'
    answer = feed.post_raw(good + good + b'{"changes":{},"colour":1}\n', "application/x-ndjson")
    assert code_of(answer) == "invalid-request"
    assert (answer.json()["index"], answer.json()["member"]) == (2, "colour")
    assert feed.entries() == []


BAD_HEADERS = {
    "Headrace-Epoch": "one",
    "Headrace-Marked-At": "yesterday",
    "Headrace-Source-Position": "not base64!",
}


@pytest.mark.parametrize("header", BAD_HEADERS)
def test_bad_header_of_a_post_is_named(feed: Feed, header: str) -> None:
    answer = feed.post({"changes": {}}, headers={header: BAD_HEADERS[header]})
    assert code_of(answer) == "invalid-request"
    assert answer.json()["member"].lower() == header.lower()
    assert feed.entries() == []


@pytest.mark.parametrize(
    ("path", "member"),
    [
        ("entries", "beg-sequence-id"),
        ("entries?beg-sequence-id=0", "beg-sequence-id"),
        ("entries?beg-sequence-id=x", "beg-sequence-id"),
        ("entries?beg-sequence-id=1&beg-sequence-id=2", "beg-sequence-id"),
        ("entries?beg-sequence-id=1&limit=0", "limit"),
        ("entries?beg-sequence-id=1&limit=10001", "limit"),
        ("entries?beg-sequence-id=1&color=red", "color"),
        ("entries?beg-sequence-id=5&end-sequence-id=3", "end-sequence-id"),
        ("poll", "listener-id"),
        ("poll?listener-id=listener-1&timeout-ms=60001", "timeout-ms"),
        ("poll?listener-id=listener-1&timeout-ms=-1", "timeout-ms"),
        ("poll?listener-id=listener-1&after-sequence-id=-1", "after-sequence-id"),
        ("tail?who=me", "who"),
        ("entries?beg-sequence-id", None),
        ("entries?beg-sequence-id=%ff", None),
    ],
)
def test_bad_query_parameter_is_named(feed: Feed, path: str, member: str | None) -> None:
    answer = feed.server.http.get(f"{feed.path}/{path}")
    assert (answer.status_code, code_of(answer)) == (400, "invalid-request")
    assert answer.json().get("member") == member


def test_call_without_parameters_takes_none(server: ServerProcess) -> None:
    assert code_of(server.http.get("/feeds?limit=1")) == "invalid-request"


def test_bad_lsn_header_is_refused(feed: Feed) -> None:
    assert code_of(feed.poll(headers={"Headrace-Lsn": "1-2-3"})) == "invalid-request"


@pytest.mark.parametrize(
    "document",
    [
        {"agent-id": "agent-1"},
        {"agent-id": "agent-1", "change-feed-id": "a/b"},
        {"agent-id": "", "change-feed-id": "a"},
        {"agent-id": "agent-1", "change-feed-id": "test::bad", "tenant-id": "a:b"},
        {"agent-id": "agent-1", "change-feed-id": "test::bad", "epoch": 1},
        {"agent-id": "agent-1", "change-feed-id": "test::bad", "takeover": "yes"},
        {"agent-id": "agent-1", "change-feed-id": "test::bad", "shared": True, "takeover": True},
        {"agent-id": "agent-1", "change-feed-id": "test::bad", "snapshot-url": "ftp://x"},
    ],
    ids=[
        "no feed",
        "feed name",
        "agent name",
        "tenant",
        "unknown",
        "type",
        "shared and takeover",
        "snapshot",
    ],
)
def test_bad_registration_makes_no_feed(server: ServerProcess, document: dict[str, Any]) -> None:
    assert code_of(server.http.post("/publishers/register", json=document)) == "invalid-request"
    assert server.http.get("/feeds/test::bad").status_code == 404


@pytest.mark.parametrize("media_type", ["", "text/plain", "application/x-www-form-urlencoded"])
def test_body_of_another_type_is_refused(feed: Feed, media_type: str) -> None:
    answer = feed.post_raw(b"{" + OWN + b',"changes":{}}', media_type)
    assert code_of(answer) == "invalid-request"
    assert answer.json()["member"] == "Content-Type"


def test_compressed_body_is_refused_by_name(feed: Feed) -> None:
    answer = feed.post_raw(b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert answer.json()["member"] == "Content-Encoding"


def test_entry_over_its_limit_is_413_and_names_it(feed: Feed) -> None:
    answer = feed.post({"changes": {}}, {"changes": {"text": "x" * (1 << 20)}})
    assert (answer.status_code, code_of(answer)) == (413, "too-large")
    assert (answer.json()["index"], answer.json()["entry-bytes-max"]) == (1, 1 << 20)
    assert feed.entries() == []


def test_body_over_its_limit_is_413(feed: Feed) -> None:
    answer = feed.post_raw(b" " * ((16 << 20) + 1))
    assert (answer.status_code, code_of(answer)) == (413, "too-large")
    assert answer.json()["body-bytes-max"] == 16 << 20
    assert feed.post({"changes": {}}).status_code == 200


def test_chunked_body_over_its_limit_is_413(feed: Feed) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(20):
            yield b" " * (1 << 20)

    answer = feed.server.http.post(
        f"{feed.path}/entries", content=chunks(), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, code_of(answer)) == (413, "too-large")
    assert feed.entries() == []


def test_body_of_the_limit_itself_is_taken(feed: Feed) -> None:
    text = (
        b'{"entries":['
        + b",".join([b"{" + OWN + b',"changes":{"t":"' + b"x" * 900_000 + b'"}}'] * 16)
        + b"]}"
    )
    answer = feed.post_raw(text + b" " * ((16 << 20) - len(text)))
    assert answer.status_code == 200, answer.text
    assert answer.json()["last-sequence-id"] == 16


@pytest.mark.parametrize(
    "head",
    [
        b"POST /feeds HTTP/1.1\r\nHost: localhost\r\nContent-Length: ten\r\n\r\n",
        b"POST /feeds HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /feeds HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /feeds HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"no HTTP at all\r\n\r\n",
        b"GET /feeds/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=[
        "length no number",
        "length negative",
        "two lengths",
        "bad chunk",
        "no HTTP",
        "path",
    ],
)
def test_malformed_http_is_400_as_a_problem(server: ServerProcess, head: bytes) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(head)
        got = b""
        while b"invalid-request" not in got and b"not-found" not in got and (part := connection.recv(65536)):
            got += part
    status = got.partition(b"\r\n")[0]
    assert status.startswith((b"HTTP/1.1 400", b"HTTP/1.1 405")), got
    assert b"application/problem+json" in got


def test_body_cut_off_by_the_sender_writes_nothing(feed: Feed) -> None:
    body = b"{" + OWN + b',"changes":{}}'
    host, port = feed.server.address.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        head = f"POST {feed.path}/entries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % (len(body) + 1) + body)
    assert feed.server.http.get("/healthz").status_code == 200
    assert feed.entries() == []
