"""How far behind a job is."""

from __future__ import annotations

import json

import pytest

from headrace.entries.lsn import Lsn
from headrace.pipeline.lag import Lag, lag_of
from headrace.pipeline.source.offset import Asked, Offset, Place, to_json

NOW_S = 1_800_000_000.0
LSN = str(Lsn((int(NOW_S * 1000) - 2_500) << 18, 1, 40))


def end(feed: str, sequence_id: int) -> str:
    place = Place(incarnation="i", sequence_id=sequence_id, lsn=LSN)
    return json.dumps(to_json(Offset({feed: place})))


@pytest.mark.parametrize(
    ("ends", "head", "done", "expected"),
    [
        ([end("f", 40)], 50, 30, Lag(10, 2.5)),
        ([end("f", 40)], 40, 30, Lag(0, 0.0)),
        ([end("f", 40)], None, 30, Lag(None, 2.5)),
        ([end("other", 40), "5"], 50, 30, Lag(20, None)),
        ([json.dumps(to_json(Asked(("f",), "oldest")))], 50, 30, Lag(20, None)),
        ([], 50, 50, Lag(0, 0.0)),
        ([], None, 0, Lag(None, None)),
    ],
)
def test_lag(ends: list[str], head: int | None, done: int, expected: Lag) -> None:
    assert lag_of(ends, "f", head, done, NOW_S) == expected
