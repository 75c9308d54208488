"""Connections have bounds: they are kept for the next request, and ended when they say nothing or never finish a head."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.access import connection
from tests.faces import FEED, served

WITHIN_S = 30.0
REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def _ends(reader: asyncio.StreamReader) -> None:
    assert await asyncio.wait_for(reader.read(), WITHIN_S) == b""


async def test_a_connection_takes_one_request_after_another(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for _ in range(5):
            writer.write(REQUEST)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
            assert head.startswith(b"HTTP/1.1 200")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        writer.close()


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: ", REQUEST[:3]])
async def test_a_connection_that_never_says_what_it_wants_is_ended(
    tmp_path: Path, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S_MAX", 0.2)
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(sent)
        await _ends(reader)
        writer.close()


async def test_a_second_head_that_never_ends_is_ended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S_MAX", 0.2)
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(REQUEST)
        await asyncio.wait_for(reader.readuntil(b"}"), WITHIN_S)
        writer.write(REQUEST[:20])
        await asyncio.wait_for(reader.read(), WITHIN_S)
        writer.close()


async def test_who_waits_for_an_answer_is_not_taken_for_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "HEAD_S_MAX", 0.05)
    async with served(tmp_path) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(
            f"GET /feeds/{FEED}/poll?listener-id=l&timeout-ms=500 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        )
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), WITHIN_S)
        assert head.startswith(b"HTTP/1.1 200")
        writer.close()
