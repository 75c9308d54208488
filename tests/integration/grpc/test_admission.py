"""Whatever a server asks of who appends is asked at one place, which neither face gets around."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from headrace.client.log_append import LogAppendClient, Writes
from headrace.errors import FeedOwned
from headrace.log.answering import W
from headrace.log.log import Log
from headrace.log.requests import Append, Register
from headrace.server.grpc.face import GrpcFace
from headrace.server.http.app import HttpFace
from headrace.server.service import Service
from tests.bench import AGENT, INCARNATION, half


class Guarded(Service):
    """A service that lets nobody append."""

    def append_soon(self, append: Append, waiter: W) -> W:
        waiter.set_exception(FeedOwned(f"{append.producer} may not"))
        return waiter


async def test_no_face_gets_around_the_service(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    await log.start()
    service = Guarded(log)
    face = GrpcFace.bind("127.0.0.1", "127.0.0.1:0")
    try:
        await log.register(Register("f", AGENT, AGENT, "", INCARNATION))
        await face.start(service, log)
        transport = httpx.ASGITransport(HttpFace(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            answer = await http.post("/feeds/f/entries", json={"agent-id": AGENT, "changes": {}})
        assert (answer.status_code, answer.json()["code"]) == (409, "feed-owned")
        async with LogAppendClient(f"127.0.0.1:{face.port}") as client:
            with pytest.raises(FeedOwned):
                await client.append(Writes("f", AGENT), [half("x")])
            async with client.append_stream(Writes("f", AGENT)) as stream:
                sent = await stream.send([half("x")])
                with pytest.raises(FeedOwned):
                    await sent
        assert log.tail("f").head == 0
    finally:
        service.stop_waiting()
        await face.stop()
        await log.close()
