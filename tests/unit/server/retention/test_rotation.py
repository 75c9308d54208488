"""Who writes files is told before a segment goes, and when only those who hold it keep it: once for each segment."""

from __future__ import annotations

from pathlib import Path

from headrace.entries.lsn import ZERO
from tests.unit.server.retention.benches import Bench, opened


def told(bench: Bench) -> list[int]:
    """From now on: the oldest sequence id at each moment at which it was told."""
    found: list[int] = []
    bench.service.retention.on_due.append(lambda: found.append(bench.oldest()))
    return found


async def test_it_is_told_before_a_segment_is_dropped(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        calls = told(bench)
        await bench.write("a", 30)
        assert len(bench.log.store.segments()) > 2
        await bench.later(10)
        await bench.later(37)
        assert calls == [], "all of it is too young"
        await bench.later(1)
        assert calls == [1], "while it was all there"
        assert bench.oldest() == 31
        await bench.later(1)
        assert calls == [1], "nothing else is due"


async def test_it_is_told_once_of_what_is_only_held(tmp_path: Path) -> None:
    async with opened(tmp_path, subscriber_expiry_s=1e9) as bench:
        calls = told(bench)
        metadata = bench.log.metadata
        await bench.write("a", 30)
        metadata.begin_subscriber("anonymous", "backup", str(ZERO), bench.clock.ms)
        await bench.later(10)
        await bench.later(47)
        assert calls == [1]
        for _ in range(3):
            await bench.later(1)
        assert (calls, bench.oldest()) == ([1], 1), "it holds still, and was told"
        newest = bench.log.tail("a").newest_lsn
        metadata.move_subscribers([("anonymous", "backup", newest)], bench.clock.ms)
        await bench.later(1)
        assert (calls, bench.oldest()) == ([1], 31), "it has let go, and needs no word of it"


async def test_each_segment_that_falls_due_is_told_of(tmp_path: Path) -> None:
    async with opened(tmp_path, subscriber_expiry_s=1e9) as bench:
        calls = told(bench)
        bench.log.metadata.begin_subscriber("anonymous", "backup", str(ZERO), bench.clock.ms)
        for _ in range(3):
            await bench.write("a", 1)
            await bench.later(12)
        for count in range(4):
            assert (len(calls), bench.oldest()) == (count, 1)
            await bench.later(12)
