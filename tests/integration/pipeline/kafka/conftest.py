"""One broker for all tests here; each test has its own topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A running broker; it must not be stopped."""
    with Broker() as running:
        yield running
