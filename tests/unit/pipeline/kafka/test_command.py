"""``headrace pipeline kafka``: what is wrong is said before Spark starts, and a person reads what was done."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.pipeline_kafka import kafka_command, report
from headrace.errors import ConfigInvalid, HeadraceError
from headrace.pipeline.kafka.job import Summary

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


def test_what_was_done_is_told() -> None:
    summary = Summary(
        feed="shop", batches=2, rows=30, statements=1, sequence_id=40, watermark=None, topics={"t": 8}, warnings=["x"],
        seconds=1.25,
    )  # fmt: skip
    assert report(summary) == [
        "30 rows and 1 statements in 2 batches, 1.2 s",
        "  topic t: 8 partitions",
        "warning: x",
        "no WATERMARK was sent",
    ]
