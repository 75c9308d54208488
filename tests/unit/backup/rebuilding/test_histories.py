"""Archives with several histories of a feed: what a rebuild joins, what it leaves out, and what earlier rebuilds lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.backup.rebuilding.appends import Appends, Bounds, StoredAppend
from headrace.backup.rebuilding.feeds import Selection
from headrace.backup.rebuilding.rebuild import rebuild
from headrace.backup.rebuilding.tails import begin_state, united
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import LsnNotAvailable, RestoreInexact
from headrace.log.tail import JournalState
from headrace.runtime.clock import SystemClock
from headrace.server.streams.walking import find_start, oldest_of
from headrace.testing.clock import ManualClock
from headrace.wire.kwal_columns import Segment
from headrace.wire.lost_lsns import LostLsns
from headrace.wire.segment import decode_start
from tests.bench import Bench
from tests.rebuilding import (
    Backup,
    archive,
    change_history,
    feed_of,
    means,
    opened,
    plan_of,
    rebuilt,
    rebuilt_in_place,
    stream,
)
from tests.stores import SMALL_SEGMENT


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "server") as journal:
        yield journal


@pytest.fixture
def backup(tmp_path: Path) -> Backup:
    return Backup(tmp_path / "archive")


@pytest.mark.parametrize("began", [1, 2])
def test_history_that_begins_in_the_middle_drops_nothing_of_other_feeds(
    began: int, bench: Bench, backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a repair: the new history of g goes on from the old one if it says so, and else has nothing below."""
    bench.register("f")
    bench.register("g")
    bench.append("f", "f1")
    bench.append("g", "g1")
    backup.take(bench)
    with monkeypatch.context() as then:
        change_history(then, bench.tail("g").region_id, began)
        for number in range(2, 5):
            bench.append("f", f"f{number}")
        bench.append("g", "g2")
        bench.append("f", "f5")
        backup.take(bench)
    made = rebuilt(backup.folder, tmp_path / "new")
    assert [one.feed for one in made.left_out] == ([] if began == 1 else ["g"])
    assert feed_of(made, "g").oldest_sequence_id == began
    with opened(tmp_path / "new") as again:
        held = [one.lsn for one in stream(again)]
        wanted = [
            one.lsn for one in stream(bench) if began == 1 or one.sequence_id > 1 or one.lsn.region_id == 1
        ]
        assert held == wanted
        assert again.store.dropped_lsn() < held[0] == oldest_of(again.store)
        for lsn in held:
            assert find_start(again.store, lsn).lsn == lsn


