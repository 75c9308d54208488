"""Records in parts on disk: each key in one of them, in order, and no part above what fits in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.drill import spill
from headrace.pipeline.drill.spill import LEVELS_MAX, PART_BYTES, PARTS_MAX, Spill, each_part, parts_for


def spilled(folder: Path, name: str, parts: int, records: list[tuple[str, bytes, int]]) -> Spill:
    made = Spill(folder, name, parts)
    for one in records:
        made.add(one)
    made.seal()
    return made


@pytest.mark.parametrize(("parts", "part_bytes"), [(1, PART_BYTES), (3, PART_BYTES), (1, 100), (3, 100)])
def test_a_key_stays_in_one_part_and_in_order(
    tmp_path: Path, parts: int, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "PART_BYTES", part_bytes)
    records = [("f", b"k%d" % (number % 70), number) for number in range(420)]
    spills = [spilled(tmp_path, name, parts, records) for name in ("log", "restored")]
    found = []
    for log, restored in each_part(spills):
        found.append([tuple(one) for one in log])
        assert [tuple(one) for one in restored] == found[-1]
    assert sorted(one for part in found for one in part) == sorted(records)
    for key in {one[1] for one in records}:
        (places,) = filter(None, ([one[2] for one in part if one[1] == key] for part in found))
        assert places == sorted(places)
    assert list(tmp_path.iterdir()) == []
    if part_bytes == 100:  # six records of one key are more than that, so each key is alone
        assert max(len({one[1] for one in part}) for part in found) == 1
    else:
        assert len(found) == parts


def test_one_key_that_is_larger_than_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "PART_BYTES", 100)
    records = [("f", b"k", number) for number in range(100)]
    made = spilled(tmp_path, "log", 2, records)
    found = [len(list(log)) for (log,) in each_part([made])]
    assert sorted(found)[-2:] == [0, 100]
    assert len(found) == 2 - 1 + PARTS_MAX * 2 - 1
    assert LEVELS_MAX == 3
    assert list(tmp_path.iterdir()) == []


def test_parts_are_as_many_as_memory_asks_for() -> None:
    assert [parts_for(size) for size in (0, PART_BYTES, PART_BYTES + 1, 1 << 60)] == [1, 1, 2, PARTS_MAX]
