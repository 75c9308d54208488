"""Tables of a feed whose beginning is gone begin with its publisher's snapshot, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import SequenceNotAvailable
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables import hydrating
from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.merge import apply_batch
from headrace.pipeline.tables.standing import read_standing
from tests.agents import AgentProcess
from tests.integration.pipeline.tables.forgetful_source import FAST, FEED, Source, serving_snapshots
from tests.servers import serving


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Iterator[Source]:
    """A source with an agent that serves snapshots, and a server that soon forgets."""
    with serving_snapshots(spark, tmp_path) as made:
        yield made


def test_tables_begin_with_the_snapshot_where_the_feed_does_not_reach_back(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.fill(1, 20)
    source.settle()
    source.forget_beginning()

    def first_only(spark: SparkSession, path: Path, batch: Any) -> None:
        apply_batch(spark, path, batch)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(hydrating, "apply_batch", first_only)
        with pytest.raises(Killed):
            source.run()
    assert read_published(Path(source.to)) is None
    # What the first attempt brought, and is gone since, must not stay: the next one gets another snapshot.
    assert source.agent is not None
    source.agent.kill()
    shutil.rmtree(source.spool)
    source.agent.start()
    source.sql("DELETE FROM item", "DELETE FROM note WHERE id < 9")
    source.settle()
    summary = source.run()
    assert summary.started_from == "snapshot"
    source.check()
    standing = read_standing(Path(source.to), Endpoint(source.server.url))
    assert {one.started_from for one in standing.tables} == {"snapshot"}
    assert not (Path(source.to) / "_headrace" / "snapshot").exists()
    assert source.feed()["hydrations"] == []
    source.sql("INSERT INTO item VALUES (1, 'new')", "CREATE TABLE late (id INTEGER PRIMARY KEY)")
    source.settle()
    assert source.run().batches
    source.check()


def test_without_anything_that_reaches_back_the_start_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with serving(tmp_path / "log", args=FAST) as server:
        made = Source(spark, server, tmp_path)
        with AgentProcess(tmp_path / "agent", server.url, f"sqlite:///{made.path}", FEED):
            made.fill(1, 20)
            made.settle()
            made.forget_beginning()
        with pytest.raises(SequenceNotAvailable, match=r"begins with entry \d+ now") as refused:
            made.run()
        assert "no-snapshot" in refused.value.detail
        assert "--archive" in refused.value.advice
        assert read_published(Path(made.to)) is None
