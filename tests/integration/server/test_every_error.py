"""Every refusal that ``/openapi.json`` describes (call, status, code) is produced by real requests; none other is met.

Each *world* is a server in some state, to which every call is sent. Who describes one more refusal without a world that
produces it fails the last test here; who answers one that is not described fails the world's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import httpx
import psycopg
import pytest

from headrace.access.connection import HEADERS_MAX, URI_BYTES_MAX
from headrace.errors import DuplicateEntry
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.runtime.clock import SystemClock
from headrace.server.decoding import decode_entries
from headrace.server.encoding import PostTerms
from headrace.server.http.app import HttpFace
from headrace.server.http.bodies import BodyTerms
from headrace.server.http.routes import ROUTES
from headrace.server.service import Service
from headrace.server.traffic import Traffic
from headrace.wire.documents import RegisterPublisher
from tests.faces import served
from tests.identity import Issuer
from tests.integration.server import asks, folders
from tests.integration.server.asks import (
    AGENT,
    APPEND,
    ASKS,
    FEED,
    LISTENER,
    OF_FEED,
    OF_LISTENER,
    POSITION,
    READS,
    SNAPSHOT_URL,
    Ask,
    Refusal,
    World,
    documented,
    seed,
)  # fmt: skip
from tests.integration.server.owned import owned
from tests.ports import free_port
from tests.postgres import Cluster
from tests.proxy import Proxy
from tests.secured import secured
from tests.servers import Feed, code_of, serving
from tests.stores import database_of

HOUR_MS = 3_600_000
WITHIN_S = 30.0
HURT = 3
"""Sequence id of an entry to which something is done."""


def healthy(folder: Path, _: Cluster) -> set[Refusal]:
    """What is refused for the request's own sake."""
    with serving(folder) as server:
        feed = seed(server)
        world = World(server.http)
        for ask in ASKS.values():
            world.send(ask, query={**ask.query, "nope": "1"})
            world.send(ask, query={"nope": "x" * URI_BYTES_MAX})
            world.send(ask, headers={f"x-{number}": "1" for number in range(HEADERS_MAX)})
            if ask.body is not None:
                world.send(ask, content=b"{")
                world.send(ask, content=b" " * ((16 << 20) + 1))
            if {"{change-feed-id}", "{code}"} & set(ask.call.split("/")):
                world.send(ask, feed="absent", code="absent")
            world.send(
                ask, listener="absent", query={**ask.query, "listener-id": "absent"} if ask.query else {}
            )
        world.send(ASKS["POST /listeners/register"], body={"listener-id": "l", "change-feed-id": "absent"})
        world.send(ASKS["POST /publishers/{agent-id}/release"], agent="absent")
        world.send(ASKS["POST /publishers/register"], body={"agent-id": "other", "change-feed-id": FEED})
        for ask in (*READS, APPEND):
            world.send(ask, headers={"Headrace-Incarnation": "another"})
        world.send(READS[0], query={"beg-sequence-id": "9"})
        for ask in READS[1:]:
            world.send(ask, query={**ask.query, "after-sequence-id": "9"})
        world.send(POSITION)
        world.send(POSITION, body={"incarnation": world.incarnation(), "sequence-id": 9})
        feed.register(snapshot_url="https://elsewhere.example/snapshot")
        world.send(ASKS[f"GET {OF_FEED}/snapshot"])
        _append(world, feed)
        return world.met


def _append(world: World, feed: Feed) -> None:
    """What an append is refused for; the last of it quarantines the publisher."""
    own = dict(APPEND.body or {})
    world.send(APPEND, body={**own, "agent-id": "stranger"})
    world.send(APPEND, body={**own, "sequence-id": 9})
    world.send(APPEND, body={**own, "expected-offset": 9})
    feed.server.http.put(f"{feed.path}/settings", json={"expected-offset": "required"})
    world.send(APPEND)
    feed.server.http.put(f"{feed.path}/settings", json={"expected-offset": "optional"})
    feed.register(instance="newer")
    world.send(APPEND, headers={"Headrace-Epoch": "1"})
    for _ in range(2):
        world.send(APPEND, body={**own, "sequence-id": 1, "changes": {"another": 1}})


