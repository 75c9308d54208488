"""The log of a Delta table as the job reads it: the newest version, what commits did; and what is removed of it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.tables.delta_log import Commit, clean_log, commits_after, newest_version

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def log_of(
    table: Path, ages: dict[int, float], checkpoints: tuple[int, ...] = (), *, sums: bool = True
) -> Path:
    """A log of commits, so many days old each, with whole checkpoints; Delta points at the last of them."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    for version, days in ages.items():
        names = (f"{version:020}.json", f"{version:020}.crc", f".{version:020}.json.crc")
        for name in names if sums else names[:1]:
            (log / name).write_text(json.dumps({"commitInfo": {"operation": "MERGE"}}))
            os.utime(log / name, ((NOW - days * DAY).timestamp(),) * 2)
    for version in checkpoints:
        (log / f"{version:020}.checkpoint.parquet").touch()
    if checkpoints:
        (log / "_last_checkpoint").write_text(json.dumps({"version": checkpoints[-1], "size": 3}))
    return log


def versions(log: Path) -> list[int]:
    return sorted(int(path.stem) for path in log.glob("0*.json"))


def test_the_newest_version_is_found_from_the_last_checkpoint_on(tmp_path: Path) -> None:
    log = log_of(tmp_path, dict.fromkeys(range(23), 0.0), (10, 20))
    assert newest_version(tmp_path) == 22
    # What is far below is not looked at: a gap there would end a walk from the beginning.
    (log / f"{3:020}.json").unlink()
    assert newest_version(tmp_path) == 22


@pytest.mark.parametrize("pointer", [b"", b'{"version', b'{"version": 7}'])
def test_a_pointer_that_leads_nowhere_does_no_harm(tmp_path: Path, pointer: bytes) -> None:
    log = log_of(tmp_path, dict.fromkeys((40, 41), 0.0))
    (log / "_last_checkpoint").write_bytes(pointer)
    assert newest_version(tmp_path) == 41


def test_commits_say_what_they_did(tmp_path: Path) -> None:
    log = log_of(tmp_path, dict.fromkeys(range(3), 0.0))
    marked = {"commitInfo": {"operation": "ADD COLUMNS", "userMetadata": "mine", "operationMetrics": {}}}
    (log / f"{3:020}.json").write_text(f'{{"add": {{"path": "x"}}}}\n{json.dumps(marked)}\n')
    assert list(commits_after(tmp_path, 1)) == [Commit(2, "MERGE", ""), Commit(3, "ADD COLUMNS", "mine")]
    assert list(commits_after(tmp_path, 3)) == []


def test_what_no_moment_needs_goes_up_to_a_checkpoint(tmp_path: Path) -> None:
    ages = {version: 30.0 - version for version in range(28)}
    log = log_of(tmp_path, ages, (10, 20))
    (log / f"{20:020}.checkpoint.parquet").rename(
        log / f"{20:020}.checkpoint.{1:010}.{2:010}.parquet"
    )  # the second part is not there yet
    assert clean_log(tmp_path, NOW - 5 * DAY, 27) == 30
    assert versions(log) == list(range(10, 28))
    assert not [path.name for path in log.iterdir() if path.name.startswith((f"{9:020}", f".{9:020}"))]
    assert newest_version(tmp_path) == 27


def test_a_quiet_table_keeps_the_version_that_is_published(tmp_path: Path) -> None:
    ages = dict.fromkeys(range(10), 30.0) | {10: 0.0}
    log = log_of(tmp_path, ages, (10,))
    assert clean_log(tmp_path, NOW - 5 * DAY, 9) == 0
    assert versions(log) == list(range(11))
    assert clean_log(tmp_path / "no-table", NOW, 9) == 0


@settings(max_examples=40)
@given(
    gaps=st.lists(st.floats(0, 20), min_size=1, max_size=12),
    checkpoints=st.sets(st.integers(0, 11)),
    days=st.integers(0, 20),
    needed=st.integers(0, 11),
)
def test_every_version_that_was_shown_since_can_be_told(
    gaps: list[float], checkpoints: set[int], days: int, needed: int
) -> None:
    ages = [sum(gaps[index:]) for index in range(len(gaps))]
    newest = len(ages) - 1
    needed, before = min(needed, newest), NOW - days * DAY
    with TemporaryDirectory() as folder:
        log = log_of(
            Path(folder),
            dict(enumerate(ages)),
            tuple(sorted(checkpoints & set(range(len(ages))))),
            sums=False,
        )
        clean_log(Path(folder), before, needed)
        there, left = set(versions(log)), {int(path.name[:20]) for path in log.glob("*.checkpoint.parquet")}
        assert newest_version(Path(folder)) == newest
    for version in range(len(ages)):
        followed = NOW - ages[version + 1] * DAY if version < newest else NOW
        if followed > before or version >= needed:
            base = max((one for one in left if one <= version), default=-1)
            assert set(range(base + 1, version + 1)) <= there
