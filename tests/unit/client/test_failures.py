"""Problem documents become errors; whatever is no answer of a Headrace server becomes ``server-unreachable``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from email.utils import formatdate
from pathlib import Path

import grpc
import msgspec
import pytest

from headrace import errors
from headrace.client.channel import error_of_status, open_channel
from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.http_problem import problem_of, retry_after_s
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
    assert type(refused) is errors.ServerUnreachable
    assert "409: {" in refused.detail
    assert (type(unavailable), unavailable.detail, unavailable.advice, unavailable.members) == (
        errors.Unavailable,
        "d",
        "h",
        {"new": 1},
    )


def test_problem_without_detail_says_what_its_class_says() -> None:
    error = problem_of(409, b'{"code":"fenced"}')
    assert (error.detail, error.advice) == (errors.Fenced.__doc__, errors.Fenced.hint)


@pytest.mark.parametrize(
    "body", [b"", b"<html>no</html>", b"\xff", b'"\xff"', b"[]", b'{"detail":1}', b"null", b"x" * 100_000]
)
@pytest.mark.parametrize("status", [400, 404, 408, 429, 500, 502, 503])
def test_errors_that_are_no_problem_documents(status: int, body: bytes) -> None:
    error = problem_of(status, body)
    assert type(error) is (errors.Unavailable if status >= 500 else ServerUnreachable)
    assert error.retryable, "it comes from what is on the way: neither agent nor listener ends with it"
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


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("7", 7.0), ("0", 0.0), ("-3", 0.0), ("86400", 60.0), ("soon", None), ("nan", None), (None, None)],
)
@pytest.mark.parametrize(("status", "body"), [(429, b""), (408, b"late"), (503, b'{"code":"server-busy"}')])
async def test_how_long_the_server_asks_to_be_left_alone(
    status: int, body: bytes, said: str | None, seconds: float | None
) -> None:
    headers = {} if said is None else {"Retry-After": said}
    async with (
        answering(status=status, body=body, headers=headers) as server,
        FeedClient(server.url) as client,
    ):
        with pytest.raises(errors.Unavailable) as raised:
            await client.feeds()
    assert raised.value.retry_after_s == seconds


def test_retry_after_as_a_date() -> None:
    assert retry_after_s(formatdate(time.time() + 30, usegmt=True)) == pytest.approx(30, abs=15)
    assert retry_after_s(formatdate(0, usegmt=True)) == 0
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00") is None, "without a zone it is no time"


@pytest.mark.parametrize("renews", [True, False])
async def test_a_403_is_settled_unless_the_token_is_in_a_file(tmp_path: Path, renews: bool) -> None:
    file = tmp_path / "token"
    file.write_text("t")
    credential = Credential.of_file(file) if renews else Credential("t")
    body = b'{"code":"forbidden"}'
    async with (
        answering(status=403, body=body) as server,
        FeedClient(server.url, token=credential) as client,
    ):
        with pytest.raises(errors.Forbidden) as raised:
            await client.feeds()
    assert raised.value.may_pass is renews


@pytest.mark.parametrize("token", [None, "t"])
async def test_a_401_may_pass_unless_there_is_no_token(token: str | None) -> None:
    body = b'{"code":"unauthenticated"}'
    async with (
        answering(status=401, body=body) as server,
        FeedClient(server.url, token=token) as client,
    ):
        with pytest.raises(errors.Unauthenticated) as raised:
            await client.feeds()
    assert raised.value.may_pass is (token is not None)


async def test_a_proxys_404_over_grpc_is_no_refusal() -> None:
    """An ingress without the server behind it: HTTP/2 with ``:status: 404`` and nothing of gRPC in it."""

    async def ingress(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
        writer.write(_http2_frame(SETTINGS))
        while True:
            head = await reader.readexactly(9)
            await reader.readexactly(int.from_bytes(head[:3], "big"))
            if head[3] == SETTINGS and not head[4]:
                writer.write(_http2_frame(SETTINGS, flags=1))
            elif head[3] == HEADERS:
                # END_STREAM and END_HEADERS; 0x8d: the 13th of HPACK's static table, ":status: 404".
                writer.write(_http2_frame(HEADERS, flags=5, stream=head[5:], payload=b"\x8d"))

    async with listening(ingress) as url:
        channel = open_channel(url.removeprefix("http://"))
        try:
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary("/kdb.wal.v1.WalStream/GetLSN")(b"", timeout=30)
        finally:
            await channel.close()
    error = error_of_status(raised.value)
    assert type(error) is ServerUnreachable
    assert "404" in error.detail


HEADERS, SETTINGS = 1, 4


def _http2_frame(kind: int, *, flags: int = 0, stream: bytes = bytes(4), payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream + payload
