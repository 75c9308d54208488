"""What a client may send is bounded: address, headers, bodies, their pace, and the bytes of all bodies at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from headrace.access import connection
from headrace.access.connection import HEAD_BYTES_MAX, HEADERS_MAX, URI_BYTES_MAX
from headrace.server.http.bodies import BODY_BYTES_MAX, DOCUMENT_BYTES_MAX, BodyTerms
from headrace.server.http.parameters import QUERY_BYTES_MAX
from headrace.server.http.routes import ROUTES
from tests.faces import FEED, served
from tests.servers import ServerProcess, code_of

WITHIN_S = 30.0
ENTRIES = f"/feeds/{FEED}/entries"
JSON = {"Content-Type": "application/json"}


async def _answer(port: int, *pieces: bytes) -> tuple[int, str]:
    """Send ``pieces`` over a connection of its own, and return status and code of what comes before its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(WITHIN_S):
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
        got = await reader.read()
    writer.close()
    head, _, content = got.partition(b"\r\n\r\n")
    assert b"application/problem+json" in head
    return int(head.split()[1]), str(json.loads(content)["code"])


def _get(target: str = "/healthz", headers: bytes = b"") -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n".encode() + headers + b"\r\n"


def _many(count: int) -> bytes:
    return b"".join(b"X-%d: 1\r\n" % number for number in range(count))


@pytest.mark.parametrize(
    ("sent", "refused"),
    [
        (_get("/" + "x" * URI_BYTES_MAX), (414, "uri-too-long")),
        (_get("/feeds?x=" + "x" * URI_BYTES_MAX), (414, "uri-too-long")),
        (b"GET /" + b"x" * (1 << 20), (414, "uri-too-long")),
        (_get(headers=_many(HEADERS_MAX)), (431, "headers-too-large")),
        (_get(headers=b"X: " + b"x" * HEAD_BYTES_MAX + b"\r\n"), (431, "headers-too-large")),
        (b"GET /healthz HTTP/1.1\r\nX: " + b"x" * (1 << 20), (431, "headers-too-large")),
        (b"GET /healthz HTTP/1.1\r\n" + b"X: x\r\n" * (1 << 18), (431, "headers-too-large")),
    ],
    ids=["path", "query", "endless path", "many headers", "long header", "endless header", "endless headers"],
)
async def test_what_stands_before_a_body_is_bounded(
    tmp_path: Path, sent: bytes, refused: tuple[int, str]
) -> None:
    async with served(tmp_path) as server:
        assert await _answer(server.port, sent) == refused
        assert (await server.http.get("/healthz")).status_code == 200


