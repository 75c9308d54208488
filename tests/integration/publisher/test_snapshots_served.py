"""Snapshots as a listener gets them: a real agent, a real server, HTTP."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import zstandard

from headrace.access import tickets
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.publisher.outbox import Outbox
from headrace.runtime.dsn import parse_dsn
from tests.certificates import Authority
from tests.integration.publisher.snapshot_agents import KEY, TOKEN, Snapshots, agent, refused, served
from tests.servers import ServerProcess, code_of, serving
from tests.states import Body, parse_body
from tests.unit.publisher.outboxes import application
from tests.waiting import async_wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    with application(path) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT)")
        app.executemany("INSERT INTO item VALUES (?, ?)", [(n, f"name {n}" * 20) for n in range(1_000)])
    attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed=path.parent.name, tables=("item",)))
    return path


def read_feed(server: ServerProcess, feed: str) -> list[dict[str, Any]]:
    """Return all entries of the feed."""
    entries: list[dict[str, Any]] = []
    while True:
        params = {"beg-sequence-id": len(entries) + 1, "limit": 10_000}
        page = (
            server.http.get(f"/feeds/{feed}/entries", params=params).raise_for_status().json()["changes-list"]
        )
        if not page:
            return entries
        entries += page


async def test_snapshot_and_the_entries_after_it_are_the_source(path: Path, server: ServerProcess) -> None:
    ends = threading.Event()

    def write() -> None:
        with application(path) as app:
            app.execute("PRAGMA busy_timeout = 60000").close()
            number = 0
            while not ends.is_set():
                number += 1
                app.execute("BEGIN IMMEDIATE")
                app.execute("UPDATE item SET name = ? WHERE id = ?", (f"at {number}", number % 1_000))
                app.execute("DELETE FROM item WHERE id = ?", (number * 7 % 1_000,))
                app.execute("INSERT OR REPLACE INTO item VALUES (?, 'new')", (number * 3 % 1_000,))
                app.execute("COMMIT")

    bodies: list[Body] = []
    async with agent(path, server) as snapshots:
        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                least = bodies[-1].sequence_id + 1 if bodies else 0
                answer = await served(snapshots, at_least=least)
                body = parse_body(answer.content)
                assert int(answer.headers["headrace-sequence-id"]) == body.sequence_id >= least
                bodies.append(body)
        finally:
            ends.set()
            writer.join()
        with application(path) as app:
            rows = app.execute("SELECT id, name FROM item").fetchall()
            truth = {
                json.dumps(["main", "item", n], separators=(",", ":")): {"id": n, "name": name}
                for n, name in rows
            }
            query = "SELECT count(*) FROM headrace_outbox WHERE NOT processed"
            await async_wait_until(lambda: app.execute(query).fetchone() == (0,), what="the agent to post")
        entries = read_feed(server, snapshots.feed)
        for body in bodies:
            state = {key: json.loads(changes) for key, changes in body.rows.items()}
            for entry in entries[body.sequence_id :]:
                if entry["op"] == "delete":
                    state.pop(entry["key"], None)
                else:
                    state[entry["key"]] = entry["changes"]
            assert state == truth


async def test_encodings_and_ranges_are_of_one_body(path: Path, server: ServerProcess) -> None:
    async with agent(path, server) as snapshots:
        plain = await snapshots.fetch()
        body = plain.content
        snapshot_id = plain.headers["headrace-snapshot-id"]
        assert len(parse_body(body).rows) == 1_000
        assert plain.headers["etag"] == f'"{snapshot_id}"'
        assert plain.headers["cache-control"] == "no-store"
        assert plain.headers["content-type"] == "application/x-ndjson"
        assert plain.headers["accept-ranges"] == "bytes"
        assert parse_body(body).header["snapshot-id"] == snapshot_id
        for encoding, decode in (("gzip", gzip.decompress), ("zstd", decompress_zstd)):
            request = snapshots.http.build_request(
                "GET",
                snapshots.url,
                params={"change-feed-id": snapshots.feed, "listener-id": "l", "snapshot-id": snapshot_id},
                headers={
                    "Authorization": f"Bearer {TOKEN}",
                    "Accept-Encoding": f"{encoding}, identity;q=0.1",
                },
            )
            answer = await snapshots.http.send(request, stream=True)
            raw = b"".join([part async for part in answer.aiter_raw()])
            assert answer.headers["content-encoding"] == encoding
            tag = answer.headers["etag"]
            assert tag == f'"{snapshot_id}-{encoding}"'
            assert len(raw) == int(answer.headers["content-length"]) < len(body) / 4
            assert decode(raw) == body
            request.headers["Range"] = "bytes=100-"
            request.headers["If-Range"] = tag
            answer = await snapshots.http.send(request, stream=True)
            assert answer.status_code == 206
            assert answer.headers["content-range"] == f"bytes 100-{len(raw) - 1}/{len(raw)}"
            assert b"".join([part async for part in answer.aiter_raw()]) == raw[100:]
        for asked, status, part in [
            ("bytes=0-0", 206, body[:1]),
            ("bytes=5-9", 206, body[5:10]),
            ("bytes=-10", 206, body[-10:]),
            (f"bytes=10-{len(body) * 2}", 206, body[10:]),
            (f"bytes={len(body)}-", 416, b""),
            ("bytes=9-5", 200, body),
            ("bytes=0-1,4-5", 200, body),
            ("lines=0-1", 200, body),
        ]:
            answer = await snapshots.get(headers={"Range": asked})
            assert (answer.status_code, answer.content) == (status, part), asked
        answer = await snapshots.get(headers={"Range": "bytes=5-9", "If-Range": '"another"'})
        assert (answer.status_code, answer.content) == (200, body)


def decompress_zstd(raw: bytes) -> bytes:
    return bytes(zstandard.ZstdDecompressor().decompressobj().decompress(raw))


async def test_listeners_share_one_snapshot_until_it_is_too_old_or_stands_for_too_little(
    path: Path, server: ServerProcess
) -> None:
    async with agent(path, server) as snapshots:
        first, second = await asyncio.gather(snapshots.fetch(), snapshots.fetch())
        assert first.headers["etag"] == second.headers["etag"]
        place = int(first.headers["headrace-sequence-id"])
        assert (await snapshots.fetch(at_least=place)).headers["etag"] == first.headers["etag"]
        answer = await refused(snapshots, at_least=place + 1)
        assert (answer.status_code, code_of(answer)) == (503, "snapshot-unavailable")
        assert answer.headers["retry-after"]
        with application(path) as app:
            app.execute("UPDATE item SET name = 'new' WHERE id = 1")
        newer = await served(snapshots, at_least=place + 1)
        assert int(newer.headers["headrace-sequence-id"]) == place + 1
        older = first.headers["headrace-snapshot-id"]
        assert (await snapshots.get(snapshot_id=older)).content == first.content
        gone = await snapshots.get(snapshot_id="00000000-0000-0000-0000-000000000000")
        assert (gone.status_code, code_of(gone)) == (410, "snapshot-gone")


class TestWhoMay:
    @pytest.fixture
    async def snapshots(self, path: Path, server: ServerProcess) -> AsyncIterator[Snapshots]:
        async with agent(path, server, snapshot_url="https://agent.example:8480/snapshot") as snapshots:
            yield snapshots

    async def ask(
        self, snapshots: Snapshots, claims: dict[str, Any], key: bytes = KEY, **given: Any
    ) -> httpx.Response:
        params = {"change-feed-id": snapshots.feed, "listener-id": "listener-1", **given}
        params = {name.replace("_", "-"): value for name, value in params.items()}
        return await snapshots.http.get(snapshots.url, params={**params, "ticket": tickets.sign(claims, key)})

    def claims(self, snapshots: Snapshots, **changed: Any) -> dict[str, Any]:
        good = {
            "iss": "headrace",
            "feed": snapshots.feed,
            "listener": "listener-1",
            "at-least": 0,
            "url": "https://agent.example:8480/snapshot",
            "iat": 1_700_000_000,
            "exp": 4_000_000_000,
        }
        return good | {name.replace("_", "-"): value for name, value in changed.items()}

    async def test_ticket_of_the_server_opens_it(self, snapshots: Snapshots) -> None:
        answer = await self.ask(snapshots, self.claims(snapshots))
        assert answer.status_code in {200, 202}

    async def test_ticket_for_something_else_is_refused(self, snapshots: Snapshots) -> None:
        changes: list[dict[str, Any]] = [
            {"feed": "another"},
            {"listener": "listener-2"},
            {"url": "https://agent.example:8480/other"},
            {"at_least": 1},
            {"snapshot_id": "another"},
            {"iss": "another"},
            {"exp": 1_700_003_600},
        ]
        for changed in changes:
            answer = await self.ask(snapshots, self.claims(snapshots, **changed))
            assert (answer.status_code, code_of(answer)) == (403, "ticket-refused"), changed

    async def test_ticket_of_another_key_is_refused(self, snapshots: Snapshots) -> None:
        answer = await self.ask(snapshots, self.claims(snapshots), key=bytes(32))
        assert (answer.status_code, code_of(answer)) == (403, "ticket-refused")

    async def test_ticket_for_one_snapshot_opens_no_other(self, snapshots: Snapshots) -> None:
        whole = await snapshots.fetch()
        name = whole.headers["headrace-snapshot-id"]
        claims = self.claims(snapshots, snapshot_id=name)
        assert (await self.ask(snapshots, claims, snapshot_id=name)).status_code == 200
        assert code_of(await self.ask(snapshots, claims)) == "ticket-refused"
        assert code_of(await self.ask(snapshots, claims, snapshot_id="another")) == "ticket-refused"

    async def test_no_token_or_another_is_unauthenticated(self, snapshots: Snapshots) -> None:
        params = {"change-feed-id": snapshots.feed, "listener-id": "listener-1"}
        for header in (None, "Bearer another", "Basic abc", "Bearer a b"):
            headers = {} if header is None else {"Authorization": header}
            answer = await snapshots.http.get(snapshots.url, params=params, headers=headers)
            assert (answer.status_code, code_of(answer)) == (401, "unauthenticated"), header
            assert answer.headers["www-authenticate"].startswith("Bearer")

    async def test_bad_asks_are_named(self, snapshots: Snapshots) -> None:
        asks: list[tuple[dict[str, str], int, str]] = [
            ({"at_least": "x"}, 400, "invalid-request"),
            ({"at_least": "-1"}, 400, "invalid-request"),
            ({"listener_id": ""}, 400, "invalid-request"),
            ({"another": "1"}, 400, "invalid-request"),
            ({"change_feed_id": "another"}, 404, "feed-not-found"),
        ]
        for given, status, code in asks:
            answer = await snapshots.get(**given)
            assert (answer.status_code, code_of(answer)) == (status, code), given

    async def test_other_paths_and_methods(self, snapshots: Snapshots) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = await snapshots.http.get(snapshots.url + "s", headers=headers)
        assert (answer.status_code, code_of(answer)) == (404, "not-found")
        answer = await snapshots.http.post(snapshots.url, headers=headers)
        assert (answer.status_code, code_of(answer)) == (405, "method-not-allowed")


async def test_snapshot_that_does_not_fit_is_refused_and_leaves_nothing(
    path: Path, server: ServerProcess
) -> None:
    async with agent(path, server, snapshot_bytes_max="100k") as snapshots:
        answer = await refused(snapshots)
        assert (answer.status_code, code_of(answer)) == (503, "snapshot-unavailable")
        assert "snapshot-bytes-max" in answer.text
        spool = path.parent / "spool"
        await async_wait_until(lambda: [one.name for one in spool.iterdir()] == ["owner.lock"])


async def test_feed_without_a_state_is_refused_by_name(tmp_path: Path, server: ServerProcess) -> None:
    path = tmp_path / "app.db"
    with application(path) as app:
        Outbox.create(app)
    async with agent(path, server) as snapshots:
        answer = await refused(snapshots)
        assert (answer.status_code, code_of(answer)) == (503, "snapshot-unavailable")
        assert "Outbox.add" in answer.text
        assert "snapshot-sql" in answer.text


async def test_interval_makes_snapshots_by_itself(path: Path, server: ServerProcess) -> None:
    spool = path.parent / "spool"
    async with agent(path, server, snapshot_interval="1s"):
        await async_wait_until(lambda: len(list(spool.glob("*/about.json"))) > 1, what="two snapshots")


async def test_restarted_agent_serves_what_was_whole(path: Path, server: ServerProcess) -> None:
    async with agent(path, server) as snapshots:
        first = await snapshots.fetch()
    name = first.headers["headrace-snapshot-id"]
    async with agent(path, server) as snapshots:
        assert (await snapshots.get(snapshot_id=name)).content == first.content


async def test_snapshot_comes_by_tls(path: Path, server: ServerProcess) -> None:
    authority = Authority(path.parent)
    pair = authority.sign("agent")
    files = {"snapshot_tls_cert": str(pair.cert), "snapshot_tls_key": str(pair.key)}
    async with agent(path, server, trusts=authority.file, **files) as snapshots:
        assert len(parse_body((await snapshots.fetch()).content).rows) == 1_000
        with pytest.raises(httpx.TransportError):
            httpx.get(snapshots.url.replace("https", "http"), trust_env=False)
