"""The server is killed again and again under concurrent producers and readers; what they saw must have one order.

Every producer asks for the feed's next place and appends there, so they race; what has no answer is tried again until it has
one. Owned and shared feeds, over HTTP and over gRPC. The history is judged by :mod:`headrace.testing.linearity`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.scale import scaled
from tests.scenarios.history import (
    PRODUCERS,
    Client,
    History,
    HttpFace,
    judge,
    progress,
    register_all,
    seeded,
    start_clients,
    stop_clients,
)
from tests.scenarios.history_grpc import GrpcFace, Loop, PipeliningClient
from tests.servers import ServerProcess, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path, grpc=True) as running:
        yield running


@pytest.fixture
def loop() -> Iterator[Loop]:
    running = Loop()
    yield running
    running.close()


def kill_under(
    server: ServerProcess, clients: Sequence[Client], history: History, rng: random.Random
) -> None:
    """Kill the server some times while the clients get on, let them end, and judge what they saw."""
    for _ in range(scaled(3)):
        progress(clients, history, rng.randint(1, 60))
        server.restart()
    progress(clients, history, 20)
    stop_clients(clients)
    judge(server, history)


def test_killed_server_keeps_one_order(server: ServerProcess) -> None:
    rng = seeded()
    register_all(server)
    history = History()
    kill_under(server, start_clients(lambda: [HttpFace(server.url)], history, rng), history, rng)


def test_killed_server_keeps_one_order_over_grpc(server: ServerProcess, loop: Loop) -> None:
    """Single calls, streams and HTTP, each client by any of them at each try."""
    rng = seeded()
    register_all(server)
    history = History()

    def faces() -> list[GrpcFace | HttpFace]:
        return [
            GrpcFace(loop, server, streams=True),
            GrpcFace(loop, server, streams=False),
            HttpFace(server.url),
        ]

    kill_under(server, start_clients(faces, history, rng), history, rng)


def test_killed_server_keeps_one_order_of_pipelined_appends(server: ServerProcess, loop: Loop) -> None:
    """Behind an append that was refused none of its stream is applied, and what was denied is not there."""
    rng = seeded()
    register_all(server)
    history = History()
    clients = [
        PipeliningClient(number, GrpcFace(loop, server, streams=True), history, random.Random(rng.random()))
        for number in range(PRODUCERS)
    ]
    for client in clients:
        client.start()
    kill_under(server, clients, history, rng)
    face = HttpFace(server.url)
    stored = {value for name in history.operations for value in face.read(name) or ()}
    face.close()
    denied = [value for client in clients for value in client.denied]
    sys.stdout.write(f"{len(denied)} denied\n")
    assert stored.isdisjoint(denied)
