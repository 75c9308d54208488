"""Windows and gaps: what joins, what does not, and what an accepted gap changes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import (
    SegmentGap,
    TargetUnreachable,
)
from headrace.wire.kwal_manifest import RegisteredFeed
from tests.archive_model import FEEDS, T0, Append, History, write_archive, write_base
from tests.archive_model import SMALL as HISTORY
from tests.archive_model import SMALL_CUTS as CUTS
from tests.archive_model import SMALL_LSNS as LSNS
from tests.kwal import INCARNATION, TS, Stamped, manifest_of, sealed, stamped, write, write_folder


def test_a_gap_is_named_and_only_what_lies_before_it_can_be_had(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), lost=[1])
    archive = Archive.read(str(tmp_path))
    assert plan(archive, Asked(to_lsn=LSNS[0])).target_lsn == LSNS[0]
    with pytest.raises(TargetUnreachable, match="it is in the gap"):
        plan(archive, Asked(to_lsn=LSNS[4]))
    for asked in (Asked(to_lsn=LSNS[9]), Asked(to_time_ms=T0 + 9), Asked(to_time_ms=T0 + 20)):
        with pytest.raises(SegmentGap, match=f"above lsn={LSNS[2]} .*; reachable: lsn={LSNS[0]}") as refused:
            plan(archive, asked)
        assert refused.value.members["nearest-before"] == str(LSNS[0])


def test_an_accepted_gap_is_gone_over_and_stays_visible(tmp_path: Path) -> None:
    segments = HISTORY.segments(CUTS)
    write_archive(tmp_path, segments, lost=[1])
    (gap,) = Archive.read(str(tmp_path)).chain.gaps()
    write_archive(tmp_path, segments, lost=[1], accepted=[(gap.after, gap.before)])
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=LSNS[9]))
    assert (found.target_lsn, [one.after for one in found.gaps]) == (LSNS[9], [LSNS[2]])
    assert any("a disk died" in one for one in found.warnings)
    assert found.document()["gaps"][0]["acknowledged"][0]["by"] == "ops@host"
    with pytest.raises(TargetUnreachable, match="was accepted, but says nothing of what is in it"):
        plan(archive, Asked(to_lsn=LSNS[4]))


def test_what_is_lost_later_is_not_accepted_by_a_record_that_goes_beyond_its_loss(tmp_path: Path) -> None:
    history = History([Append(7, at) for at in range(6)])
    lsns = [one.lsn for one in history.entries]
    segments = history.segments([1, 2, 3, 4, 5])
    # Written when the archive ended with the first segment; the agent then went on with the third.
    beyond = (lsns[0], Lsn(lsns[5].global_ts + (60_000 << 18), 7, 9))
    write_archive(tmp_path / "once", segments, lost=[1], accepted=[beyond])
    assert plan(Archive.read(str(tmp_path / "once")), Asked(to_lsn=lsns[5])).target_lsn == lsns[5]
    write_archive(tmp_path / "twice", segments, lost=[1, 4], accepted=[beyond])
    found = Archive.read(str(tmp_path / "twice"))
    assert [bool(one.accepted) for one in found.chain.gaps()] == [True, False]
    with pytest.raises(SegmentGap):
        plan(found, Asked(to_lsn=lsns[5]))


def test_a_base_behind_a_gap_heals_what_comes_after(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), lost=[1], bases=[HISTORY.entries[:7]])
    archive = Archive.read(str(tmp_path))
    assert [(one.first, one.last) for one in archive.windows] == [(LSNS[0], LSNS[2]), (LSNS[6], LSNS[10])]
    assert plan(archive, Asked(to_lsn=LSNS[9])).after_lsn == LSNS[6]


def test_a_segment_without_a_manifest_is_a_gap(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), untold=[1])
    with pytest.raises(SegmentGap, match="has no manifest"):
        plan(Archive.read(str(tmp_path)), Asked(to_lsn=LSNS[9]))


def test_a_file_in_the_place_of_another_is_a_gap(tmp_path: Path) -> None:
    segments = HISTORY.segments(CUTS)
    write_archive(tmp_path, segments)
    other = stamped([Change(b'{"n":2}', key=b"k")] * 3, 2, ts=LSNS[3].global_ts)
    write_folder(tmp_path / "other", [sealed([other])])
    manifest = (tmp_path / "other" / segments[1].name.manifest).read_bytes()
    (tmp_path / segments[1].name.manifest).write_bytes(manifest)
    with pytest.raises(SegmentGap, match="is not the file that"):
        plan(Archive.read(str(tmp_path)), Asked(to_lsn=LSNS[6]))


def test_sequence_ids_that_do_not_join_are_a_gap(tmp_path: Path) -> None:
    first = sealed([stamped([Change(b"{}", key=b"k")], 1, ts=TS)])
    second = sealed([stamped([Change(b"{}", key=b"k")], 5, ts=TS + 1)])
    write_folder(tmp_path, [first, second])
    archive = Archive.read(str(tmp_path))
    with pytest.raises(SegmentGap, match="has its entry 1, and then 5"):
        plan(archive, Asked(to_lsn=second.name.last))


def test_an_archive_that_begins_in_the_middle_of_the_log_needs_a_base(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), lost=[0])
    archive = Archive.read(str(tmp_path))
    assert archive.windows == []
    with pytest.raises(TargetUnreachable, match="it has no base snapshot"):
        plan(archive, Asked(to_lsn=LSNS[9]))
    write_base(tmp_path, HISTORY.entries[:1])
    with pytest.raises(SegmentGap):
        plan(Archive.read(str(tmp_path)), Asked(to_lsn=LSNS[9]))
    write_base(tmp_path, HISTORY.entries[:7])
    assert plan(Archive.read(str(tmp_path)), Asked(to_lsn=LSNS[9])).target_lsn == LSNS[9]


@pytest.mark.parametrize(
    ("first_id", "registered", "reachable"),
    [
        (1, {7: (1, 2)}, True),
        (63, {7: (63, 64)}, True),
        (63, {7: (1, 64)}, False),
        (1, {7: (1, 2), 8: (1, 5)}, False),
    ],
)
def test_the_registry_tells_that_an_archive_has_every_feed_from_its_first_entry(
    tmp_path: Path, first_id: int, registered: dict[int, tuple[int, int]], reachable: bool
) -> None:
    segment = sealed([stamped([Change(b"{}", key=b"k")], first_id, ts=TS)])
    registry = tuple(
        RegisteredFeed(
            feed=FEEDS[region],
            region_id=region,
            tenant_id="acme",
            mode="owned",
            owner="",
            epoch=1,
            next_sequence_id=following,
            first_sequence_id=first,
        )
        for region, (first, following) in registered.items()
    )
    manifest = manifest_of(segment, walked_from=Lsn(TS - 1, 0, 0), near=first_id)
    write(tmp_path, segment, msgspec.structs.replace(manifest, registry=registry))
    assert [one.last for one in Archive.read(str(tmp_path)).windows] == (
        [segment.name.last] if reachable else []
    )


@pytest.mark.parametrize("together", [False, True])
def test_a_history_that_ended_leaves_nothing_open(tmp_path: Path, together: bool) -> None:
    body, sizes, first, _ = stamped([Change(b"{}", key=b"k")] * 2, 1, ts=TS)
    cut_off = Stamped(body[: sizes[0]], sizes[:1], first, first)
    made_anew = stamped([Change(b"{}", key=b"k")], 1, ts=TS + 1)
    segments = [sealed([cut_off, made_anew])] if together else [sealed([cut_off]), sealed([made_anew])]
    for before, segment in zip([None, *segments], segments, strict=False):
        manifest = manifest_of(segment, before=before)
        feeds = tuple(
            msgspec.structs.replace(one, incarnation="another")
            if one.first_lsn == str(made_anew.first)
            else one
            for one in manifest.feeds
        )
        write(tmp_path, segment, msgspec.structs.replace(manifest, feeds=feeds))
    archive = Archive.read(str(tmp_path))
    assert plan(archive, Asked(to_lsn=first)).target_lsn == first
    found = plan(archive, Asked(to_lsn=made_anew.last))
    assert found.target_lsn == made_anew.last
    assert [(one.incarnation, one.current) for one in found.feeds] == [
        (INCARNATION, False),
        ("another", True),
    ]