def with_tokens(folder: Path, _: Cluster) -> set[Refusal]:
    """Callers without a token, and with one that is good for nothing."""
    with secured(folder, Issuer()) as server:
        seed(server)
        met = set()
        for token in (None, server.issuer.token(roles=["reader"])):
            with server.client(token) as client:
                world = World(client)
                world.send_all()
                met |= world.met
        return met


def without_keys(folder: Path, _: Cluster) -> set[Refusal]:
    """A server that can't have its issuer's keys."""
    with serving(folder, args=["--auth-jwks", f"http://127.0.0.1:{free_port()}/jwks.json"]) as server:
        server.http.headers["Authorization"] = f"Bearer {Issuer().token()}"
        world = World(server.http)
        world.send_all()
        return world.met


def _in_process(folder: Path, terms: BodyTerms, content: bytes) -> set[Refusal]:
    """Send the beginning of a body, over a connection of its own for each call that takes one."""

    async def send(port: int, ask: Ask) -> Refusal:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        method = ask.call.partition(" ")[0]
        head = f"{method} {ask.path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
        writer.write(f"{head}Content-Length: 100\r\n\r\n".encode() + content)
        async with asyncio.timeout(WITHIN_S):
            got = await reader.readuntil(b"\r\n\r\n")
            problem = json.loads(await reader.readuntil(b"}"))
        writer.close()
        return ask.call, int(got.split()[1]), str(problem["code"])

    async def main() -> set[Refusal]:
        async with served(folder, bodies=terms) as server:
            return {await send(server.port, ask) for ask in ASKS.values() if ask.body is not None}

    return asyncio.run(main())


def busy(folder: Path, _: Cluster) -> set[Refusal]:
    """A server that may hold no byte of a body."""
    return _in_process(folder, BodyTerms(held_bytes_max=0), b" " * 100)


def slow(folder: Path, _: Cluster) -> set[Refusal]:
    """Senders that don't go on."""
    return _in_process(folder, BodyTerms(pause_s_max=0.1), b" ")


class _Broken:
    """A service with a bug wherever it is touched, but for what counts requests, failed ones too."""

    traffic = Traffic()

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("the secret of a row")


def broken(folder: Path, _: Cluster) -> set[Refusal]:
    """Bugs: of the use cases, of the description, and of the runbook."""

    async def main() -> set[Refusal]:
        met = set()
        transport = httpx.ASGITransport(HttpFace(cast("Service", _Broken())))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            for call, ask in ASKS.items():
                answer = await client.request(call.split()[0], ask.path, params=ask.query, json=ask.body)
                if answer.status_code != 200:
                    assert "secret" not in answer.text
                    met.add((ask.call, answer.status_code, code_of(answer)))
        return met

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.server.http.routes.openapi_document", None)
        patch.setattr("headrace.server.http.runbook.runbook_page", None)
        return asyncio.run(main())


