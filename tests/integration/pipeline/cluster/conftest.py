"""A cluster for each test here: every one of them kills workers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spark_cluster import SparkCluster


@pytest.fixture
def cluster() -> Iterator[SparkCluster]:
    with SparkCluster(workers=2) as started:
        yield started
