"""A stream that the server ends while the client still writes: the outcome is unknown, and so it must be said.

grpcio puts a status of its own in the place of the server's when a write fails just then. How often it does depends on
the machine, so there are many rounds, against a server that does nothing else.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import grpc

from headrace.client.log_append import LogAppendClient, Stored, Writes
from headrace.errors import ServerUnreachable
from tests.integration.grpc.streams import WAIT_S_MAX, halves
from tests.scale import scaled

APPENDS = 64


async def _end_at_once(_: Any, context: Any) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")


async def test_whatever_the_write_meets_the_outcome_is_unknown() -> None:
    server = grpc.aio.server()
    ending = grpc.stream_stream_rpc_method_handler(_end_at_once)
    service = grpc.method_handlers_generic_handler("headrace.log.v1.LogAppend", {"AppendStream": ending})
    server.add_generic_rpc_handlers((service,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with asyncio.timeout(WAIT_S_MAX), LogAppendClient(f"127.0.0.1:{port}") as client:
            for _ in range(scaled(100)):
                await _append_until_it_ends(client)
    finally:
        await server.stop(None)


async def _append_until_it_ends(client: LogAppendClient) -> None:
    sent: list[asyncio.Future[Stored]] = []
    with suppress(ServerUnreachable):
        async with client.append_stream(Writes("feed", "producer")) as stream:
            while len(sent) < APPENDS:
                sent.append(
                    await stream.send(halves(1, 1, value=b"x" * 10_000), expected_offset=len(sent) + 1)
                )
    assert sent, "nothing was sent"
    outcomes = await asyncio.gather(*sent, return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {ServerUnreachable}, outcomes
