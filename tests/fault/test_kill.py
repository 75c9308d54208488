"""SIGKILL at random moments: everything that was acknowledged is there, byte for byte and dense. And the lock."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import DataFolderLocked
from headrace.log.files.store import FileStore
from headrace.log.log import Log
from tests.bench import Bench
from tests.fault.appender import FEEDS, SEGMENT_BYTES, value_of
from tests.fault.journals import opened, snapshot
from tests.scale import SEED, scaled

ROOT = Path(__file__).parents[2]


@contextmanager
def appender(folder: Path, seed: int) -> Iterator[subprocess.Popen[str]]:
    """Run the appending process for the time of a ``with``; it is killed at its end."""
    command = [sys.executable, "-m", "tests.fault.appender", str(folder), str(seed)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def lines(child: subprocess.Popen[str], most: int) -> Iterator[str]:
    """Yield up to ``most`` whole lines that the child has printed."""
    assert child.stdout is not None
    for _ in range(most):
        line = child.stdout.readline()
        if not line.endswith("\n"):
            return
        yield line


def test_killed_at_random_moments(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    folder = tmp_path / "data"
    acknowledged = dict.fromkeys(FEEDS, 0)
    for number in range(scaled(6)):
        with appender(folder, SEED + number) as child:
            read = list(lines(child, rng.choice((1, 3, 30, 200, 600))))
            os.kill(child.pid, signal.SIGKILL)
            read += lines(child, 1 << 30)  # what it had printed before it died
        for feed, _, last in (line.split() for line in read):
            acknowledged[feed] = max(acknowledged[feed], int(last))
        with opened(folder, segment_bytes=SEGMENT_BYTES) as bench:
            check(bench, acknowledged)
    assert all(acknowledged.values())


def check(bench: Bench, acknowledged: dict[str, int]) -> None:
    walked = bench.walked()
    assert [lsn for lsn, _ in walked] == sorted({lsn for lsn, _ in walked})
    for tail in bench.store.tails():
        assert tail.head >= acknowledged[tail.name]
        assert bench.values(tail.name) == {
            number: value_of(tail.name, number) for number in range(1, tail.head + 1)
        }
        assert [number for lsn, number in walked if lsn.region_id == tail.region_id] == list(
            range(1, tail.head + 1)
        )
    assert bench.store.not_writable() is None


def test_folder_of_a_live_process_is_locked(tmp_path: Path) -> None:
    with appender(tmp_path / "data", 1) as child:
        assert next(lines(child, 1))
        for opener in (FileStore, Log.open):
            with pytest.raises(DataFolderLocked) as refusal:
                opener(tmp_path / "data")
            assert refusal.value.exit_code == 3
    with opened(tmp_path / "data") as bench:
        assert bench.tail(FEEDS[0]).name == FEEDS[0]


def test_folder_is_locked_within_a_process_too(tmp_path: Path) -> None:
    with opened(tmp_path):
        before = snapshot(tmp_path)
        with pytest.raises(DataFolderLocked):
            FileStore(tmp_path)
        assert snapshot(tmp_path) == before
    with opened(tmp_path):
        pass
