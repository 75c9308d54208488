"""The plan of a restore: where it ends, what it uses, what it says; one case after the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.settling import prepare, put_segment
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan, plan
from headrace.archive.moments.target import Asked
from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn
from headrace.errors import (
    BaseCorrupt,
    HeadraceError,
    IdentityNeeded,
    SegmentCorrupt,
    TargetInsideAppend,
    TargetUnreachable,
)
from headrace.wire.base_manifest import base_folder
from tests.archive_model import ALL, FEEDS, T0, Append, History, write_archive, write_base
from tests.archive_model import SMALL as HISTORY
from tests.archive_model import SMALL_CUTS as CUTS
from tests.archive_model import SMALL_LSNS as LSNS
from tests.identities import age_identity
from tests.kwal import TS, Stamped, manifest_of, sealed, stamped, write, write_folder


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    write_archive(tmp_path, HISTORY.segments(CUTS))
    return Archive.read(str(tmp_path))


@pytest.mark.parametrize(
    ("asked", "kept", "why"),
    [
        (0, 0, ""),
        (2, 0, "inside the transaction A of shop::orders"),
        (5, 0, "inside the transaction A of shop::orders"),
        (6, 6, ""),
        (7, 6, "inside the transaction B of vmapi::vm"),
        (8, 6, "inside the transaction B of vmapi::vm"),
        (9, 9, ""),
        (10, 9, "inside the transaction C of shop::orders"),
    ],
)
def test_an_lsn_moves_back_to_whole_transactions_of_all_feeds(
    archive: Archive, asked: int, kept: int, why: str
) -> None:
    found = plan(archive, Asked(to_lsn=LSNS[asked]))
    assert found.target_lsn == LSNS[kept]
    assert (found.moved_from, found.moved_why) == ((LSNS[asked], why) if why else (None, ""))
    exact = plan(archive, Asked(to_lsn=LSNS[asked], exact_entry=True))
    assert (exact.target_lsn, exact.moved_from) == (LSNS[asked], None)
    assert bool(why) == any("is not what the source ever had" in one for one in exact.warnings)


@pytest.mark.parametrize(("asked", "before", "last"), [(1, 0, 2), (3, 2, 5), (4, 2, 5)])
def test_an_lsn_inside_an_append_is_refused_naming_both_ends(
    archive: Archive, asked: int, before: int, last: int
) -> None:
    with pytest.raises(TargetInsideAppend) as refused:
        plan(archive, Asked(to_lsn=LSNS[asked]))
    assert refused.value.exit_code == 3
    assert refused.value.members["before-lsn"] == str(LSNS[before])
    assert refused.value.members["last-lsn"] == str(LSNS[last])
    assert plan(archive, Asked(to_lsn=LSNS[asked], exact_entry=True)).target_lsn == LSNS[asked]


def test_an_append_that_goes_on_behind_the_archives_end_is_never_torn(tmp_path: Path) -> None:
    body, sizes, first, last = stamped([Change(b"{}", key=b"k")] * 3, 1, ts=TS)
    head = stamped([Change(b"{}", key=b"k")], 1, ts=TS - 1, region=8, feed="shop::orders")
    cut = sum(sizes[:2])
    torn = Stamped(body[:cut], sizes[:2], first, last._replace(raft_index=2))
    write_folder(tmp_path, [sealed([head, torn])])
    archive = Archive.read(str(tmp_path))
    with pytest.raises(TargetInsideAppend, match="behind the archive's end"):
        plan(archive, Asked(to_lsn=last._replace(raft_index=2)))
    found = plan(archive, Asked(to_time_ms=T0))
    assert (found.target_lsn, found.moved_why) == (head.last, "inside an append of vmapi::vm")


def test_equal_times_go_with_the_last_entry_of_that_millisecond(archive: Archive) -> None:
    assert plan(archive, Asked(to_time_ms=T0)).moved_from == LSNS[5]
    assert plan(archive, Asked(to_time_ms=T0 + 4)).moved_from == LSNS[5]
    assert plan(archive, Asked(to_time_ms=T0 + 5)).target_lsn == LSNS[6]
    assert plan(archive, Asked(to_time_ms=T0 + 12)).moved_from == LSNS[8]


@pytest.mark.parametrize(("ms", "side"), [(-1, "before"), (21, "behind")])
def test_a_time_outside_of_the_archive_is_unreachable(archive: Archive, ms: int, side: str) -> None:
    with pytest.raises(
        TargetUnreachable, match=f"it is {side} all that it has; reachable: lsn={LSNS[0]}"
    ) as refused:
        plan(archive, Asked(to_time_ms=T0 + ms))
    assert refused.value.exit_code == 4
    members = refused.value.members
    assert members["windows"][0]["last-lsn"] == str(LSNS[10])
    assert members.get("nearest-after") == (str(LSNS[0]) if side == "before" else None)
    assert members.get("nearest-before") == (str(LSNS[9]) if side == "behind" else None)


def test_the_end_of_the_archive_stands_for_its_millisecond_and_says_so(archive: Archive) -> None:
    found = plan(archive, Asked(to_time_ms=T0 + 20))
    assert found.target_lsn == LSNS[9]
    assert any("entries of the same millisecond may follow" in one for one in found.warnings)


def test_a_clock_that_was_put_back_leaves_no_entry_out_of_order(tmp_path: Path) -> None:
    history = History([Append(7, 5), Append(7, 0), Append(7, 1), Append(7, 9)])
    write_archive(tmp_path, history.segments([2]))
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_time_ms=T0 + 5))
    assert found.target_lsn == history.entries[2].lsn, "the log's clock went on from the fifth millisecond"
    with pytest.raises(TargetUnreachable):
        plan(archive, Asked(to_time_ms=T0 + 4))


def test_a_batch_is_one_entry(tmp_path: Path) -> None:
    batch = stamped([Change(b"", key=b"k", op=Op.BATCH)], 1, ts=TS)
    write_folder(tmp_path, [sealed([batch])])
    assert plan(Archive.read(str(tmp_path)), Asked(to_lsn=batch.last)).target_lsn == batch.last


# -- transactions without an end -----------------------------------------------------------------------------------------

DAY = 86_400_000
MINUTE = 60_000


def _planned(folder: Path, history: History, cuts: list[int], at: int, *, old: int = 0) -> RestorePlan:
    write_archive(folder, history.segments(cuts), old=old)
    return plan(Archive.read(str(folder)), Asked(to_lsn=history.entries[at].lsn))


@pytest.mark.parametrize("cuts", [[], [2], [1, 2, 3]])
@pytest.mark.parametrize("between", [("B", True), ("", False)])
def test_a_transaction_is_open_whoever_writes_between(
    tmp_path: Path, cuts: list[int], between: tuple[str, bool]
) -> None:
    history = History(
        [
            Append(7, 0),
            Append(7, 5, (("A", False),)),
            Append(7, 10, (between,)),
            Append(7, 20, (("A", True),)),
        ]
    )
    found = _planned(tmp_path, history, cuts, 2)
    assert (found.target_lsn, found.moved_why) == (
        history.entries[0].lsn,
        "inside the transaction A of vmapi::vm",
    )
    archive = Archive.read(str(tmp_path))
    assert plan(archive, Asked(to_lsn=history.entries[3].lsn)).target_lsn == history.entries[3].lsn


@pytest.mark.parametrize("old", [0, ALL])
def test_a_transaction_that_never_ends_holds_the_target_back_for_ten_minutes(
    tmp_path: Path, *, old: int
) -> None:
    history = History(
        [
            Append(7, 0),
            Append(9, 1, (("X", False),)),
            *(Append(7, minute * MINUTE) for minute in range(1, 12)),
        ]
    )
    archive = tmp_path / "short"
    write_archive(archive, history.segments(range(1, 12))[:-1], old=old)
    late = plan(Archive.read(str(archive)), Asked(to_lsn=history.entries[10].lsn))
    assert late.target_lsn == history.entries[0].lsn
    assert any("9.0 minutes before the moment asked for" in one for one in late.warnings), late.warnings
    assert any("--exact-entry" in one for one in late.warnings)
    # Ten minutes of the log later nothing more of it came: it counts as ended, wherever the target is.
    found = _planned(tmp_path / "long", history, list(range(1, 12)), 12, old=old)
    assert (found.target_lsn, found.moved_from) == (history.entries[12].lsn, None)
    (warning,) = found.warnings
    assert "of shop, the transaction X" in warning
    assert "counts as ended" in warning
    early = plan(Archive.read(str(tmp_path / "long")), Asked(to_lsn=history.entries[2].lsn))
    assert early.target_lsn == history.entries[2].lsn
    assert any("counts as ended" in one for one in early.warnings)


def test_an_idle_feed_does_not_hold_the_others_back(tmp_path: Path) -> None:
    history = History([Append(9, 1, (("X", False),)), *(Append(7, day * DAY) for day in range(1, 31))])
    found = _planned(tmp_path, history, list(range(1, 31)), 30)
    assert (found.target_lsn, found.moved_from) == (history.entries[30].lsn, None)
    assert ["counts as ended" in one for one in found.warnings] == [True]


def test_transactions_that_all_have_no_end_are_told_of_once(tmp_path: Path) -> None:
    history = History([Append(9, at, ((f"T{at}", False),)) for at in range(20)] + [Append(7, 11 * MINUTE)])
    found = _planned(tmp_path, history, [10], 19)
    assert found.target_lsn == history.entries[19].lsn
    (warning,) = found.warnings
    assert "20 transactions, the newest T19," in warning


def test_a_history_that_ends_takes_its_transactions_with_it_and_none_before(tmp_path: Path) -> None:
    def one(first_id: int, ms: int, tx: str, last: bool = False, *, region: int = 7) -> Stamped:
        change = Change(b"{}", key=b"k", source_tx=tx.encode(), tx_last=last)
        return stamped([change], first_id, ts=TS + (ms << 18), region=region, feed=FEEDS[region])

    appends = [one(1, 0, ""), one(2, 1, "A"), one(1, 2, "", region=8), one(3, 3, "A", True), one(4, 4, "B")]
    segments = [sealed([append]) for append in [*appends, one(1, 5, "")]]
    for at, segment in enumerate(segments):
        lives = {7: "another"} if at == len(segments) - 1 else {}
        before = segments[at - 1] if at else None
        write(tmp_path, segment, manifest_of(segment, before=before, incarnations=lives))
    archive = Archive.read(str(tmp_path))
    kept = [plan(archive, Asked(to_lsn=segment.name.last)).target_lsn for segment in segments]
    assert [segments.index(one) for lsn in kept for one in segments if one.name.last == lsn] == [
        0,
        0,
        0,
        3,
        4,
        5,
    ]


@pytest.mark.parametrize("late", [1000, DAY])
@pytest.mark.parametrize("ended", [True, False])
def test_a_plan_reads_no_segment_for_a_feed_that_ended_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ended: bool, late: int
) -> None:
    idle = range(100, 120)
    for region in idle:
        monkeypatch.setitem(FEEDS, region, f"idle::f{region}")
    first = [Append(region, region - 99, (("X", ended),)) for region in idle]
    history = History([*first, *(Append(7, late + at) for at in range(5))])
    write_archive(tmp_path, history.segments(range(1, 25)))
    archive = Archive.read(str(tmp_path))
    read = []
    real = Folder.read_segment

    def counted(folder: Folder, file: str) -> bytes | memoryview:
        read.append(file)
        return real(folder, file)

    monkeypatch.setattr(Folder, "read_segment", counted)
    found = plan(archive, Asked(to_lsn=history.entries[-2].lsn, exact_entry=True))
    assert found.target_lsn == history.entries[-2].lsn
    assert (len(set(read)) <= 3) == ended


def test_the_feeds_of_a_plan_end_at_the_target(archive: Archive) -> None:
    found = plan(archive, Asked(to_lsn=LSNS[6]))
    assert [(one.feed, one.first_sequence_id, one.last_sequence_id, one.lsn) for one in found.feeds] == [
        ("shop::orders", 1, 3, LSNS[6]),
        ("vmapi::vm", 1, 4, LSNS[5]),
    ]
    assert [one.name.last for one in found.segments] == [LSNS[2], LSNS[5], LSNS[7]]
    assert (found.nearest_before, found.nearest_after) == (LSNS[0], LSNS[9])


# -- bases -------------------------------------------------------------------------------------------------------------


def test_the_newest_base_below_the_target_is_used_and_what_it_has_is_not_read(tmp_path: Path) -> None:
    bases = [HISTORY.entries[:1], HISTORY.entries[:7]]
    write_archive(tmp_path, HISTORY.segments(CUTS), bases=bases)
    (tmp_path / str(HISTORY.segments(CUTS)[0].name)).write_bytes(b"damaged")
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=LSNS[9]))
    assert found.base is not None
    assert (found.base.lsn, found.base_url) == (LSNS[6], str(tmp_path / base_folder(LSNS[6])))
    assert [one.name.last for one in found.segments] == [LSNS[7], LSNS[10]]
    assert [one.last_sequence_id for one in found.feeds] == [1, 3, 6]
    # One that would be moved back to the base itself needs no segment.
    assert plan(archive, Asked(to_lsn=LSNS[7])).segments == ()


def test_a_base_may_be_named_and_stand_elsewhere(tmp_path: Path) -> None:
    write_archive(tmp_path / "wal", HISTORY.segments(CUTS)[1:], bases=[HISTORY.entries[:7]])
    write_base(tmp_path / "bases", HISTORY.entries[:10])
    archive = Archive.read(str(tmp_path / "wal"))
    named = str(tmp_path / "bases" / base_folder(LSNS[9]))
    assert plan(archive, Asked(to_lsn=LSNS[9]), named).base_url == named
    assert plan(archive, Asked(to_lsn=LSNS[9]), base_folder(LSNS[6])).after_lsn == LSNS[6]
    with pytest.raises(TargetUnreachable):
        plan(archive, Asked(to_lsn=LSNS[6]), named)
    with pytest.raises(BaseCorrupt):
        plan(archive, Asked(to_lsn=LSNS[9]), str(tmp_path / "wal"))


def test_a_base_of_another_log_is_not_used(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS))
    other = [one._replace(sequence_id=one.sequence_id + 40, lsn=one.lsn) for one in HISTORY.entries[:6]]
    shifted = [one._replace(lsn=Lsn(one.lsn.global_ts, one.lsn.region_id, one.sequence_id)) for one in other]
    write_base(tmp_path, shifted)
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=LSNS[6]))
    assert found.base is None
    assert any("is not used: " in one for one in found.warnings)
    with pytest.raises(BaseCorrupt, match="another log"):
        plan(archive, Asked(to_lsn=LSNS[6]), base_folder(shifted[-1].lsn))


def test_an_append_right_behind_a_base_ends_there(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), bases=[HISTORY.entries[:1]])
    with pytest.raises(TargetInsideAppend) as refused:
        plan(Archive.read(str(tmp_path)), Asked(to_lsn=LSNS[1]))
    assert refused.value.members["before-lsn"] == str(LSNS[0])


# -- damage ------------------------------------------------------------------------------------------------------------


def _damage(folder: Path, segment: int) -> None:
    path = folder / str(HISTORY.segments(CUTS)[segment].name)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_damaged_segment_at_the_target_is_an_error_and_one_behind_it_is_not(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS))
    _damage(tmp_path, 3)
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=LSNS[6]))
    assert (found.target_lsn, found.nearest_after) == (LSNS[6], None)
    assert any("which points are next to the target is not known" in one for one in found.warnings)
    with pytest.raises(SegmentCorrupt, match="byte"):
        plan(archive, Asked(to_lsn=LSNS[9]))


def test_an_encrypted_archive_is_listed_without_a_key_and_planned_with_one(tmp_path: Path) -> None:
    recipient = age_identity(tmp_path / "key")
    folder = Folder(str(tmp_path / "wal"))
    (tmp_path / "wal").mkdir()
    before = None
    for segment in HISTORY.segments(CUTS):
        files = prepare(segment, manifest_of(segment, before=before), [recipient])
        put_segment(folder, files, lambda: None)
        before = segment
    closed = Archive.read(str(tmp_path / "wal"))
    assert [(one.first, one.last) for one in closed.windows] == [(LSNS[0], LSNS[10])]
    with pytest.raises(IdentityNeeded):
        plan(closed, Asked(to_lsn=LSNS[6]))
    opened = Archive.read(str(tmp_path / "wal"), str(tmp_path / "key"))
    assert plan(opened, Asked(to_lsn=LSNS[6])).target_lsn == LSNS[6]


def test_an_archive_of_bases_alone_can_rebuild_those(tmp_path: Path) -> None:
    write_base(tmp_path, HISTORY.entries[:7])
    archive = Archive.read(str(tmp_path))
    assert [(one.first, one.last) for one in archive.windows] == [(LSNS[6], LSNS[6])]
    found = plan(archive, Asked(to_lsn=LSNS[6]))
    assert isinstance(found, RestorePlan)
    assert (found.target_lsn, found.segments) == (LSNS[6], ())
    with pytest.raises(HeadraceError):
        Archive.read(str(tmp_path / base_folder(LSNS[6])))
