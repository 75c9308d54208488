"""The server's feeds for a manifest: as they are now, or as they were told while the server had that log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from headrace.backup.registry import Registry
from headrace.client.http import FeedClient
from headrace.errors import ServerUnreachable
from headrace.testing.clock import ManualClock
from headrace.wire.documents import FeedView
from tests.unit.backup.test_histories import NEW, OLD, view


class Server(FeedClient):
    """Says what it is told to; while it is told nothing, nobody is there."""

    says: tuple[FeedView, ...] = ()

    async def feeds(self) -> list[FeedView]:
        if not self.says:
            raise ServerUnreachable("nobody is there")
        return list(self.says)

    async def retention(self) -> Any:
        return None


def registry(server: Server) -> Registry:
    return Registry(server, ManualClock())


async def told(registry: Registry, *, suffices: bool = True, patient: bool = True) -> Mapping[int, FeedView]:
    async with asyncio.timeout(30):
        return await registry.for_segment(lambda _: suffices, asyncio.Event(), patient=patient)


async def test_a_server_that_is_away_is_waited_for_unless_there_is_no_time() -> None:
    server = Server("http://127.0.0.1:1")
    found = registry(server)
    with pytest.raises(ServerUnreachable):
        await told(found, suffices=False, patient=False)
    waiting = asyncio.create_task(told(found, suffices=False))
    server.says = (view(OLD, 9),)
    assert (await waiting)[7].next_sequence_id == 9
    server.says = ()
    assert (await told(found))[7].next_sequence_id == 9, "as it was told last"


@pytest.mark.parametrize("has_asked", [False, True])
async def test_what_another_log_has_is_not_told_of_this_one(has_asked: bool) -> None:
    server = Server("http://127.0.0.1:1")
    server.says = (view(OLD, 9),)
    found = registry(server)
    await found.checked()
    server.says = (view(NEW, 3),)
    if has_asked:
        await found.asked()
    found.hold({7: OLD})
    assert (await told(found))[7].incarnation == OLD
    assert (await found.asked())[0].incarnation == NEW, "whoever asks is told the truth"
    assert (await told(found))[7].incarnation == OLD
