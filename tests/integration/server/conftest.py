"""One real server for all tests here that don't kill it, and a feed of its own for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.scale import chosen
from tests.servers import Feed, ServerProcess, serving
from tests.stores import STORES, database_of

_numbers = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of the server below has one of the stores, as the run's seed has it; all of them in a soak.

    That each store does what the others do is the business of ``tests/contract``.
    """
    if "store" in metafunc.fixturenames:
        stores = chosen(STORES, of=metafunc.function.__name__)
        metafunc.parametrize("store", stores, indirect=True, scope="session")


@pytest.fixture(scope="session")
def store(request: pytest.FixtureRequest) -> str:
    """The name of a store."""
    return str(request.param)


@pytest.fixture(scope="session")
def server(
    store: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A running server; it must not be stopped, and each test keeps to its own feed."""
    folder = tmp_path_factory.mktemp("server")
    args: list[str] = []
    if store == "postgres":
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
