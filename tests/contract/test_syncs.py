"""On every store each group that writes is made durable once, and that is counted; what writes nothing is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.errors import OffsetMismatch
from tests.bench import Bench, expecting
from tests.stores import SMALL_SEGMENT, Opener


@pytest.fixture
def bench(opener: Opener, tmp_path: Path) -> Iterator[Bench]:
    store = opener(tmp_path, SMALL_SEGMENT)
    yield Bench(store)
    store.close()


def test_each_group_that_writes_is_one_sync(bench: Bench) -> None:
    bench.register("a")
    assert bench.store.syncs.count == 1
    for number in range(1, 6):
        bench.send(expecting("a", number, f"{number}"))
    assert bench.store.syncs.count == 6
    assert bench.store.syncs.sum > 0
    assert bench.send(expecting("a", 5, "5")).duplicate
    with pytest.raises(OffsetMismatch):
        bench.send(expecting("a", 9, "9"))
    assert bench.store.syncs.count == 6
    assert bench.store.index_bytes() >= 0
