"""Moments as a source tells them: source times and commitTs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.errors import (
    InvalidRequest,
    TargetUnreachable,
)
from tests.archive_model import SMALL as HISTORY
from tests.archive_model import SMALL_CUTS as CUTS
from tests.archive_model import SMALL_LSNS as LSNS
from tests.archive_model import T0, Append, History, write_archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    write_archive(tmp_path, HISTORY.segments(CUTS))
    return Archive.read(str(tmp_path))


TIMED = History(
    [
        Append(7, 0),  # 0
        Append(8, 1, source_ms=T0 - 9_000),  # 1
        Append(8, 2, source_ms=T0 - 4_000),  # 2
        Append(7, 3),  # 3
        Append(8, 4, source_ms=T0 - 6_000),  # 4: the source's clock was put back
        Append(8, 5, source_ms=T0 + 4),  # 5
    ]
)


def _timed(tmp_path: Path, **more: object) -> Archive:
    write_archive(tmp_path, TIMED.segments([1, 2, 4]), **more)  # type: ignore[arg-type]  # names of its own
    return Archive.read(str(tmp_path))


@pytest.mark.parametrize(("source_ms", "kept"), [(-9_001, 0), (-9_000, 1), (-4_001, 1), (-4_000, 4), (4, 5)])
def test_a_source_time_is_cut_before_the_first_later_entry(tmp_path: Path, source_ms: int, kept: int) -> None:
    found = plan(_timed(tmp_path), Asked(to_source_time_ms=T0 + source_ms))
    assert found.target_lsn == TIMED.entries[kept].lsn
    back = any("the source's clock was put back" in one for one in found.warnings)
    assert back == (source_ms == -4_001)
    assert any("stands for that moment" in one for one in found.warnings) == (source_ms == 4)


def test_a_source_time_beyond_the_archive_or_of_a_feed_without_any_is_refused(tmp_path: Path) -> None:
    archive = _timed(tmp_path)
    with pytest.raises(TargetUnreachable):
        plan(archive, Asked(to_source_time_ms=T0 + 5))
    for feed in ("vmapi::vm", "none"):
        with pytest.raises(InvalidRequest, match=feed):
            plan(archive, Asked(to_source_time_ms=T0, feed=feed))


def test_a_source_time_that_a_base_may_already_be_beyond_is_refused(tmp_path: Path) -> None:
    archive = _timed(tmp_path, lost=[0, 1], bases=[TIMED.entries[:2]])
    with pytest.raises(TargetUnreachable, match="the first entry of the feed that it has"):
        plan(archive, Asked(to_source_time_ms=T0 - 5_000))
    assert plan(archive, Asked(to_source_time_ms=T0 - 4_000)).target_lsn == TIMED.entries[4].lsn


def test_a_publisher_that_was_behind_is_warned_of(tmp_path: Path) -> None:
    archive = _timed(tmp_path)
    late, fresh = (
        plan(archive, Asked(to_lsn=TIMED.entries[4].lsn)),
        plan(archive, Asked(to_lsn=TIMED.entries[5].lsn)),
    )
    assert any("the publisher was 6.0 s behind" in one for one in late.warnings)
    assert (late.log_time_ms, late.source_time_ms) == (T0 + 4, T0 - 6_000)
    assert not any("behind" in one for one in fresh.warnings)


@pytest.mark.parametrize(
    ("commit_ts", "kept"), [(1, 0), (10, 1), (11, 1), (19, 1), (20, 3), (29, 3), (30, 4), (39, 4), (40, 5)]
)
def test_a_commit_ts_is_cut_before_the_first_entry_beyond(tmp_path: Path, commit_ts: int, kept: int) -> None:
    values = [
        b'{"type":"BOOTSTRAP","commitTs":0}',
        b"no message",
        *(b'{"commitTs":%d}' % one for one in (10, 20, 30, 40)),
    ]
    history = History(
        [
            Append(9, 0, values=(values[0],)),
            Append(9, 1, values=(values[2],)),
            Append(9, 2, values=(values[3],)),
            Append(9, 3, values=(values[1],)),
            Append(9, 4, values=(values[4],)),
            Append(9, 5, values=(values[5],)),
        ]
    )
    write_archive(tmp_path, history.segments([1, 2, 3, 4]))
    archive = Archive.read(str(tmp_path))
    assert plan(archive, Asked(to_commit_ts=commit_ts)).target_lsn == history.entries[kept].lsn
    with pytest.raises(TargetUnreachable):
        plan(archive, Asked(to_commit_ts=41))


@pytest.mark.parametrize("cuts", [[], [3], [3, 5], [1, 2, 3, 4, 5]])
def test_a_commit_ts_that_goes_back_is_cut_before_the_first_entry_beyond(
    tmp_path: Path, cuts: list[int]
) -> None:
    values = [b'{"type":"INSERT","commitTs":%d}' % one for one in (10, 20, 99, 30, 40, 60)]
    history = History([Append(7, at, values=(value,)) for at, value in enumerate(values)])
    write_archive(tmp_path, history.segments(cuts))
    found = plan(Archive.read(str(tmp_path)), Asked(to_commit_ts=50))
    assert found.target_lsn == history.entries[1].lsn


def test_a_commit_ts_of_a_feed_that_has_none_is_refused(archive: Archive) -> None:
    with pytest.raises(InvalidRequest, match="no messages of the Simple Protocol"):
        plan(archive, Asked(to_commit_ts=10, feed="shop"))
    with pytest.raises(InvalidRequest, match="name one"):
        plan(archive, Asked(to_commit_ts=10))


def test_one_moment_is_named(archive: Archive) -> None:
    for asked in (Asked(), Asked(to_lsn=LSNS[0], to_time_ms=T0)):
        with pytest.raises(InvalidRequest):
            plan(archive, asked)
