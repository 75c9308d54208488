"""How long a file that left a table must stay: as long as a moment that readers may have needs it. And whose turn it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from structlog.testing import capture_logs

from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable
from headrace.pipeline.tables.states import LeftFolder
from headrace.pipeline.tables.upkeep import Terms, Upkeep, publishes_with, retained_hours

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def kept_after(gaps: list[int]) -> tuple[list[str], list[datetime]]:
    """The times that are kept, and all of them, of publishes with so many minutes between them; the last is NOW."""
    moments = [NOW]
    for minutes in gaps:
        moments.append(moments[-1] - timedelta(minutes=minutes))
    kept: list[str] = []
    for moment in reversed(moments):
        kept = publishes_with(kept, moment)
    return kept, moments


def test_nothing_is_removed_before_a_day_has_passed() -> None:
    kept, _ = kept_after([60] * 23)
    assert retained_hours(kept, NOW) is None


def test_after_a_long_pause_what_was_published_before_it_stays() -> None:
    kept, _ = kept_after([1, 60 * 72, 60])
    assert retained_hours(kept, NOW) == 73  # of the two publishes before the pause the first stands for both


@given(st.lists(st.integers(1, 60 * 40), max_size=80))
def test_no_file_of_a_moment_of_the_last_day_is_removed_and_the_list_stays_short(gaps: list[int]) -> None:
    kept, moments = kept_after(gaps)
    assert len(kept) <= 27
    hours = retained_hours(kept, NOW)
    if hours is not None:
        # What was shown a day ago was published by then; files that left tables after that are needed.
        shown = max(moment for moment in moments if NOW - moment >= 24 * HOUR)
        assert NOW - hours * HOUR <= shown


NO_SPARK: Any = SimpleNamespace(conf=SimpleNamespace(set=lambda name, value: None))


class Rounds(Upkeep):
    """Upkeep that notes what it would do. ``crumbling``: all that it looks at has too many small files."""

    def __init__(self, ledger: Ledger, *, crumbling: bool = False, every_s: float = 0.0) -> None:
        super().__init__(ledger, Terms(clean_every_s=every_s))
        self.crumbling = crumbling
        self.looked: list[str] = []
        self.cleaned: list[str] = []

    def _compact(self, spark: SparkSession, table: PublishedTable) -> bool:
        self.looked.append(table.path)
        return self.crumbling

    def _remove_old(self, spark: SparkSession, table: PublishedTable, now: datetime, hours: int) -> bool:
        self.cleaned.append(table.path)
        return True


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """One whose job has run for two days."""
    made = Ledger(tmp_path, "f", "i")
    made.keep(publishes=[hours_ago(36)])
    yield made
    made.close()


def hours_ago(hours: float) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat(timespec="milliseconds")


def show(ledger: Ledger, versions: dict[str, int], stopped: Iterable[str] = ()) -> None:
    """Publish tables with these versions; only whoever reads the file would need it on the disk."""
    tables = [PublishedTable(["d", path], path, version) for path, version in versions.items()]
    tables += [PublishedTable(["d", path], path, 9, 1) for path in stopped]
    ledger.published = PublishedFile(
        feed="f", incarnation="i", sequence_id=1, lsn="", published_at="", tables=tables
    )


@pytest.mark.parametrize("once", [False, True], ids=["one-run", "a-run-for-each-batch"])
@pytest.mark.parametrize("crumbling", [False, True], ids=["few-files", "many-files"])
def test_each_of_many_tables_has_its_turn(ledger: Ledger, *, once: bool, crumbling: bool) -> None:
    paths = [f"d.t{number:03}" for number in range(200)]
    ledger.keep(cleaned=dict.fromkeys(paths, hours_ago(8)))
    upkeep = Rounds(ledger, crumbling=crumbling, every_s=3600.0)
    looked: set[str] = set()
    cleaned: set[str] = set()
    for batch in range(200):
        show(ledger, dict.fromkeys(paths, 1000 + batch))
        if once:
            upkeep = Rounds(ledger, crumbling=crumbling, every_s=3600.0)
        upkeep.work(NO_SPARK)
        looked |= set(upkeep.looked)
        cleaned |= set(upkeep.cleaned)
    assert (len(looked), len(cleaned)) == (200, 200)


def test_the_table_with_most_commits_comes_first(ledger: Ledger) -> None:
    upkeep = Rounds(ledger, crumbling=True)
    for versions, turn in (
        ({"a": 50, "b": 90, "c": 39}, ["b"]),
        ({"a": 50, "b": 90, "c": 39}, ["a"]),
        ({"a": 50, "b": 90, "c": 39}, []),
        ({"a": 91, "b": 129, "c": 39}, ["a"]),
        ({"a": 40, "b": 129, "c": 39}, ["a"]),  # it is another one, or an older one was put back
    ):
        show(ledger, versions)
        upkeep.looked.clear()
        upkeep.work(NO_SPARK)
        assert upkeep.looked == turn


def test_a_stopped_table_is_left_alone_and_for_a_day_after_it_goes_on(ledger: Ledger) -> None:
    upkeep = Rounds(ledger)
    ledger.keep(cleaned={"a": hours_ago(9), "b": hours_ago(8)}, seen={"a": 1, "b": 1})
    show(ledger, {"b": 9}, stopped=["a"])
    upkeep.work(NO_SPARK)
    assert upkeep.cleaned == ["b"]
    assert set(ledger.cleaned) == set(ledger.seen) == {"b"}
    show(ledger, {"a": 99})
    upkeep.work(NO_SPARK)
    assert upkeep.looked == ["a"]
    assert upkeep.cleaned == ["b"]
    ledger.keep(cleaned={"a": hours_ago(1)})
    upkeep.work(NO_SPARK)
    assert upkeep.cleaned == ["b", "a"]


def test_after_a_pause_nothing_is_removed_until_a_day_of_publishes(ledger: Ledger) -> None:
    # After two days Delta does not know any more when a file left a table, and takes it for one that is nobody's.
    upkeep = Rounds(ledger)
    ledger.keep(cleaned={"a": hours_ago(99)})
    show(ledger, {"a": 9})
    for publishes, cleaned in (
        ([hours_ago(49), hours_ago(2)], []),
        ([hours_ago(49), hours_ago(24.5)], ["a"]),
    ):
        ledger.keep(publishes=publishes)
        upkeep.work(NO_SPARK)
        assert upkeep.cleaned == cleaned


def test_a_folder_that_cannot_be_removed_keeps_its_name(ledger: Ledger) -> None:
    for name in ("d.gone", "d.stays"):
        (ledger.to / name / "_delta_log").mkdir(parents=True)
    (ledger.to / "d.stays").rename(ledger.to / "kept")
    (ledger.to / "d.stays").symlink_to("kept")  # which is not followed: removing it fails for any user
    ledger.keep(left=[LeftFolder(name, hours_ago(50)) for name in ("d.never", "d.gone", "d.stays")])
    show(ledger, {})
    upkeep = Rounds(ledger)
    with capture_logs() as logged:
        for _ in range(3):
            upkeep.work(NO_SPARK)
    assert not (ledger.to / "d.gone").exists()
    assert [one.path for one in ledger.left] == ["d.stays"]
    assert [(one["path"], one["what"]) for one in logged] == [("d.stays", "folder")]
    (ledger.to / "d.stays").unlink()
    Rounds(ledger).work(NO_SPARK)
    assert ledger.left == []