async def test_heads_of_the_bounds_themselves_are_taken(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for request in (
            _get("/" + "x" * (URI_BYTES_MAX - 1)),
            _get(headers=_many(HEADERS_MAX - 1)),
            _get(headers=b"X: " + b"x" * (HEAD_BYTES_MAX - 40) + b"\r\n"),
        ):
            for start in range(0, len(request), 10_000):
                writer.write(request[start : start + 10_000])
                await writer.drain()
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
            assert head.split()[1] in {b"200", b"404"}
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()


def test_query_string_has_its_own_bound(server: ServerProcess) -> None:
    answer = server.http.get("/feeds/f/entries?key=" + "k" * QUERY_BYTES_MAX)
    assert (answer.status_code, code_of(answer)) == (414, "uri-too-long")


WITH_BODY = [route for route in ROUTES if route.bodies]


@pytest.mark.parametrize("route", WITH_BODY, ids=lambda route: route.handler.__name__)
@pytest.mark.parametrize("chunked", [False, True])
def test_every_body_is_bounded(server: ServerProcess, route: object, chunked: bool) -> None:
    found = next(one for one in WITH_BODY if one is route)
    assert found.body_bytes_max == (BODY_BYTES_MAX if found.path.endswith("/entries") else DOCUMENT_BYTES_MAX)
    body = b" " * (found.body_bytes_max + 1)
    path = "/".join("f" if part.startswith("{") else part for part in found.path.split("/"))
    sent = iter([body[: 1 << 16], body[1 << 16 :]]) if chunked else body
    answer = server.http.request(found.method, path, content=sent, headers=JSON)
    assert (answer.status_code, code_of(answer)) == (413, "too-large")
    assert answer.json()["body-bytes-max"] == found.body_bytes_max


async def test_body_that_is_declared_too_large_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        head = f"POST {ENTRIES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(f"{head}Content-Length: {BODY_BYTES_MAX + 1}\r\n\r\n".encode())
        got = await asyncio.wait_for(reader.readuntil(b"\r\n"), WITHIN_S)
        writer.close()
    assert b" 413 " in got


async def _body(gate: asyncio.Event, first: bytes, rest: bytes) -> AsyncIterator[bytes]:
    yield first
    await gate.wait()
    yield rest


async def test_bodies_of_many_slow_senders_are_bounded_together(tmp_path: Path) -> None:
    """Four bodies of a fifth of the bound each are under way; two that don't fit are refused, then the four are taken."""
    one = b'{"agent-id":"a","changes":{"t":"' + b"x" * 200_000 + b'"}}'
    gate = asyncio.Event()
    async with served(tmp_path, bodies=BodyTerms(held_bytes_max=5 * len(one))) as server:

        async def post(content: AsyncIterator[bytes] | bytes) -> httpx.Response:
            return await server.http.post(ENTRIES, content=content, headers=JSON)

        slow = [asyncio.create_task(post(_body(gate, one[:-1], one[-1:]))) for _ in range(4)]
        two = b'{"entries":[' + one + b"," + one + b"]}"
        await server.wait_held(4 * (len(one) - 1))
        for _ in range(2):
            answer = await post(two)
            assert (answer.status_code, code_of(answer)) == (503, "server-busy")
            assert int(answer.headers["Retry-After"]) >= 1
            assert answer.json()["side-effects"] == "none"
            assert server.held_bytes == 4 * (len(one) - 1)
        gate.set()
        assert [answer.status_code for answer in await asyncio.gather(*slow)] == [200] * 4
        assert server.held_bytes == 0
        assert (await post(two)).status_code == 200


async def test_body_of_a_sender_that_went_away_is_held_no_more(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST {ENTRIES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 1000\r\n\r\n".encode() + b" " * 900)
        await server.wait_held(900)
        writer.close()
        await server.wait_held(0)


@pytest.mark.parametrize("sent", [b"", b" " * 500])
async def test_body_that_does_not_come_is_408_and_the_connection_ends(tmp_path: Path, sent: bytes) -> None:
    async with served(tmp_path, bodies=BodyTerms(pause_s_max=0.2)) as server:
        head = f"POST {ENTRIES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: 1000\r\n\r\n".encode() + sent
        assert await _answer(server.port, request) == (408, "body-too-slow")
        assert server.held_bytes == 0


async def test_body_that_trickles_is_408(tmp_path: Path) -> None:
    """Each piece comes at once, but all of them lag behind the least pace."""
    terms = BodyTerms(pause_s_max=0.3, bytes_per_s_min=1 << 20)
    async with served(tmp_path, bodies=terms) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        head = f"POST {ENTRIES} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: 1000000\r\n\r\n".encode())
        answered = asyncio.create_task(reader.readuntil(b"\r\n"))
        async with asyncio.timeout(WITHIN_S):
            while not answered.done():
                writer.write(b" ")
                await asyncio.wait({answered}, timeout=0.02)
        assert b" 408 " in answered.result()
        writer.close()


async def test_rest_of_a_refused_body_gains_a_connection_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that no request begins with, sent again and again, don't keep a connection open."""
    monkeypatch.setattr(connection, "HEAD_S_MAX", 0.3)
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /feeds HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        got = bytearray()

        async def read() -> None:
            with contextlib.suppress(
                ConnectionResetError
            ):  # a socket that is closed while bytes arrive for it is reset
                while data := await reader.read(4096):
                    got.extend(data)

        ended = asyncio.create_task(read())
        async with asyncio.timeout(WITHIN_S):
            while not ended.done():
                writer.write(b" ")
                await asyncio.wait({ended}, timeout=0.02)
        await ended
        assert b" 405 " in got
        writer.close()
