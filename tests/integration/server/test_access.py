"""What a token lets its bearer see and do at a real server, until it ends; and what a server lays open without tokens."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.client.http import FeedClient
from headrace.errors import Forbidden
from headrace.wire import documents as doc
from tests import forks
from tests.identity import Issuer
from tests.secured import SecuredServer, secured
from tests.servers import Feed, changes, code_of, serving
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    """A server with feeds of two tenants, an entry in each."""
    with secured(tmp_path_factory.mktemp("secured"), Issuer()) as running:
        for name, tenant in (("vmapi::vm", "east"), ("vmapi::image", "west"), ("cnapi::server", "east")):
            feed = Feed(running, name)
            assert feed.register(tenant_id=tenant).status_code == 200
            assert feed.listener().status_code == 200
            assert feed.post({"changes": changes(0)}).status_code == 200
        yield running


def names(server: SecuredServer, **claims: Any) -> list[str]:
    """The feeds that a token with these claims is shown."""
    with server.client(server.issuer.token(**claims)) as client:
        return [feed["change-feed-id"] for feed in client.get("/feeds").json()["feeds"]]


def test_lists_show_only_what_the_token_is_good_for(server: SecuredServer) -> None:
    assert names(server, roles=["listener"], feeds=["vmapi::*"]) == ["vmapi::vm", "vmapi::image"]
    assert names(server, roles=["listener"], feeds=["*"], tenant="east") == ["vmapi::vm", "cnapi::server"]
    assert names(server, roles=["publisher"], feeds=["cnapi::server"]) == ["cnapi::server"]
    assert names(server, roles=["replication"], tenant="west") == ["vmapi::image"]
    assert names(server, roles=["replication"], tenant="east", feeds=["vmapi::*"]) == ["vmapi::vm"]
    assert names(server, roles=["listener"]) == []
    assert len(names(server)) == 3


async def test_feeds_of_a_tenants_publisher_are_its_tenants(server: SecuredServer) -> None:
    token = server.issuer.token(roles=["publisher"], feeds=["made::*"], tenant="north")
    async with (
        FeedClient(server.url, token=token) as client,
        FeedClient(server.url, token=server.issuer.token()) as admin,
    ):
        await client.register_publisher("agent-1", "made::a")
        assert (await admin.feed("made::a")).tenant_id == "north"
        await client.register_publisher("agent-1", "made::a")
        with pytest.raises(Forbidden):
            await client.register_publisher("agent-1", "made::b", tenant_id="south")
        await client.append(
            "made::a", [doc.EntryIn(changes=msgspec.Raw(b'{"uuid":"u"}'), agent_id="agent-1")]
        )
        await admin.register_publisher("agent-1", "made::c", tenant_id="south")
        with pytest.raises(Forbidden):
            await client.register_publisher("agent-1", "made::c", tenant_id="north")


def test_stream_ends_with_its_token(server: SecuredServer) -> None:
    """And says so in its last event."""
    token = server.issuer.token(roles=["listener"], feeds=["vmapi::*"], exp=int(time.time()) + 6)
    with (
        server.client(token) as client,
        client.stream("GET", "/feeds/vmapi::vm/stream?listener-id=listener-1") as answer,
    ):
        assert answer.status_code == 200
        events = "".join(answer.iter_text())
    assert '"object-0"' in events
    kind, data = events.strip().splitlines()[-2:]
    assert kind == "event: error"
    assert '"code":"unauthenticated"' in data


def test_poll_that_has_begun_is_let_finish(server: SecuredServer) -> None:
    token = server.issuer.token(roles=["listener"], feeds=["vmapi::*"], exp=int(time.time()) + 5)
    with server.client(token) as client:
        params: dict[str, str | int] = {
            "listener-id": "listener-1",
            "after-sequence-id": 1,
            "timeout-ms": 8000,
        }
        assert client.get("/feeds/vmapi::vm/poll", params=params).status_code == 200
        assert code_of(client.get("/feeds/vmapi::vm/poll", params=params)) == "unauthenticated"


def test_new_key_needs_no_restart(tmp_path: Path) -> None:
    with secured(tmp_path, Issuer()) as server:
        old = server.issuer.token()
        server.issuer.rotate()
        server.keys.write_bytes(server.issuer.key_set())
        new = server.issuer.token()

        def status(token: str) -> int:
            with server.client(token) as client:
                return client.get("/feeds").status_code

        wait_until(lambda: status(new) == 200, what="the new key")
        assert status(old) == 200
        server.issuer.withdraw()
        server.keys.write_bytes(server.issuer.key_set())
        wait_until(lambda: status(old) == 401, what="the old key to be refused")
        assert status(new) == 200


@pytest.mark.parametrize("option", ["--http", "--grpc"])
def test_other_machines_are_served_with_tokens_or_if_told_so(tmp_path: Path, option: str) -> None:
    addresses = {"--http": "127.0.0.1:0", "--grpc": "127.0.0.1:0", option: "0.0.0.0:0"}
    words = [word for pair in addresses.items() for word in pair]
    command = [*forks.HEADRACE, "serve", "--data-dir", str(tmp_path / "d"), *words]
    done = forks.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "asks nobody who they are" in done.stderr
    assert "--auth-jwks" in done.stderr
    keys = tmp_path / "jwks.json"
    keys.write_bytes(Issuer().key_set())
    for extra, said in (
        (["--auth-jwks", keys.as_uri()], "without TLS"),
        (["--insecure"], "can read and write every feed"),
    ):
        with (
            forks.start(
                [*command, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            ) as running,
        ):
            assert running.stdout is not None
            assert running.stdout.readline().startswith("serving http://")
            running.terminate()
            assert said in running.communicate(timeout=60)[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--auth-issuer", "x"], "--auth-jwks"),
        (["--auth-jwks", "file:///nowhere/jwks.json"], "--auth-jwks"),
        (["--auth-jwks", "nonsense"], "--auth-jwks"),
        (["--tls-cert", "/nowhere"], "--tls-key is missing"),
        (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "--tls-cert /nowhere"),
        (["--snapshot-allow", "db.example"], "--snapshot-allow"),
        (["--snapshot-allow", "https://db.example/path"], "--snapshot-allow"),
    ],
)
def test_wrong_options_are_told_before_anything_is_opened(
    tmp_path: Path, words: list[str], said: str
) -> None:
    command = [*forks.HEADRACE, "serve", "--http", "127.0.0.1:0", "--grpc", "off"]
    done = forks.run(
        [*command, "--data-dir", str(tmp_path / "d"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "d" / "journal").exists()


def test_no_name_of_a_strangers_leads_to_a_server_without_tokens(tmp_path: Path) -> None:
    """A page in a browser on this machine must not reach it under a name of its own (DNS rebinding)."""
    with serving(tmp_path / "local") as local:
        port = local.address.rpartition(":")[2]
        for host in (
            "evil.example",
            f"evil.example:{port}",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[2001:db8::1]:80",
        ):
            answer = local.http.get("/feeds", headers={"Host": host})
            assert (answer.status_code, code_of(answer)) == (400, "invalid-request"), host
            assert "127.0.0.1" in answer.json()["hint"]
        for host in (
            "localhost",
            f"LOCALHOST:{port}",
            f"127.0.0.1:{port}",
            "127.8.9.1",
            "[::1]",
            f"[::1]:{port}",
        ):
            assert local.http.get("/feeds", headers={"Host": host}).status_code == 200, host
    with serving(tmp_path / "told", args=["--insecure"]) as told:
        assert told.http.get("/feeds", headers={"Host": "db1.example"}).status_code == 200


def test_names_do_not_matter_where_tokens_do(server: SecuredServer) -> None:
    assert server.http.get("/feeds", headers={"Host": "db1.example"}).status_code == 200