def _over(
    folder: Path,
    prepare: Callable[[Path], None],
    *,
    running: bool = False,
    clock: SystemClock | None = None,
    settings: LogSettings = folders.SMALL_SEGMENTS,
    args: Sequence[str] = (),
) -> set[Refusal]:
    """All calls to a server over a folder with thirty entries to which something was done.

    ``running``: while the server runs, else before. ``clock``: the log's.
    """
    data_dir = folder / "data"
    asyncio.run(folders.write_feed(data_dir, FEED, 30, settings=settings, clock=clock))
    asyncio.run(_quarantine(data_dir, clock, settings))
    with serving(folder, data_dir=data_dir) as server:
        feed = Feed(server, FEED)
        feed.listener(LISTENER)
        feed.register(snapshot_url=SNAPSHOT_URL)
        place = feed.entries(HURT, HURT)[0]
        kept = {"incarnation": feed.poll(HURT).json()["incarnation"], "sequence-id": HURT}
        assert server.http.put(f"/listeners/{LISTENER}{feed.path}/position", json=kept).status_code == 200
    if not running:
        prepare(data_dir)
    with serving(folder, data_dir=data_dir, args=args) as server:
        if running:
            prepare(data_dir)
        world = World(server.http)
        world.send(POSITION)
        world.send(ASKS[f"POST {OF_LISTENER}/hydration"])
        world.send_all()
        lsn = {"Headrace-Lsn": place["lsn"]}
        for ask in READS[1:]:
            world.send(ask, query={**ask.query, "after-sequence-id": str(HURT - 1)})
            world.send(ask, query={**ask.query, "after-sequence-id": str(HURT)}, headers=lsn)
        world.send(READS[0], query={"beg-sequence-id": str(HURT)})
        bookmark = {"incarnation": world.incarnation(), "sequence-id": HURT, "lsn": place["lsn"]}
        world.send(POSITION, body=bookmark)
        world.send(APPEND, body={"agent-id": AGENT, "sequence-id": HURT, "changes": {"n": HURT}})
        world.send(ASKS["POST /publishers/{agent-id}/release"], agent="agent-2")
        world.send(ASKS[f"GET {OF_FEED}/tail"], feed="noisy", query={"producer": "agent-2"})
        world.send(ASKS["POST /publishers/register"], body={"agent-id": AGENT, "change-feed-id": "fresh"})
        return world.met


async def _quarantine(data_dir: Path, clock: SystemClock | None, settings: LogSettings) -> None:
    """Quarantine ``agent-2``, under the clock that the log has: a server's own could be behind it."""
    log = Log.open(data_dir, settings=settings, clock=clock)
    await log.start()
    service = Service(log)
    await service.register_publisher(RegisterPublisher(agent_id="agent-2", change_feed_id="noisy"))
    with contextlib.suppress(DuplicateEntry):
        for number in range(2):
            body = b'{"agent-id":"agent-2","sequence-id":1,"changes":{"n":"noisy-%d"}}' % number
            await service.append("noisy", decode_entries(body), PostTerms())
    await service.close()
    await log.close()


def below_retention(folder: Path, _: Cluster) -> set[Refusal]:
    """The feed's first entries are gone."""
    return _over(folder, folders.drop_all_but_newest)


def damaged(folder: Path, _: Cluster) -> set[Refusal]:
    """One of the first frames is damaged."""
    return _over(folder, lambda data_dir: folders.damage_entry(data_dir, b'{"n":3}'))


def end_damaged(folder: Path, _: Cluster) -> set[Refusal]:
    """A publisher's newest frame is damaged."""
    return _over(folder, lambda data_dir: folders.damage_entry(data_dir, b"noisy-0"))


def all_damaged(folder: Path, _: Cluster) -> set[Refusal]:
    """Every segment's first bytes are, while the server runs."""

    def prepare(data_dir: Path) -> None:
        for path in (data_dir / "journal").iterdir():
            data = path.read_bytes()
            path.write_bytes(bytes(byte ^ 1 for byte in data))

    return _over(folder, prepare, running=True)


def skipped(folder: Path, _: Cluster) -> set[Refusal]:
    """It was, and a repair skipped it."""

    def prepare(data_dir: Path) -> None:
        folders.damage_entry(data_dir, b'{"n":3}')
        folders.skip_damage(data_dir)

    return _over(folder, prepare)


def end_unknown(folder: Path, _: Cluster) -> set[Refusal]:
    """Nobody can tell where a frame of the newest segment ends."""
    return _over(
        folder, lambda data_dir: folders.damage_both_headers(data_dir, b'{"n":4}'), settings=LogSettings()
    )


