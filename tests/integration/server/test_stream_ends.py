"""How streams stay and end: comments on a silent line, clients that don't read or go away, errors, a stop."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path

import pytest

from headrace.errors import SequenceNotAvailable
from headrace.log.log import LogSettings
from headrace.server.following import Follower
from headrace.server.http.event_stream import StreamTerms
from headrace.server.reading import Known
from tests.faces import FEED, Served, served
from tests.integration.server.folders import damage_entry
from tests.waiting import async_wait_until

LONG_S = 600.0
WITHIN_S = 60.0
ENTRY = b'{"text":"' + b"x" * 100_000 + b'"}'
ENTRIES = 300
"""Far more than the sockets' buffers hold."""


@pytest.fixture(autouse=True, scope="module")
def young_objects() -> None:
    """What the tests before left behind is not looked through each time that followers are counted."""
    gc.collect()
    gc.freeze()


async def _until(reader: asyncio.StreamReader, text: bytes) -> bytes:
    return await asyncio.wait_for(reader.readuntil(text), WITHIN_S)


async def test_a_silent_line_gets_comments(tmp_path: Path) -> None:
    async with served(tmp_path, streams=StreamTerms(comment_every_s=0.05)) as server:
        reader, writer = await server.open_stream()
        await _until(reader, b"event: feed")
        for _ in range(3):
            await _until(reader, b"\n: still here\n\n")
        await server.post(b"{}")
        await _until(reader, b"id: 1\nevent: change\n")
        writer.close()


async def test_a_client_that_does_not_read_is_ended_and_costs_a_bounded_part(tmp_path: Path) -> None:
    async with served(tmp_path, streams=StreamTerms(LONG_S, stalled_s_max=0.3)) as server:
        await server.post(*[ENTRY] * ENTRIES)
        reader, writer = await server.open_stream()
        reader._transport.pause_reading()  # type: ignore[attr-defined]  # nothing else stops a StreamReader early enough
        await async_wait_until(lambda: _followers() == 1, WITHIN_S, what="the stream to begin")
        await async_wait_until(lambda: _followers() == 0, WITHIN_S, what="the stream to be ended")
        reader._transport.resume_reading()  # type: ignore[attr-defined]  # as above
        try:
            got = len(await asyncio.wait_for(reader.read(), WITHIN_S))
        except ConnectionResetError:
            got = 0
        assert got < ENTRIES * len(ENTRY) / 2, "it was cut off, not fed to its end"
        writer.close()
        assert (await server.http.get("/healthz")).status_code == 200


async def test_a_slow_client_that_reads_gets_everything(tmp_path: Path) -> None:
    async with served(tmp_path, streams=StreamTerms(LONG_S, stalled_s_max=20.0)) as server:
        await server.post(*[ENTRY] * 100)
        reader, writer = await server.open_stream()
        for number in range(1, 101):
            await _until(reader, b"id: %d\nevent: change\n" % number)
        writer.close()


async def test_a_client_that_goes_away_is_forgotten(tmp_path: Path) -> None:
    async with served(tmp_path, streams=StreamTerms(comment_every_s=0.05)) as server:
        reader, writer = await server.open_stream()
        await _until(reader, b"event: feed")
        assert _followers() == 1
        writer.close()
        await async_wait_until(lambda: _followers() == 0, WITHIN_S, what="the stream to end")


async def test_a_stopping_server_ends_streams(tmp_path: Path) -> None:
    async with served(tmp_path, streams=StreamTerms(LONG_S, LONG_S)) as server:
        await server.post(b"{}")
        reader, writer = await server.open_stream()
        await _until(reader, b"id: 1\nevent: change\n")
        server.service.stop_waiting()
        await _until(reader, b"\r\n0\r\n\r\n")  # the body's end, as HTTP says it
        writer.close()


async def test_an_error_in_mid_stream_is_an_event_and_the_end(tmp_path: Path) -> None:
    async with served(tmp_path, settings=LogSettings(segment_bytes=2_000)) as server:
        await server.post(*(b'{"n":%d}' % number for number in range(1, 31)))
    damage_entry(tmp_path, b'{"n":3}')
    async with served(tmp_path) as server:
        problem = await _error_of(server, "&after-sequence-id=1")
        assert (problem["code"], problem["status"]) == ("journal-corrupt", 500)
        assert "Traceback" not in str(problem)


async def test_what_retention_takes_from_a_slow_reader_is_an_error_in_its_stream(tmp_path: Path) -> None:
    async with served(tmp_path, settings=LogSettings(segment_bytes=2_000)) as server:
        await server.post(*(b'{"n":%d}' % number for number in range(1, 31)))
        follower = await server.service.follow(FEED, "l", 3, known=Known())
        await server.service.log.drop_before(server.service.log.store.end())
        reader, writer = await server.open_stream("&after-sequence-id=3")
        head = await _until(reader, b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 410")
        writer.close()
        with pytest.raises(SequenceNotAvailable):
            await follower.next(1.0)


async def _error_of(server: Served, query: str) -> dict[str, object]:
    reader, writer = await server.open_stream(query)
    body = await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), WITHIN_S)
    writer.close()
    assert b"\nid: 2\nevent: change\n" in body, "what stands before it was delivered"
    assert b"id: 3" not in body
    data = body.partition(b"event: error\ndata: ")[2].partition(b"\n")[0]
    return dict(json.loads(data))


def _followers() -> int:
    gc.collect()
    return sum(isinstance(one, Follower) for one in gc.get_objects())
