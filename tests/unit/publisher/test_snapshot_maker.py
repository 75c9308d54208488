"""Making snapshots where something goes wrong: who asks hears of it, and the source is left in peace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.errors import SnapshotUnavailable
from headrace.publisher.snapshot.guard import Ask
from headrace.publisher.snapshot.maker import SnapshotMaker
from headrace.publisher.snapshot.settings import Address, SnapshotSettings
from headrace.publisher.snapshot.spool import Spool, Whole
from headrace.publisher.state import StatePlace, StateReader, StateSink
from headrace.runtime.disk import Disk
from headrace.testing.clock import ManualClock

ASK = Ask("shop", "listener-1")


class Source:
    """A feed's source whose driver raises ``error`` within the reading; also its own reader."""

    incarnation = "inc"
    was_read = False

    def __init__(self) -> None:
        self.error: Exception | None = TypeError("Encoding objects of type Range is unsupported")
        self.opened = 0
        self.closed = 0

    async def begin_snapshot(self, reader: StateReader, sink: StateSink) -> StatePlace:
        return StatePlace("inc", 7)

    def open(self) -> None:
        self.opened += 1

    def lines(self) -> Iterator[bytes]:
        yield b'{"key":"1","changes":{}}\n'
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def maker(tmp_path: Path, clock: ManualClock, source: Source) -> AsyncIterator[SnapshotMaker]:
    spool = Spool(tmp_path / "spool", bytes_max=1 << 20, keep_s=3600, clock=clock, disk=Disk())
    spool.open()
    made = SnapshotMaker(
        {"shop": source}, lambda _: source, spool, SnapshotSettings(listen=Address("::1", 0)), clock
    )
    yield made
    await made.close()


def advance(clock: ManualClock, seconds: float) -> None:
    clock.seconds += seconds
    clock.ms += round(1000 * seconds)


async def refused(maker: SnapshotMaker) -> str:
    with pytest.raises(SnapshotUnavailable) as raised:
        await maker.find(ASK)
    return raised.value.detail


async def test_error_that_nobody_expected_is_told_and_logged(
    tmp_path: Path, maker: SnapshotMaker, source: Source, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await refused(maker) == "no snapshot of shop could be made: TypeError"
    told = capsys.readouterr()
    assert "TypeError: Encoding objects of type Range is unsupported" in told.out + told.err
    assert "Traceback" in told.out + told.err
    assert source.closed == source.opened == 1
    assert [one.name for one in (tmp_path / "spool").iterdir()] == ["owner.lock"]


@pytest.mark.parametrize("error", [TypeError("x"), SnapshotUnavailable("x"), OSError("x")], ids=type)
async def test_source_is_read_ever_more_rarely_while_it_fails(
    maker: SnapshotMaker, source: Source, clock: ManualClock, error: Exception
) -> None:
    source.error = error
    with capture_logs():  # rendering a traceback for a terminal takes seconds
        for tries, pause_s in enumerate([2, 4, 8, 16, 32, 60, 60], start=1):
            await refused(maker)
            assert source.opened == tries
            advance(clock, pause_s - 1)
            await refused(maker)
            assert source.opened == tries, "it is left in peace"
            advance(clock, 1)
    source.error = None
    found = await maker.find(ASK)
    assert isinstance(found, Whole)
    source.error = OSError("x")
    advance(clock, 600)
    tries = source.opened
    await refused(maker)
    advance(clock, 2)
    await refused(maker)
    assert source.opened == tries + 2, "after a success it begins with the shortest pause"
