"""Losses: what a part of them that was accepted changes, what is told of them, and an archive without its beginning."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.entries.lsn import Lsn
from headrace.errors import SegmentGap, TargetUnreachable
from headrace.wire.kwal_manifest import RegisteredFeed
from tests.archive_model import Append, History, write_archive
from tests.kwal import INCARNATION, manifest_of, write

LINE = History([Append(7, 10 * at, source_ms=1_000 + 10 * at) for at in range(6)])
LSNS = [one.lsn for one in LINE.entries]
SEGMENTS = LINE.segments([1, 2, 3, 4, 5])
"""A segment an entry."""


def between(after: int, before: int) -> list[tuple[Lsn, Lsn]]:
    return [(SEGMENTS[after].name.last, SEGMENTS[before].name.first)]


def test_of_a_gap_accepted_in_part_nothing_can_be_had(tmp_path: Path) -> None:
    write_archive(tmp_path, SEGMENTS, lost=[1, 2], accepted=between(0, 2))
    archive = Archive.read(str(tmp_path))
    assert [one.last for one in archive.windows] == [LSNS[0]]
    for asked in (Asked(to_lsn=LSNS[1]), Asked(to_time_ms=LSNS[1].committed_at_ms)):
        with pytest.raises(TargetUnreachable, match="it is in the gap"):
            plan(archive, asked)
    with pytest.raises(SegmentGap):
        plan(archive, Asked(to_lsn=LSNS[3]))


@pytest.mark.parametrize(
    "asked",
    [
        Asked(to_source_time_ms=1_020),
        Asked(to_time_ms=LSNS[2].committed_at_ms + 3),
        Asked(to_lsn=Lsn.from_int(int(LSNS[3]) - 1)),
    ],
)
def test_a_restore_that_ends_in_front_of_an_accepted_gap_tells_it(tmp_path: Path, asked: Asked) -> None:
    write_archive(tmp_path, SEGMENTS, lost=[1, 2], accepted=between(0, 3))
    found = plan(Archive.read(str(tmp_path)), asked)
    assert (found.target_lsn, found.gaps) == (LSNS[0], ())
    assert [one.after for one in found.gaps_beyond] == [LSNS[0]]
    assert [one["after-lsn"] for one in found.document()["gaps"]] == [str(LSNS[0])]
    assert any("is lost" in one and "a disk died" in one for one in found.warnings)


def test_a_moment_right_in_front_of_an_accepted_gap_is_not_touched_by_it(tmp_path: Path) -> None:
    write_archive(tmp_path, SEGMENTS, lost=[1], accepted=between(0, 2))
    archive = Archive.read(str(tmp_path))
    found = plan(archive, Asked(to_lsn=LSNS[0]))
    assert (found.gaps, found.gaps_beyond) == ((), ())
    with pytest.raises(TargetUnreachable, match="says nothing of what is in it"):
        plan(archive, Asked(to_time_ms=LSNS[1].committed_at_ms - 1))


@pytest.mark.parametrize("accepted", [False, True])
def test_a_millisecond_on_both_sides_of_a_gap(tmp_path: Path, accepted: bool) -> None:
    history = History([Append(7, 0), Append(7, 10), Append(7, 10), Append(7, 10), Append(7, 30)])
    segments, entries = history.segments([2, 3, 4]), history.entries
    gap = [(segments[0].name.last, segments[2].name.first)]
    write_archive(tmp_path, segments, lost=[1], accepted=gap if accepted else [])
    archive, asked = Archive.read(str(tmp_path)), Asked(to_time_ms=entries[1].lsn.committed_at_ms)
    if not accepted:
        with pytest.raises(SegmentGap):
            plan(archive, asked)
        return
    found = plan(archive, asked)
    assert (found.target_lsn, len(found.gaps)) == (entries[3].lsn, 1)


def test_the_millisecond_of_the_archives_end_is_as_good_as_that_end(tmp_path: Path) -> None:
    write_archive(tmp_path, SEGMENTS)
    found = plan(Archive.read(str(tmp_path)), Asked(to_time_ms=LSNS[5].committed_at_ms))
    assert found.target_lsn == LSNS[5]
    assert any("where the archive ends" in one for one in found.warnings)
    (tmp_path / SEGMENTS[5].name.manifest).unlink()
    for entry, refusal in ((4, TargetUnreachable), (5, TargetUnreachable)):
        with pytest.raises(refusal):
            plan(Archive.read(str(tmp_path)), Asked(to_time_ms=LSNS[entry].committed_at_ms))


def test_behind_each_base_that_stands_before_the_first_segment_is_a_gap(tmp_path: Path) -> None:
    bases = [LINE.entries[:1], LINE.entries[:3]]
    write_archive(tmp_path, SEGMENTS, lost=[0, 1, 2], bases=bases)
    archive = Archive.read(str(tmp_path))
    (gap,) = archive.chain.gaps()
    assert (gap.after, gap.before) == (LSNS[0], LSNS[2])
    assert [one.first for one in archive.windows] == [LSNS[0], LSNS[2]]
    write_archive(tmp_path / "more", SEGMENTS, lost=[0, 1, 2, 3], bases=bases)
    gaps = Archive.read(str(tmp_path / "more")).chain.gaps()
    assert [(one.after, one.before) for one in gaps] == [
        (LSNS[0], LSNS[2]),
        (LSNS[2], Lsn.from_int(int(LSNS[3]) + 1)),
    ]


def registered(region: int, incarnation: str, first: int, following: int) -> RegisteredFeed:
    return RegisteredFeed(
        feed=f"feed {region}",
        region_id=region,
        tenant_id="acme",
        mode="owned",
        owner="",
        epoch=1,
        next_sequence_id=following,
        incarnation=incarnation,
        first_sequence_id=first,
    )


@pytest.mark.parametrize("others", [(), (registered(7, "another", 0, 1),)])
def test_a_segment_that_names_a_predecessor_is_never_the_beginning(
    tmp_path: Path, others: tuple[RegisteredFeed, ...]
) -> None:
    history = History([Append(7, 0), Append(7, 10), Append(8, 20), Append(8, 30)])
    lost, segment = history.segments([2])
    registry = (*others, registered(8, INCARNATION, 1, 3))
    manifest = msgspec.structs.replace(manifest_of(segment, before=lost), registry=registry)
    write(tmp_path, segment, manifest)
    assert Archive.read(str(tmp_path)).windows == []
    write(tmp_path, segment, msgspec.structs.replace(manifest, predecessor=None))
    assert [one.last for one in Archive.read(str(tmp_path)).windows] == [segment.name.last]


def test_a_segment_that_has_not_its_size_is_a_gap_that_is_told(tmp_path: Path) -> None:
    write_archive(tmp_path, SEGMENTS)
    path = tmp_path / str(SEGMENTS[1].name)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1])
    archive = Archive.read(str(tmp_path))
    assert [(one.first, one.last) for one in archive.windows] == [(LSNS[0], LSNS[0])]
    assert archive.damaged == [f"{path} has {size - 1} bytes; its manifest says {size}"]
    with pytest.raises(SegmentGap, match=f"{path.name} has no manifest that can be used"):
        plan(archive, Asked(to_lsn=LSNS[4]))
    found = plan(archive, Asked(to_lsn=LSNS[0]))
    assert any(f"{path} has {size - 1} bytes" in one for one in found.warnings)
