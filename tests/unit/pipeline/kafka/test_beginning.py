"""Where a job begins whose checkpoint only Spark can look at."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import CheckpointUnfit
from headrace.pipeline.connection import Connection
from headrace.pipeline.kafka import beginning
from headrace.pipeline.kafka.beginning import Beginning, find_beginning
from tests.unit.pipeline.feeds import StoredFeed

REMOTE = "s3a://bucket/checkpoint"
"""There is no driver of fsspec's for it here."""


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A feed that retention has passed: the entries 41 to 100 are left."""
    feed = StoredFeed()
    feed.add(40)
    feed.add(60)
    feed.drop_before(41)

    class Server:
        def __init__(self, _: object) -> None: ...

        def __enter__(self) -> StoredFeed:
            return feed

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(beginning, Connection.__name__, Server)
    return {"feeds": feed.name, "endpoint": "http://h:1"}


@pytest.mark.parametrize(
    ("start", "told"),
    [
        ("first", "1"),
        ("10", "10"),
        ("2020-02-02T00:00:00Z", "2020-02-02T00:00:00Z"),
        ("", "41"),
        ("head", "101"),
    ],
)
@pytest.mark.parametrize("checkpoint", [REMOTE, "hdfs://namenode:8020/checkpoint"])
def test_a_start_that_retention_has_passed_does_not_stop_a_job_that_may_be_further(
    options: dict[str, str], checkpoint: str, start: str, told: str
) -> None:
    assert find_beginning(options, start, checkpoint) == Beginning(told, None, [])


def test_with_an_archive_it_begins_at_the_first_entry(options: dict[str, str]) -> None:
    assert find_beginning({**options, "archive": "/wal"}, "", REMOTE) == Beginning("1", None, [])


def test_a_store_that_does_not_answer_is_left_to_spark(options: dict[str, str]) -> None:
    assert find_beginning(options, "first", "webhdfs://127.0.0.1:1/x") == Beginning("1", None, [])


def test_a_folder_of_this_disk_that_can_not_be_looked_at_is_told(
    options: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(CheckpointUnfit, match="name too long"):
        find_beginning(options, "first", str(tmp_path / ("x" * 300)))
