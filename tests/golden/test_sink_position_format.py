"""The position that a release of Spark's sink left in a feed is read, and written the same today."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.sink.position import SinkPosition, decode, encode

GENERATIONS = sorted((Path(__file__).parent / "formats").glob("*/sink-position.json"))
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "sink-position.md"
POSITION = SinkPosition(
    query="4ea74ec7-bcf6-40ae-ad16-7d50e61b034b",
    batch=17,
    attempt="2ad8f0b3-9516-440c-93f4-e6700c38c459",
    task=0,
)


@pytest.mark.parametrize("path", GENERATIONS, ids=lambda path: path.parent.name)
def test_every_generation_is_read(path: Path) -> None:
    assert decode(path.read_bytes()) == POSITION


def test_today_is_written_as_the_newest_generation_and_the_page() -> None:
    assert encode(POSITION) == GENERATIONS[-1].read_bytes()
    assert PAGE.read_text().split("```json\n")[1].split("\n```")[0].encode() == encode(POSITION)
