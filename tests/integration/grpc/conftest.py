"""One real server with gRPC for all tests here that don't kill it, on each store in turn; and a feed for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from headrace.client.log_append import LogAppendClient
from headrace.client.wal_stream import WalClient
from tests.servers import Feed, ServerProcess, serving
from tests.stores import STORES, database_of

_numbers = itertools.count(1)

BEATS = ("--stream-heartbeat", "2s")
"""Some tests wait until a stream has been silent for so long."""


@pytest.fixture(scope="session", params=list(STORES))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A running server; it must not be stopped, and each test keeps to its own feed."""
    folder = tmp_path_factory.mktemp("server")
    args = list(BEATS)
    if request.param == "postgres":
        args += ["--store", database_of(request.getfixturevalue("cluster"), folder)]
    with serving(folder, args=args, grpc=True) as running:
        yield running
    assert "Traceback" not in running.errors()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own, on files, which it may kill."""
    with serving(tmp_path / "server", grpc=True) as running:
        yield running
    assert "Traceback" not in running.errors()


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    """A feed that nobody else uses, its publisher registered."""
    return registered(server)


def registered(server: ServerProcess, name: str | None = None) -> Feed:
    made = Feed(server, name or f"grpc::feed-{next(_numbers)}")
    assert made.register().status_code == 200
    return made


@pytest_asyncio.fixture
async def appender(server: ServerProcess) -> AsyncIterator[LogAppendClient]:
    """A client of ``LogAppend``."""
    async with LogAppendClient(server.grpc_address) as client:
        yield client


@pytest_asyncio.fixture
async def wal(server: ServerProcess) -> AsyncIterator[WalClient]:
    """A subscriber with a name of its own."""
    async with WalClient(server.grpc_address, subscriber_id=f"subscriber-{next(_numbers)}") as client:
        yield client
