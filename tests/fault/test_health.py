"""Who asks whether the server is well hears when appends are not taken any more: HTTP's ``/readyz``, and gRPC's health."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headrace.client.log_append import LogAppendClient, Writes
from headrace.client.wal_stream import WalClient
from headrace.errors import WriterStopped
from headrace.log.log import Log
from headrace.log.requests import Register
from headrace.runtime.runbook import runbook_page
from headrace.server.grpc.face import GrpcFace
from headrace.server.http.app import HttpFace
from headrace.server.service import Service
from headrace.testing.disk import Fault, FaultyDisk, Step
from tests.bench import AGENT, INCARNATION, half
from tests.waiting import async_wait_until

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
APPENDS, READS = "headrace.log.v1.LogAppend", "kdb.wal.v1.WalStream"


class Faces(NamedTuple):
    """A server in this process with both its faces."""

    disk: FaultyDisk
    service: Service
    http: httpx.AsyncClient
    address: str


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[Faces]:
    disk = FaultyDisk()
    log = Log.open(folder, disk=disk)
    await log.start()
    service = Service(log)
    face = GrpcFace.bind("127.0.0.1", "127.0.0.1:0")
    transport = httpx.ASGITransport(HttpFace(service))
    try:
        await face.start(service, log)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            yield Faces(disk, service, http, f"127.0.0.1:{face.port}")
    finally:
        service.stop_waiting()
        await face.stop()
        await log.close()


async def status_of(stub: health_pb2_grpc.HealthStub, name: str) -> int:
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=name))
    return int(answer.status)


async def test_after_a_failed_sync_appends_are_not_serving_and_reads_are(tmp_path: Path) -> None:
    async with served(tmp_path) as faces, grpc.aio.insecure_channel(faces.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await faces.service.log.register(Register("f", AGENT, AGENT, "", INCARNATION))
        watching = stub.Watch(health_pb2.HealthCheckRequest(service=APPENDS))
        assert (await watching.read()).status == SERVING
        assert [await status_of(stub, name) for name in ("", APPENDS, READS)] == [SERVING] * 3
        assert (await faces.http.get("/readyz")).status_code == 200

        faces.disk.faults.append(Fault(Step.SYNC, errno.EIO, suffix=".seg"))
        async with LogAppendClient(faces.address) as client:
            with pytest.raises(WriterStopped):
                await client.append(Writes("f", AGENT), [half("x")])
        assert [await status_of(stub, name) for name in ("", APPENDS, READS)] == [
            NOT_SERVING,
            NOT_SERVING,
            SERVING,
        ]
        assert (await watching.read()).status == NOT_SERVING, "who watches is told"
        ready = await faces.http.get("/readyz")
        assert ready.status_code == 503
        assert any("did not confirm a write" in reason for reason in ready.json()["reasons"])
        for reason in ready.json()["reasons"]:
            assert reason.endswith(" (writer-stopped), see /runbook/writer-stopped")
        assert (await faces.http.get("/runbook/writer-stopped")).text == runbook_page("writer-stopped")
        async with WalClient(faces.address) as reader:
            await reader.bounds()
        watching.cancel()


async def test_who_watches_is_told_that_the_server_stops(tmp_path: Path) -> None:
    async with served(tmp_path) as faces, grpc.aio.insecure_channel(faces.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        faces.service.stop_waiting()

        async def nothing_serves() -> bool:
            return [await status_of(stub, name) for name in ("", APPENDS, READS)] == [NOT_SERVING] * 3

        await async_wait_until(nothing_serves)
