"""One MariaDB server for this folder, and a new database with an outbox for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import Database, Server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A running server, which no test may stop."""
    with Server() as running:
        yield running


@pytest.fixture
def empty(mariadb: Server) -> Database:
    """A new database with nothing in it."""
    return mariadb.create_database(f"test_{next(_numbers)}")


@pytest.fixture
def database(empty: Database) -> Database:
    """A new database with an outbox."""
    with empty.connect() as app:
        Outbox.create(app)
    return empty


@pytest.fixture
def source(database: Database) -> Iterator[MysqlSource]:
    """The new database, opened as the agent does."""
    opened = MysqlSource(parse_dsn(database.dsn))
    yield opened
    opened.close()
