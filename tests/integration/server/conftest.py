"""One real server for all tests here that don't kill it, and a feed of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers import Feed, ServerProcess, serving
from tests.stores import STORES, database_of

_numbers = itertools.count(1)


@pytest.fixture(scope="session", params=list(STORES))
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A running server, on each store in turn; it must not be stopped, and each test keeps to its own feed."""
    folder = tmp_path_factory.mktemp("server")
    args: list[str] = []
    if request.param == "postgres":
        args = ["--store", database_of(request.getfixturevalue("cluster"), folder)]
    with serving(folder, args=args) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    """A feed that nobody else uses, its publisher and one listener registered."""
    made = Feed(server, f"test::feed-{next(_numbers)}")
    assert made.register().status_code == 200
    assert made.listener().status_code == 200
    return made