def test_what_every_rebuild_lost_stays_lost(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    bench.append("f", "f1")
    backup.take(bench)
    lost = [bench.append("f", "lost").last_lsn]
    for number in range(2, 4):
        made = rebuilt(backup.folder, tmp_path / f"server-{number}")
        assert not made.left_out
        assert (feed_of(made, "f").oldest_sequence_id, made.entries) == (1, number - 1)
        with opened(tmp_path / f"server-{number}") as again:
            assert [one.sequence_id for one in stream(again)] == list(range(1, number))
            for lsn in lost:
                with pytest.raises(LsnNotAvailable):
                    find_start(again.store, lsn)
            again.clock.ms += 3_600_000 * number
            again.register("f", instance=f"number-{number}")
            goes_on = again.append("f", f"f{number}").first_lsn
            assert find_start(again.store, goes_on).lsn == goes_on
            backup.take(again)
            lost.append(again.append("f", "lost").last_lsn)
    assert len(lost) == 3


def test_lost_ranges_are_united() -> None:
    def of(*ends: tuple[int, int]) -> list[LostLsns]:
        return [LostLsns(str(Lsn(after, 0, 0)), str(Lsn(before, 0, 0))) for after, before in ends]

    assert united(of((7, 9), (1, 3), (2, 5), (1, 2))) == tuple(of((1, 5), (7, 9)))
    assert united(of((1, 3), (3, 5))) == tuple(of((1, 3), (3, 5))), "there may be an entry at the end of both"


def test_clock_goes_on_above_what_a_server_with_another_clock_lost(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    """The lost server's clock was two minutes ahead of that of the machine that rebuilds, 40 s after the loss."""
    here_ms = bench.clock.ms
    bench.register("f")
    bench.clock.ms = here_ms + 120_000
    bench.append("f", "f1")
    backup.take(bench)
    bench.clock.ms += 30_000
    lost = bench.append("f", "f2").last_lsn
    found = archive(backup.folder)
    for margin_ms, is_above in ((1_000, False), (120_000, True)):
        used = replace(means(ManualClock(here_ms + 70_000)), clock_margin_ms=margin_ms)
        made = rebuild(plan_of(found), found, tmp_path / str(margin_ms), means=used)
        assert made.clock_margin_ms == margin_ms
        assert any("leads" in warning for warning in made.warnings)
        assert any(line.startswith("clock: goes on at ") for line in made.lines())
        with opened(tmp_path / str(margin_ms)) as again:
            again.clock.ms = here_ms + 80_000
            again.register("f", instance="again")
            assert (again.append("f", "x").first_lsn > lost) == is_above


def test_clock_margin_is_an_option(bench: Bench, backup: Backup, tmp_path: Path) -> None:
    bench.register("f")
    bench.append("f", "f1")
    backup.take(bench)
    for words, wanted_ms in (((), 60_000), (("--clock-margin", "7"), 7_000)):
        before_ms = SystemClock().wall_ms()
        made = rebuilt_in_place(backup.folder, tmp_path / str(wanted_ms), None, *words)
        assert made.clock_margin_ms == wanted_ms
        assert before_ms + wanted_ms <= made.clock_ms <= SystemClock().wall_ms() + wanted_ms


def test_segments_of_a_rebuilt_journal_say_that_older_programs_cannot_read_them(
    bench: Bench, backup: Backup, tmp_path: Path
) -> None:
    def readable_from(data_dir: Path) -> list[int]:
        return [
            decode_start(path.read_bytes(), path.name).readable_from
            for path in data_dir.glob("journal/*.seg")
        ]

    bench.register("f")
    bench.append("f", "x" * SMALL_SEGMENT)
    backup.take(bench)
    bench.append("f", "y" * SMALL_SEGMENT)
    assert set(readable_from(tmp_path / "server")) == {1}
    rebuilt(backup.folder, tmp_path / "new")
    with opened(tmp_path / "new") as again:
        again.register("f", instance="again")
        for _ in range(2):
            again.append("f", "z" * SMALL_SEGMENT)
    found = readable_from(tmp_path / "new")
    assert found == [2] * len(found)
    assert len(found) >= 3


def appends_above(after: Lsn, folder: Path, *histories: tuple[int, str, str]) -> list[StoredAppend]:
    found = archive(folder)
    appends = Appends(Bounds(after, found.segments[-1].name.last, histories))
    made: list[StoredAppend] = []
    for one in found.segments:
        manifest = found.manifests[one.file]
        data = found.folder.read_segment(one.file, manifest)
        made += appends.of(
            Segment(data, where="x", name=one.name, manifest=manifest), data, manifest, one.file
        )
    appends.finish()
    return made


def test_append_that_begins_below_is_never_taken_for_a_whole_one(bench: Bench, backup: Backup) -> None:
    """Its rest may stand in the same segment, or begin the next one."""
    bench.register("f")
    bench.append("f", *"abcd")
    bench.append("f", "e")
    (first, *_) = backup.take(bench, sizes=(2,))
    history = (1, "f", first.feeds[0].incarnation)
    lsns = [one.lsn for one in stream(bench)]
    for inside in lsns[:3]:
        with pytest.raises(RestoreInexact, match="begins with entries that are left out"):
            appends_above(inside, backup.folder, history)
    assert [one.first_sequence_id for one in appends_above(lsns[3], backup.folder, history)] == [5]
    assert [one.count for one in appends_above(ZERO, backup.folder, history)] == [4, 1]


def test_append_that_another_history_leaves_open_is_not_another_feeds(bench: Bench, backup: Backup) -> None:
    bench.register("f")
    bench.register("g")
    bench.append("f", *"abcd")
    bench.append("g", "x")
    backup.take(bench, sizes=(2, 2))
    second = archive(backup.folder).segments[1]
    for path in backup.folder.glob(f"*{second.name.first}*"):
        path.unlink()
    last = archive(backup.folder).manifests[archive(backup.folder).segments[-1].file]
    (run,) = last.feeds
    found = appends_above(ZERO, backup.folder, (run.region_id, run.feed, run.incarnation))
    assert [(one.region_id, one.count) for one in found] == [(run.region_id, 1)]


def test_journal_that_takes_an_entry_for_dropped_is_not_finished(
    bench: Bench, backup: Backup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.register("f")
    bench.append("f", "a")
    backup.take(bench)

    def begun(selection: Selection, clock: int, new: Callable[[], str], target: Lsn) -> JournalState:
        state = begin_state(selection, clock, new, target)
        state.dropped_lsn = str(stream(bench)[0].lsn)
        return state

    monkeypatch.setattr("headrace.backup.rebuilding.rebuild.begin_state", begun)
    with pytest.raises(RestoreInexact, match="is not above"):
        rebuilt(backup.folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()
