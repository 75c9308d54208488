"""A MariaDB that is captured into a feed, whose tables are kept: the real thing from one end to the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.mariadb import CAPTURE_OPTIONS, Server
from tests.servers import ServerProcess, serving

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Server]:
    """A running server fit for capture; each test has its own database."""
    with Server(*CAPTURE_OPTIONS) as running:
        yield running


@pytest.fixture(scope="session")
def log_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A running Headrace server that capture can append to."""
    with serving(tmp_path_factory.mktemp("log"), grpc=True) as running:
        yield running


@pytest.fixture
def captured(
    mariadb: Server, log_server: ServerProcess, spark: SparkSession, tmp_path: Path
) -> Iterator[CapturedSource]:
    """A new database, a capture of it that is not started yet, and a folder for its tables."""
    database = mariadb.create_captured(f"shop_{next(_numbers)}")
    source = CapturedSource(database, log_server, spark, tmp_path)
    yield source
    source.stop()
