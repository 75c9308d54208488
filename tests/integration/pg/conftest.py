"""One real server with the replication protocol for all tests here that don't kill it, on each store in turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pg import registered, serving_pg
from tests.servers import Feed, ServerProcess
from tests.stores import STORES, database_of

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=list(STORES))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A running server; it must not be stopped, and each test keeps to its own feed and slots."""
    folder = tmp_path_factory.mktemp("server")
    args: list[str] = []
    if request.param == "postgres":
        args = ["--store", database_of(request.getfixturevalue("cluster"), folder)]
    with serving_pg(folder, *args) as running:
        yield running


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of this test's own, on files, which it may kill."""
    with serving_pg(tmp_path / "server") as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    """A feed that nobody else uses, its publisher registered."""
    return registered(server, f"pg::feed-{next(_numbers)}")


@pytest.fixture
def slot() -> str:
    """A name for a slot that nobody else uses."""
    return f"slot_{next(_numbers)}"
