"""A server with gRPC, which the sink appends over; each test has its own feed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers import Feed, ServerProcess, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def sink_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running server that must not be stopped."""
    with serving(tmp_path_factory.mktemp("sink-server"), grpc=True) as running:
        yield running


@pytest.fixture
def feed(sink_server: ServerProcess) -> Feed:
    """A feed that nobody else uses and that is not there yet."""
    return Feed(sink_server, f"sink::feed-{next(_numbers)}")