def clock_ahead(folder: Path, _: Cluster) -> set[Refusal]:
    """The log's clock leads."""
    return _over(folder, lambda _: None, clock=folders.AheadClock(2 * HOUR_MS))


def rows_damaged(folder: Path, _: Cluster) -> set[Refusal]:
    """The rows of the listener, of the snapshot and of a schema are damaged."""

    def prepare(data_dir: Path) -> None:
        folders.damage_listener(data_dir, LISTENER)
        with closing(sqlite3.connect(data_dir / METADATA_NAME)) as database, database:
            assert database.execute("UPDATE snapshot SET ticket_key = 'other'").rowcount == 1
            database.execute("INSERT INTO table_schema VALUES ('f', 'd', 't', 1, 1, '', x'', 0)")

    return _over(folder, prepare)


def store_away(folder: Path, cluster: Cluster) -> set[Refusal]:
    """The store's database can't be reached any more."""
    dsn = database_of(cluster, folder)
    with Proxy("127.0.0.1", cluster.port) as proxy:
        through = dsn.replace(f":{cluster.port}/", f":{proxy.port}/")
        assert through != dsn, dsn
        with serving(folder, args=["--store", through]) as server:
            seed(server).register(snapshot_url=SNAPSHOT_URL)
            proxy.cut()
            world = World(server.http)
            world.send_all()
            for ask in ASKS.values():
                world.send(ask, feed="absent")
            return world.met


def row_of_a_feed_damaged(folder: Path, cluster: Cluster) -> set[Refusal]:
    """The state of a feed in the store's database is damaged."""
    args = ["--store", database_of(cluster, folder)]
    with serving(folder, args=args) as server:
        seed(server).register(snapshot_url=SNAPSHOT_URL)
    with psycopg.connect(args[1], autocommit=True) as database:
        database.execute("UPDATE headrace_log.feed SET crc = crc + 1")
    with serving(folder, args=args) as server:
        world = World(server.http)
        world.send_all()
        return world.met


def volume_full(folder: Path, _: Cluster) -> set[Refusal]:
    """Less is free on the volume than is to be kept free."""
    return _over(folder, lambda _: None, args=("--disk-reserve", "1000t"))


WORLDS: dict[str, Callable[[Path, Cluster], set[Refusal]]] = {
    world.__name__: world
    for world in (
        healthy, with_tokens, owned, without_keys, busy, slow, broken, below_retention, damaged, end_damaged, all_damaged,
        skipped, end_unknown, clock_ahead, rows_damaged, store_away, row_of_a_feed_damaged, volume_full,
    )
}  # fmt: skip


class Worlds:
    """What was met in each, looked for once."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self._folder = folder
        self._cluster = cluster
        self._met: dict[str, set[Refusal]] = {}

    def met_in(self, name: str) -> set[Refusal]:
        """The refusals of a world."""
        if name not in self._met:
            folder = self._folder / name
            folder.mkdir()
            self._met[name] = WORLDS[name](folder, self._cluster)
        return self._met[name]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory, cluster: Cluster) -> Worlds:
    """All worlds."""
    return Worlds(tmp_path_factory.mktemp("worlds"), cluster)


def test_every_call_is_asked() -> None:
    assert {f"{route.method} {route.path}" for route in ROUTES} == ASKS.keys()


@pytest.mark.parametrize("name", WORLDS)
def test_refusals_are_described(worlds: Worlds, name: str) -> None:
    met = worlds.met_in(name)
    assert met, "a world that refuses nothing shows nothing"
    undescribed = sorted(met - documented())
    assert not undescribed, "\n".join(map(str, undescribed))


def test_every_described_refusal_is_met(worlds: Worlds) -> None:
    met = set().union(*(worlds.met_in(name) for name in WORLDS))
    missing = sorted(documented() - met - asks.MET_ELSEWHERE)
    assert not missing, "\n".join(map(str, missing))
