"""Two servers on one PostgreSQL are killed in turn under producers that use both; what they saw must have one order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import Database
from tests.scale import scaled, sized
from tests.scenarios.history import (
    History,
    HttpFace,
    judge,
    progress,
    register_all,
    seeded,
    start_clients,
    stop_clients,
)
from tests.servers import ServerProcess, serving


@pytest.fixture
def servers(tmp_path: Path, database: Database) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    args = ["--store", database.dsn]
    with serving(tmp_path / "a", args=args) as a, serving(tmp_path / "b", args=args) as b:
        yield a, b


def test_servers_killed_in_turn_keep_one_order(servers: tuple[ServerProcess, ServerProcess]) -> None:
    """Every client goes to either server at each call, retries included; one of the two is there all the time."""
    rng = seeded()
    register_all(servers[0])
    history = History()
    clients = start_clients(lambda: [HttpFace(server.url, asks_end=True) for server in servers], history, rng)
    for round_ in range(scaled(sized(2, soak=4))):
        progress(clients, history, rng.randint(1, 60))
        killed, other = servers[round_ % 2], servers[1 - round_ % 2]
        killed.kill()
        progress(clients, history, rng.randint(1, 20))
        killed.start()
        assert not other.ended()
    progress(clients, history, 20)
    stop_clients(clients)
    for server in servers:
        judge(server, history)
