"""Who may have a snapshot by a token: the agent checks it with the keys of ``auth-jwks``, as the API does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.runtime.dsn import parse_dsn
from tests.identity import Issuer
from tests.integration.publisher.snapshot_agents import Snapshots, agent
from tests.servers import ServerProcess, code_of, serving
from tests.unit.publisher.outboxes import application


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
def keys(tmp_path: Path, issuer: Issuer) -> Path:
    path = tmp_path / "jwks.json"
    path.write_bytes(issuer.key_set())
    return path


@pytest.fixture
async def snapshots(tmp_path: Path, keys: Path, server: ServerProcess) -> AsyncIterator[Snapshots]:
    path = tmp_path / "app.db"
    with application(path) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY)")
        app.execute("INSERT INTO item VALUES (1)")
    attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed=tmp_path.name, tables=("item",)))
    async with agent(path, server, auth_jwks=keys.as_uri()) as running:
        yield running


async def ask(snapshots: Snapshots, token: str) -> Any:
    return await snapshots.get(headers={"Authorization": f"Bearer {token}"})


async def test_listener_of_the_feed_may_have_it(snapshots: Snapshots, issuer: Issuer) -> None:
    token = issuer.token(roles=["listener"], feeds=[snapshots.feed])
    answer = await snapshots.fetch(headers={"Authorization": f"Bearer {token}"})
    assert answer.content.endswith(b"}}\n")


@pytest.mark.parametrize(
    "claims", [{"roles": ["publisher"]}, {"roles": ["listener"], "feeds": ["another"]}], ids=str
)
async def test_others_are_forbidden(snapshots: Snapshots, issuer: Issuer, claims: dict[str, Any]) -> None:
    answer = await ask(snapshots, issuer.token(**claims))
    assert (answer.status_code, code_of(answer)) == (403, "forbidden")


@pytest.mark.parametrize("claims", [{"exp": 1_000_000_000}, {"roles": ["king"]}], ids=str)
async def test_token_that_does_not_hold_is_refused(
    snapshots: Snapshots, issuer: Issuer, claims: dict[str, Any]
) -> None:
    answer = await ask(snapshots, issuer.token(**claims))
    assert answer.status_code in {401, 403}
    stranger = await ask(snapshots, Issuer().token(roles=["listener"]))
    assert (stranger.status_code, code_of(stranger)) == (401, "unauthenticated")


async def test_keys_rotate_without_a_restart(snapshots: Snapshots, issuer: Issuer, keys: Path) -> None:
    assert (await ask(snapshots, issuer.token())).status_code in {200, 202}
    issuer.rotate()
    keys.write_bytes(issuer.key_set())
    assert (await ask(snapshots, issuer.token())).status_code in {200, 202}
