"""An agent in this process that serves snapshots of one feed, and asking it for them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from headrace.client.http import FeedClient
from headrace.publisher.agent import run_agent
from headrace.publisher.feed_server import FeedServer
from headrace.publisher.settings import AgentSettings
from headrace.wire.documents import PublisherRegistered
from tests.ports import free_port
from tests.servers import ServerProcess
from tests.waiting import async_wait_until

TOKEN = "of-this-agent-alone"
KEY = bytes(range(32))


class KeyedServer(FeedClient):
    """A server that gives out ticket keys."""

    async def register_publisher(self, *given: Any, **named: Any) -> PublisherRegistered:
        assert named.pop("snapshot_url").endswith("/snapshot")
        registered = await super().register_publisher(*given, **named)
        registered.snapshot_ticket_key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
        return registered


class Snapshots:
    """The snapshots of one agent's one feed."""

    def __init__(self, feed: str, url: str, trusts: Path | None = None) -> None:
        self.feed = feed
        self.url = url
        verify = True if trusts is None else ssl.create_default_context(cafile=str(trusts))
        self.http = httpx.AsyncClient(trust_env=False, timeout=60, verify=verify)

    async def get(self, **given: Any) -> httpx.Response:
        """Ask once, with the token unless headers are given."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Accept-Encoding": "identity"} | given.pop(
            "headers", {}
        )
        params = {"change-feed-id": self.feed, "listener-id": "listener-1"}
        params |= {name.replace("_", "-"): value for name, value in given.items()}
        return await self.http.get(self.url, params=params, headers=headers)

    async def fetch(self, **given: Any) -> httpx.Response:
        """Ask until it is there."""
        answer = await async_wait_until(lambda: self._whole(**given), what="the snapshot")
        assert answer is not None
        assert answer.status_code in {200, 206}, answer.text
        return answer

    async def _whole(self, **given: Any) -> httpx.Response | None:
        answer = await self.get(**given)
        if answer.status_code != 202:
            return answer
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["state"] == "being-made"
        return None


@asynccontextmanager
async def agent(
    path: Path, server: ServerProcess, *, trusts: Path | None = None, **settings: Any
) -> AsyncIterator[Snapshots]:
    """Run an agent that serves snapshots of the feed named as the test's folder; by TLS that ``trusts`` has signed."""
    (path.parent / "token").write_text(TOKEN)
    address = f"127.0.0.1:{free_port()}"
    keyed = "snapshot_url" in settings
    told = AgentSettings(
        agent_id="agent-1",
        feeds=(path.parent.name,),
        server=server.url,
        dsn=f"sqlite:///{path}",
        snapshot_listen=address,
        snapshot_dir=str(path.parent / "spool"),
        snapshot_token_file=str(path.parent / "token"),
        **settings,
    )
    stop = asyncio.Event()
    client: FeedServer | None = KeyedServer(server.url) if keyed else None
    task = asyncio.create_task(run_agent(told, stop, server=client))
    scheme = "http" if trusts is None else "https"
    snapshots = Snapshots(path.parent.name, f"{scheme}://{address}/snapshot", trusts)
    try:
        await async_wait_until(lambda: _answers(snapshots, task), what="the agent")
        yield snapshots
    finally:
        stop.set()
        await snapshots.http.aclose()
        await task
        if isinstance(client, FeedClient):
            await client.close()


async def _answers(snapshots: Snapshots, task: asyncio.Task[None]) -> bool:
    if task.done():
        task.result()
    try:
        answer = await snapshots.get()
    except httpx.TransportError:
        return False
    return answer.status_code in {200, 202} or "has not joined" not in answer.text


async def refused(snapshots: Snapshots, **given: Any) -> httpx.Response:
    """Ask until it is refused."""
    return await answered(snapshots, {400, 503}, given)


async def served(snapshots: Snapshots, **given: Any) -> httpx.Response:
    """Ask until there is one that fits."""
    return await answered(snapshots, {200}, given)


async def answered(snapshots: Snapshots, statuses: set[int], given: dict[str, Any]) -> httpx.Response:
    """Ask until the answer has one of these statuses."""
    found: list[httpx.Response] = []

    async def ask() -> bool:
        found.append(await snapshots.get(**given))
        return found[-1].status_code in statuses

    await async_wait_until(ask, what=f"one of {statuses}")
    return found[-1]
