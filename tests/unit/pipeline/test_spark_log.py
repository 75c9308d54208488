"""What Spark prints is kept in two files of a bounded size, while those who print have the first of them open."""

from __future__ import annotations

import threading
from pathlib import Path

from structlog.testing import capture_logs

from headrace.pipeline.spark_log import keep_small, watch
from tests.waiting import wait_until

FULL = 1000


def test_a_large_log_begins_anew_under_those_who_write_it(tmp_path: Path) -> None:
    log, old = tmp_path / "spark.log", tmp_path / "spark.log.1"
    assert not keep_small(log, FULL)
    with log.open("ab", buffering=0) as java:
        java.write(b"a" * FULL)
        assert not keep_small(log, FULL)
        for letter in (b"b", b"c"):
            java.write(letter * FULL)
            assert keep_small(log, FULL)
            assert old.read_bytes().endswith(letter * FULL)
            assert log.read_bytes() == b""
            java.write(letter)
    assert log.read_bytes() == b"c"
    assert old.read_bytes() == b"b" + b"c" * FULL
    assert {path.name for path in tmp_path.iterdir()} == {log.name, old.name}


def test_it_is_watched_until_its_writers_end(tmp_path: Path) -> None:
    log, old = tmp_path / "spark.log", tmp_path / "spark.log.1"
    ended = threading.Event()
    old.mkdir()
    with capture_logs() as logged:
        thread = watch(log, ended.is_set, bytes_max=FULL, every_s=0.001)
        try:
            with log.open("ab", buffering=0) as java:
                java.write(b"x" * (FULL + 1))
                wait_until(lambda: bool(logged))  # there is no place for the old one
                assert log.stat().st_size == FULL + 1
                old.rmdir()
                wait_until(lambda: log.stat().st_size == 0)
        finally:
            ended.set()
            thread.join(30)
    assert not thread.is_alive()
    assert old.stat().st_size == FULL + 1
    assert [one["file"] for one in logged] == [str(log)]
