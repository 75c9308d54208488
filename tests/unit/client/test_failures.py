"""Problem documents become errors; whatever is no answer of a Headrace server becomes ``server-unreachable``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket

import msgspec
import pytest

from headrace import errors
from headrace.client.http import FeedClient, problem_of
from headrace.errors import HeadraceError, ServerUnreachable, every_error
from headrace.wire import documents as doc
from tests.unit.client.servers import answering, listening, read_request

KINDS = [kind for kind in every_error() if kind.__module__.startswith("headrace.errors")]


def problem(kind: type[HeadraceError], **members: object) -> bytes:
    fixed = doc.Problem(
        type="about:blank",
        title="t",
        status=kind.http_status,
        detail="the detail",
        code=kind.code,
        hint="the hint",
        retryable=kind.retryable,
    )
    return json.dumps(json.loads(msgspec.json.encode(fixed)) | members).encode()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
async def test_every_code_comes_back_as_its_class(kind: type[HeadraceError]) -> None:
    body = problem(kind, **{"actual-next": 7, "owner": "a"})
    status = kind.http_status
    async with answering(status=status, body=body) as server, FeedClient(server.url) as client:
        with pytest.raises(HeadraceError) as raised:
            await client.feeds()
    error = raised.value
    assert type(error) is (errors.Unavailable if kind is HeadraceError else kind)
    assert (error.detail, error.advice) == ("the detail", "the hint")
    assert error.members == {"actual-next": 7, "owner": "a", "retryable": kind.retryable}


def test_code_of_a_newer_server() -> None:
    body = json.dumps({"code": "of-a-later-version", "detail": "d", "hint": "h", "new": 1}).encode()
    refused, unavailable = problem_of(409, body), problem_of(503, body)
    assert (type(refused), refused.detail, refused.advice, refused.members) == (
        HeadraceError,
        "d",
        "h",
        {"new": 1},
    )
    assert (type(unavailable), unavailable.retryable) == (errors.Unavailable, True)


def test_problem_without_detail_says_what_its_class_says() -> None:
    error = problem_of(409, b'{"code":"fenced"}')
    assert (error.detail, error.advice) == (errors.Fenced.__doc__, errors.Fenced.hint)


@pytest.mark.parametrize(
    "body", [b"", b"<html>no</html>", b"\xff", b'"\xff"', b"[]", b'{"detail":1}', b"null", b"x" * 100_000]
)
@pytest.mark.parametrize("status", [400, 404, 500, 502, 503])
def test_errors_that_are_no_problem_documents(status: int, body: bytes) -> None:
    error = problem_of(status, body)
    assert type(error) is (errors.Unavailable if status >= 500 else HeadraceError)
    assert str(status) in error.detail
    assert len(error.detail) < 300
    assert error.advice == "Is this address a Headrace server?"


@pytest.mark.parametrize(
    "body", [b"", b"<html>hello</html>", b"\xff\xfe", b'"\xff"', b"[]", b"{}", b'{"feeds":5}']
)
async def test_success_of_something_else(body: bytes) -> None:
    async with answering(body=body) as server, FeedClient(server.url) as client:
        for call in (client.feeds(), client.ready(), client.tail("f")):
            with pytest.raises(ServerUnreachable) as raised:
                await call
            assert raised.value.advice == "Is this address a Headrace server?"
            assert server.url in raised.value.detail


@pytest.mark.parametrize("wrong", [{}, {"Headrace-Incarnation": "i", "Headrace-Head-Sequence-Id": "x"}])
async def test_frames_without_their_bounds(wrong: dict[str, str]) -> None:
    async with answering(body=b"frames", headers=wrong) as server, FeedClient(server.url) as client:
        with pytest.raises(ServerUnreachable, match="header"):
            await client.read_frames("f", 1, 2)


async def test_redirects_are_not_followed_and_no_success() -> None:
    elsewhere = {"Location": "http://127.0.0.1:1/feeds"}
    async with (
        answering(status=307, headers=elsewhere) as server,
        FeedClient(server.url, token="t") as client,
    ):
        with pytest.raises(ServerUnreachable, match="307"):
            await client.feeds()
    assert len(server.requests) == 1


async def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with FeedClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(ServerUnreachable) as raised:
            await client.feeds()
    assert raised.value.retryable
    assert raised.value.exit_code == 4
    assert f"127.0.0.1:{port}" in raised.value.detail


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)


async def half_an_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()


async def another_protocol(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"SSH-2.0-OpenSSH\r\n")
    await writer.drain()


async def broken_encoding(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd")
    await writer.drain()


@pytest.mark.parametrize("conversation", [hang_up, half_an_answer, another_protocol, broken_encoding])
async def test_answers_that_break_off(conversation: object) -> None:
    assert callable(conversation)
    async with listening(conversation) as url, FeedClient(url) as client:
        with pytest.raises(ServerUnreachable):
            await client.append("f", [])


async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never silent long enough for a read time-out, and never done."""
    await read_request(reader)
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    pause = asyncio.Event()
    while not writer.is_closing():
        writer.write(b" ")
        await writer.drain()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(pause.wait(), 0.02)


async def test_silent_server_costs_a_bounded_time() -> None:
    async with listening(silence) as url, FeedClient(url, timeout_s=0.1) as client:
        with pytest.raises(ServerUnreachable):
            await asyncio.wait_for(client.feeds(), 10)


async def test_trickling_server_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.client.http.CONNECT_TIMEOUT_S", 0.2)
    async with listening(trickle) as url, FeedClient(url, timeout_s=0.2) as client:
        with pytest.raises(ServerUnreachable, match="no whole answer"):
            await asyncio.wait_for(client.feeds(), 10)


@pytest.mark.parametrize("address", ["", "localhost:8470", "ftp://h", "http://[::1", "http://h:port", "8470"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(errors.Usage, match="not a server address") as raised:
        FeedClient(address)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("code", ["failed", "of-a-later-version"])
def test_a_5xx_whose_code_says_nothing_more_leaves_the_outcome_open(code: str) -> None:
    error = problem_of(500, json.dumps({"code": code, "detail": "d"}).encode())
    assert type(error) is errors.Unavailable
    assert error.retryable
    assert not problem_of(500, b'{"code":"journal-corrupt"}').retryable
