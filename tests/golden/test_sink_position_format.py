"""The position that a release of Spark's sink left in a feed, and what its query kept, are read and written the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.sink import kept
from headrace.pipeline.sink.position import LastAppend, SinkPosition, decode, encode

FORMATS = Path(__file__).parent / "formats"
GENERATIONS = sorted(FORMATS.glob("*/sink-position.json"))
KEPT = sorted(FORMATS.glob("*/sink-appends.json"))
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "sink-position.md"
POSITION = SinkPosition(
    query="4ea74ec7-bcf6-40ae-ad16-7d50e61b034b",
    batch=17,
    attempt="2ad8f0b3-9516-440c-93f4-e6700c38c459",
    task=0,
)
APPENDS = kept.Appends(
    query=POSITION.query,
    agent_id="orders-job",
    feeds={"orders": LastAppend(batch=17, first_sequence_id=4711, rows=20)},
)


@pytest.mark.parametrize("path", GENERATIONS, ids=lambda path: path.parent.name)
def test_every_generation_is_read(path: Path) -> None:
    assert decode(path.read_bytes()) == POSITION


def test_today_is_written_as_the_newest_generation_and_the_page() -> None:
    assert encode(POSITION) == GENERATIONS[-1].read_bytes()
    assert PAGE.read_text().split("```json\n")[1].split("\n```")[0].encode() == encode(POSITION)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.parent.name)
def test_every_generation_of_what_a_query_kept_is_read(path: Path) -> None:
    assert kept.decode(path.read_bytes(), str(path)) == APPENDS


def test_what_a_query_keeps_today_is_as_the_newest_generation_and_the_page() -> None:
    assert kept.encode(APPENDS) == KEPT[-1].read_bytes()
    assert PAGE.read_text().split("```json\n")[2].split("```")[0].encode() == kept.encode(APPENDS)
