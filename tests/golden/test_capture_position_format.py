"""The source position that a release left in a feed is read, and written the same today."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.capture.position import CopyProgress, SourcePosition, decode, encode

GENERATIONS = sorted((Path(__file__).parent / "formats").glob("*/capture-position.json"))
POSITION = SourcePosition(
    gtid="0-1-4711,1-2-5",
    file="binlog.000017",
    offset=52031,
    server_id=1,
    commit_ts=461701121277952001,
    table_id=12,
    parts=61,
    rows=3,
    entries=5001,
    under_way="0-1-4712",
    time_s=1761250000,
    copies=(CopyProgress(("shop", "orders"), 461701121277947904, ("41000",), 40213, "asked", "7c1e"),),
    whole=False,
    waiting=(("shop", "users"),),
    left_out=((3, 4),),
    stopped={"shop.places": "the column area has the type geometry, which no message has a form for"},
)


@pytest.mark.parametrize("path", GENERATIONS, ids=lambda path: path.parent.name)
def test_every_generation_is_read(path: Path) -> None:
    assert decode(path.read_bytes()) == POSITION


def test_today_is_written_as_the_newest_generation() -> None:
    assert encode(POSITION) == GENERATIONS[-1].read_bytes()
