"""Plans around a transaction whose producer was away between its halves, for longer than the log waits for an end."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.links import LOOK_SEGMENTS_MAX
from headrace.archive.moments.planning import plan
from headrace.archive.moments.reachable import whole_below
from headrace.archive.moments.target import Asked
from headrace.entries.lsn import Lsn
from headrace.errors import TargetUnreachable
from tests.archive_model import ALL, Append, History, write_archive

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
LAST = Lsn.from_int((1 << 128) - 1)


def halves(pause_ms: int, between: int, *, last: bool = True, goes_on: bool = True) -> History:
    """Half an UPDATE right behind entry 0, the other half so much later; ``between``: appends of other feeds meanwhile.

    ``last``: the other half ends it. ``goes_on``: one comes right behind that, and one twenty minutes later.
    """
    other = [Append(7 + at % 2 * 2, 10 + at * pause_ms // (between + 1)) for at in range(between)]
    return History(
        [
            Append(7, 0),
            Append(8, 1, (("A", False), ("A", False))),
            *other,
            Append(8, 1 + pause_ms, (("A", False), ("A", last))),
            *([Append(7, 2 + pause_ms), Append(8, 20 * MINUTE + pause_ms)] if goes_on else []),
        ]
    )


def kept(archive: Archive, lsn: Lsn) -> tuple[Lsn, str]:
    """Return where a restore to there ends, and why not there."""
    found = plan(archive, Asked(to_lsn=lsn))
    return found.target_lsn, found.moved_why


@pytest.mark.parametrize(
    "cuts", [[], [2], [1, 2], [1, 2, 14], range(1, 17), [5, 6, 7]], ids=lambda cuts: f"cuts-{list(cuts)}"
)
@pytest.mark.parametrize(
    ("pause_ms", "old"), [(11 * MINUTE, 0), (11 * MINUTE, 3), (11 * MINUTE, ALL), (40 * DAY, 0)]
)
def test_half_of_it_is_kept_nowhere_between(tmp_path: Path, cuts: list[int], pause_ms: int, old: int) -> None:
    history = halves(pause_ms, 12)
    write_archive(tmp_path, history.segments(cuts), old=old)
    archive, entries = Archive.read(str(tmp_path)), history.entries
    for one in entries[2:15]:
        assert kept(archive, one.lsn) == (entries[0].lsn, "inside the transaction A of shop::orders")
        by_time = plan(archive, Asked(to_time_ms=one.lsn.committed_at_ms))
        assert by_time.target_lsn == entries[0].lsn
        assert by_time.nearest_after == entries[16].lsn
    for one in entries[16:]:
        assert kept(archive, one.lsn) == (one.lsn, "")
    late = plan(archive, Asked(to_lsn=entries[14].lsn))
    assert not any("counts as ended" in warning for warning in late.warnings), late.warnings
    assert any("--exact-entry" in warning for warning in late.warnings), late.warnings
    torn = plan(archive, Asked(to_lsn=entries[14].lsn, exact_entry=True))
    assert torn.target_lsn == entries[14].lsn
    assert any("not what the source ever had" in warning for warning in torn.warnings), torn.warnings


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 14]])
def test_with_nothing_whole_before_it_there_is_no_plan(tmp_path: Path, cuts: list[int]) -> None:
    appends = [Append(8, 0, (("A", False),)), *(Append(7, at * MINUTE) for at in range(1, 15))]
    history = History([*appends, Append(8, 15 * MINUTE, (("A", True),))])
    write_archive(tmp_path, history.segments(cuts))
    with pytest.raises(
        TargetUnreachable, match="inside the transaction A of shop::orders, and nothing whole"
    ):
        plan(Archive.read(str(tmp_path)), Asked(to_lsn=history.entries[14].lsn))


@pytest.mark.parametrize("cuts", [[], range(1, 17)], ids=["one", "many"])
def test_the_newest_whole_moment_is_not_inside_of_one_that_went_on(tmp_path: Path, cuts: list[int]) -> None:
    """As ``snapshot create`` takes it without a moment."""
    history = halves(11 * MINUTE, 12, last=False, goes_on=False)
    write_archive(tmp_path, history.segments(cuts))
    archive = Archive.read(str(tmp_path))
    assert whole_below(archive, LAST) == history.entries[0].lsn


def test_the_rest_that_never_comes_is_waited_for_as_before(tmp_path: Path) -> None:
    history = halves(11 * MINUTE, 12, last=False)
    write_archive(tmp_path, history.segments(range(1, 17)))
    archive, entries = Archive.read(str(tmp_path)), history.entries
    assert kept(archive, entries[14].lsn)[0] == entries[0].lsn
    found = plan(archive, Asked(to_lsn=entries[-1].lsn))
    assert found.target_lsn == entries[-1].lsn
    assert whole_below(archive, LAST) == entries[-1].lsn


def test_only_what_it_takes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = halves(3 * DAY, 200)
    write_archive(tmp_path, history.segments(range(1, 204)))
    archive, read = Archive.read(str(tmp_path)), set[str]()
    real = Folder.read_segment

    def counted(folder: Folder, file: str) -> bytes | memoryview:
        read.add(file)
        return real(folder, file)

    monkeypatch.setattr(Folder, "read_segment", counted)
    assert kept(archive, history.entries[100].lsn)[0] == history.entries[0].lsn
    # That of the moment, those with the halves, and those next to them.
    assert len(read) <= 6, read


@pytest.mark.parametrize("between", [LOOK_SEGMENTS_MAX - 1, LOOK_SEGMENTS_MAX])
def test_manifests_that_do_not_tell_are_looked_behind_so_far(tmp_path: Path, between: int) -> None:
    history = halves(30 * MINUTE, between)
    write_archive(tmp_path, history.segments(range(1, between + 4)), old=ALL)
    archive, entries = Archive.read(str(tmp_path)), history.entries
    middle = entries[3 + between // 2]
    is_found = between < LOOK_SEGMENTS_MAX
    assert kept(archive, middle.lsn)[0] == (entries[0].lsn if is_found else middle.lsn)


def test_and_for_no_more_than_a_day(tmp_path: Path) -> None:
    for name, pause_ms in (("day", DAY - MINUTE), ("days", 2 * DAY)):
        history = halves(pause_ms, 3)
        write_archive(tmp_path / name, history.segments(range(1, 6)), old=ALL)
        middle = history.entries[4].lsn
        whole = kept(Archive.read(str(tmp_path / name)), middle)[0]
        assert whole == (history.entries[0].lsn if name == "day" else middle)


# -- a base that was made meanwhile ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cuts",
    [[14], [2, 13], [2, 6, 7], [2, 5], [2], [1, 2, 9, 13], range(1, 17)],
    ids=lambda cuts: f"cuts-{list(cuts)}",
)
@pytest.mark.parametrize("older", [True, False])
def test_a_base_inside_of_it_serves_only_what_is_behind(tmp_path: Path, cuts: list[int], older: bool) -> None:
    history = halves(11 * MINUTE, 12)
    entries = history.entries
    bases = [entries[:1], entries[:8]] if older else [entries[:8]]
    write_archive(tmp_path, history.segments(cuts), bases=bases)
    archive = Archive.read(str(tmp_path))
    for one in entries[7:15]:
        assert kept(archive, one.lsn) == (entries[0].lsn, "inside the transaction A of shop::orders"), one
        found = plan(archive, Asked(to_lsn=one.lsn))
        assert (found.base is not None) == older
        assert (found.nearest_before, found.nearest_after) == (None, entries[16].lsn)
        assert whole_below(archive, one.lsn) == entries[0].lsn
        assert plan(archive, Asked(to_lsn=one.lsn, exact_entry=True)).target_lsn == one.lsn
    behind = plan(archive, Asked(to_lsn=entries[-1].lsn))
    assert (behind.target_lsn, behind.after_lsn) == (entries[-1].lsn, entries[7].lsn)
    assert behind.warnings == ()


def test_without_an_older_one_there_is_no_plan_until_it_ends(tmp_path: Path) -> None:
    history = halves(11 * MINUTE, 12)
    entries = history.entries
    write_archive(tmp_path, history.segments([2, 5, 14]), lost=[0], bases=[entries[:8]])
    archive = Archive.read(str(tmp_path))
    for one in entries[7:15]:
        with pytest.raises(TargetUnreachable, match="inside the transaction A of shop::orders") as found:
            plan(archive, Asked(to_lsn=one.lsn))
        assert found.value.members["nearest-after"] == str(entries[16].lsn)
    assert plan(archive, Asked(to_lsn=entries[16].lsn)).target_lsn == entries[16].lsn


def test_a_base_behind_a_last_entry_is_whole_though_the_name_comes_again(tmp_path: Path) -> None:
    tx = (("A", False),)
    history = History(
        [
            Append(8, 0, tx),
            Append(7, 1),
            Append(8, 2, (("A", True),)),
            Append(7, 3),
            Append(8, 4, tx),
            Append(7, 5),
            Append(8, 6, (("A", True),)),
            Append(7, 20 * MINUTE),
        ]
    )
    write_archive(tmp_path, history.segments([2, 6]), bases=[history.entries[:4]])
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=history.entries[5].lsn))
    assert (found.target_lsn, found.after_lsn) == (history.entries[3].lsn, history.entries[3].lsn)
