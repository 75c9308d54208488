"""One MariaDB server fit for capture for this folder, and a new database in it for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace.capture.mariadb.connection import Source, connect
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import CAPTURE_OPTIONS, Database, Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A running server fit for capture. No test stops it, purges its binlog, or leaves a variable changed."""
    with Server(*CAPTURE_OPTIONS) as running:
        yield running


@pytest.fixture(scope="session")
def unsteady() -> Iterator[Server]:
    """Another one, which tests may stop and purge. At the end of a test it runs, with the variables that it had."""
    with Server(*CAPTURE_OPTIONS) as running:
        yield running


@pytest.fixture
def database(mariadb: Server) -> Database:
    """A new database; its user may receive the binlog."""
    return mariadb.create_captured(f"capture_{next(_numbers)}")


@pytest.fixture
def source(database: Database) -> Iterator[Source]:
    """A session of capture's, in the new database."""
    opened = connect(parse_dsn(database.dsn))
    yield opened
    opened.close()
