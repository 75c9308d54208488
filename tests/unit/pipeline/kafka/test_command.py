"""``headrace pipeline kafka``: what is wrong is said before Spark starts, and a person reads what was done."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from headrace.cli.pipeline_kafka import kafka_command, report
from headrace.cli.spark_jobs import lag_text, progress_teller
from headrace.errors import ConfigInvalid, HeadraceError, InvalidRequest
from headrace.pipeline.kafka.job import Progress, Summary

URI = "kafka://127.0.0.1:9092/t"


@pytest.mark.parametrize(
    ("feed", "uri", "config", "named"),
    [
        ("shop", "kafka://h/t?nonsense=1", "", "nonsense"),
        ("shop", URI, "[sink]\nnonsense = 1", "sink.nonsense"),
        ("shop", URI, None, "can't be read"),
        ("no feed", URI, "", "no feed"),
    ],
)
def test_what_is_wrong_is_said_first(
    tmp_path: Path, feed: str, uri: str, config: str | None, named: str
) -> None:
    file = tmp_path / "changefeed.toml"
    if config is not None:
        file.write_text(config)
    with pytest.raises(HeadraceError, match=named) as caught:
        kafka_command(feed=feed, sink_uri=uri, checkpoint=str(tmp_path / "c"), config=file)
    assert caught.value.exit_code == 2
    assert isinstance(caught.value, ConfigInvalid) or feed == "no feed"


def test_a_start_that_is_none_is_said_first(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="option start: 'begin' is not") as caught:
        kafka_command(feed="shop", sink_uri=URI, checkpoint=str(tmp_path / "c"), start="begin")
    assert caught.value.exit_code == 2


def test_progress_for_machines_is_a_line_a_batch(capsys: pytest.CaptureFixture[str]) -> None:
    tell = progress_teller(lambda now: "never", as_json=True)
    now = Progress(
        batches=0, rows=0, sequence_id=0, watermark=None, lag=40, lag_seconds=None, rows_per_second=0.0
    )
    tell(now)
    for _ in range(2):
        tell(msgspec.structs.replace(now, batches=1, sequence_id=40, watermark=9, lag=0, lag_seconds=0.0))
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert told.pop("timestamp").endswith("Z")
    assert told == {
        "event": "progress",
        "room": "pipeline",
        "batches": 1,
        "rows": 0,
        "sequence-id": 40,
        "watermark": 9,
        "lag": 0,
        "lag-seconds": 0.0,
        "rows-per-second": 0.0,
        "batch-seconds": None,
    }


def test_progress_for_nobody_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    now = Progress(
        batches=1, rows=0, sequence_id=0, watermark=None, lag=40, lag_seconds=3.0, rows_per_second=0.0
    )
    progress_teller(lag_text, as_json=False)(now)
    assert capsys.readouterr().err == ""
    assert lag_text(now) == "40 behind, 3 s"
    assert lag_text(msgspec.structs.replace(now, lag=None)) == "server away"


def test_what_was_done_is_told() -> None:
    summary = Summary(
        feed="shop", began_at=401, batches=2, rows=30, statements=1, sequence_id=40, watermark=None, topics={"t": 8},
        warnings=["x"], seconds=1.25,
    )  # fmt: skip
    assert report(summary) == [
        "begun at entry 401",
        "30 rows and 1 statements in 2 batches, 1.2 s",
        "  topic t: 8 partitions",
        "warning: x",
        "no WATERMARK was sent",
    ]
