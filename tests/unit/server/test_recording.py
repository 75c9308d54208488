"""How far consumers are is written down: of all of them at once, however many move, and nothing twice at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from headrace.server.recording import NOTED_MAX, WRITTEN_MAX, Recorder, Step, listener
from headrace.wire.passages import decode_points
from tests.unit.server.retention.benches import Bench, opened

MANY = 2 * WRITTEN_MAX + 200


def note(recorder: Recorder, count: int, place: int = 7) -> None:
    for number in range(count):
        recorder.passed(listener(f"listener-{number}", "a"), Step.ACKED, place)


def written(bench: Bench) -> int:
    return len(bench.log.metadata.progress.of_feed("a"))


async def test_a_stop_writes_what_every_consumer_did(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        recorder = Recorder(bench.log, bench.clock)
        await recorder.start()
        note(recorder, MANY)
        await recorder.close()
        assert written(bench) == MANY


async def test_one_write_writes_what_every_consumer_did(tmp_path: Path) -> None:
    """A trace that is asked for behind thousands of others tells what was done a moment ago."""
    async with opened(tmp_path) as bench:
        recorder = bench.service.progress
        note(recorder, MANY)
        recorder.passed(listener("last", "a"), Step.ACKED, 9)
        assert await recorder.write()
        assert written(bench) == MANY + 1
        (row,) = (one for one in bench.log.metadata.progress.of_feed("a") if one.name == "last")
        assert [point.place for point in decode_points(row.points)] == [9]


async def test_a_write_waits_for_the_one_that_is_under_way(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        recorder, ended = bench.service.progress, list[str]()

        async def write(name: str) -> None:
            assert await recorder.write()
            ended.append(name)

        note(recorder, 3)
        await asyncio.gather(write("first"), write("second, with nothing to write"))
        assert ended == ["first", "second, with nothing to write"]
        assert written(bench) == 3


async def test_consumers_that_can_not_be_noted_are_told_of_once(tmp_path: Path) -> None:
    async with opened(tmp_path) as bench:
        recorder = bench.service.progress
        with capture_logs() as said:
            note(recorder, NOTED_MAX + 3)
        told = [one for one in said if one["event"] == "it is not noted how far some consumers are"]
        assert [one["waiting_max"] for one in told] == [NOTED_MAX]
        assert await recorder.write()
        assert written(bench) == NOTED_MAX
