"""``wal backup --once`` waits for nothing: not for a server that is away, nor for one that goes away in the middle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headrace.backup.agent import Agent
from headrace.backup.deposits import Deposits
from headrace.backup.settings import BackupSettings
from headrace.client.http import FeedClient
from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.errors import ServerUnreachable
from tests.integration.backup.agents import WAIT_S_MAX, backup, backup_command, entries_of, post, registered
from tests.servers import ServerProcess, serving


class LeftAlone(WalClient):
    """Its server is killed once it has said how much there is."""

    server: ServerProcess

    async def bounds(self) -> tuple[Lsn, Lsn]:
        found = await super().bounds()
        await asyncio.to_thread(self.server.kill)
        return found


async def once(server: ServerProcess, archive: Path) -> None:
    """Archive once, while the server is killed."""
    settings = BackupSettings(archive=str(archive), server=server.url, grpc=server.grpc_address, once=True)
    with Deposits.open(settings.archive) as deposits:
        async with FeedClient(settings.server) as http, LeftAlone(settings.grpc) as wal:
            wal.server = server
            agent = Agent(settings, deposits, wal, http, asyncio.Event(), silence_s=1.0)
            async with asyncio.timeout(WAIT_S_MAX):
                await agent.run()


def test_a_server_that_goes_away_in_the_middle_is_not_waited_for(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with serving(tmp_path / "server", grpc=True) as server:
        (feed,) = registered(server, "shop::orders")
        post(feed, 1, 3)
        with pytest.raises(ServerUnreachable, match="has given nothing"):
            asyncio.run(once(server, archive))
        assert (
            backup_command(server, archive, code=ServerUnreachable.exit_code)["code"] == "server-unreachable"
        )
        server.start()
        assert backup(server, archive).entries == 3, "nobody owns the archive"
    assert len(entries_of(archive)) == 3
