"""One cluster and one program with a session on it for all tests here. Workers that a test killed are there for the next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.pipeline.cluster.programs import Program
from tests.s3 import S3Server
from tests.spark_cluster import SparkCluster

WORKERS = 2


@pytest.fixture(scope="session")
def started_cluster() -> Iterator[SparkCluster]:
    with SparkCluster(WORKERS) as started:
        yield started


@pytest.fixture
def cluster(started_cluster: SparkCluster) -> SparkCluster:
    """The cluster with both of its workers."""
    started_cluster.mend()
    return started_cluster


@pytest.fixture(scope="session")
def started_program(
    started_cluster: SparkCluster, s3_process: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    with Program(started_cluster, s3_process, tmp_path_factory.mktemp("program")) as started:
        yield started


@pytest.fixture
def program(cluster: SparkCluster, started_program: Program) -> Program:
    """The program, on a cluster with both of its workers, each of which has an executor."""
    started_program.comes(
        lambda: cluster.used() == started_program.executors() == WORKERS, what="an executor on each worker"
    )
    return started_program
