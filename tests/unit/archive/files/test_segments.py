"""Which segments hold a range; a missing one is an error that names both ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Range, Stored, check_gaps, grouped, ordered, touched
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import SegmentGap, SegmentsOverlap
from headrace.wire.kwal import Sealed, SegmentName
from headrace.wire.kwal_manifest import Manifest
from tests.kwal import TS, manifest_of, numbered, sealed, write_folder

SEGMENTS = [sealed([numbered(first, 10)]) for first in (1, 11, 21)]
"""Three that follow one another. The entries of each share a timestamp: TS + 1, TS + 11, TS + 21."""


def stored(segment: Sealed) -> Stored:
    return Stored(segment.name, str(segment.name), segment.size, True)


MANIFESTS = {
    str(segment.name): manifest_of(segment, before=before)
    for before, segment in zip([None, *SEGMENTS[:2]], SEGMENTS, strict=True)
}


def at(number: int) -> Lsn:
    """The LSN of an entry."""
    first = (number - 1) // 10 * 10 + 1
    return Lsn(TS + first, 7, number)


def check(segments: list[Stored], wanted: Range, manifests: dict[str, Manifest] = MANIFESTS) -> list[int]:
    """Look for gaps; return which segments hold the range."""
    held, behind = touched(ordered(segments), wanted)
    check_gaps(held, behind, wanted, manifests)
    return [list(map(stored, SEGMENTS)).index(one) for one in held]


ALL = [stored(segment) for segment in SEGMENTS]


def test_segments_of_a_range_in_order() -> None:
    assert check([ALL[2], ALL[0], ALL[1]], Range()) == [0, 1, 2]
    assert check(ALL, Range(at(5), at(30))) == [0, 1, 2]
    assert check(ALL, Range(at(11), at(20))) == [1]
    assert check(ALL, Range(at(10), at(11))) == [0, 1]
    assert check(ALL, Range(Lsn(5, 0, 0), at(3))) == [0], "the stream ran from the very beginning"
    between = Range(Lsn(TS + 15, 7, 0), Lsn(TS + 16, 7, 0))
    assert check(ALL, between) == [], "nothing was ever there, and the next segment says so"


def test_overlap_is_refused() -> None:
    inside = SegmentName(at(4), at(12))
    with pytest.raises(SegmentsOverlap, match=f"{SEGMENTS[0].name} and {inside}") as caught:
        ordered([*ALL, Stored(inside, str(inside), 1, False)])
    assert caught.value.exit_code == 3


def test_a_missing_segment_is_a_gap_with_both_ends() -> None:
    holed = [ALL[0], ALL[2]]
    with pytest.raises(SegmentGap, match=f"between lsn={at(10)} and lsn={at(21)}") as caught:
        check(holed, Range())
    assert str(SEGMENTS[1].name) in caught.value.detail, "it names the segment that is missing"
    assert caught.value.exit_code == 3
    assert check(holed, Range(at(22), None)) == [2], "a gap outside of the range does no harm"
    assert check(holed, Range(None, at(9))) == [0]
    with pytest.raises(SegmentGap):
        check(holed, Range(at(15), at(16)))
    with pytest.raises(SegmentGap, match=f"from lsn={at(15)} to lsn={at(20)}"):
        check(holed[1:], Range(at(15), None))


def test_the_ends_of_a_range_are_asked_for_too() -> None:
    with pytest.raises(SegmentGap, match=f"ends at lsn={at(30)}"):
        check(ALL, Range(None, Lsn(TS + 22, 0, 0)))
    with pytest.raises(SegmentGap, match="nothing of this range"):
        check(ALL, Range(Lsn(TS + 50, 0, 0), Lsn(TS + 60, 0, 0)))
    late = {**MANIFESTS, ALL[0].file: replace(MANIFESTS[ALL[0].file], walked_from=str(Lsn(TS - 5, 0, 0)))}
    with pytest.raises(SegmentGap, match=f"to lsn={Lsn(TS - 5, 0, 0)}"):
        check(ALL, Range(Lsn(TS - 9, 0, 0), at(3)), late)
    with pytest.raises(SegmentGap):
        check(ALL, Range(Lsn(TS - 5, 0, 0), at(3)), late)
    assert check(ALL, Range(Lsn(TS - 5, 0, 1), at(3)), late) == [0]
    assert check(ALL, Range(), late) == [0, 1, 2]


@pytest.mark.parametrize("what", ["no manifest", "walked from elsewhere", "another file", "the first one"])
def test_what_does_not_join_is_a_gap(what: str) -> None:
    file = ALL[1].file
    manifest = MANIFESTS[file]
    assert manifest.predecessor is not None
    wrong = {
        "walked from elsewhere": replace(manifest, walked_from=str(at(7))),
        "another file": replace(manifest, predecessor=replace(manifest.predecessor, crc=1)),
        "the first one": replace(manifest, predecessor=None, walked_from=str(ZERO)),
    }
    manifests = {**MANIFESTS, file: wrong[what]} if what in wrong else {ALL[0].file: MANIFESTS[ALL[0].file]}
    with pytest.raises(SegmentGap, match=file):
        check(ALL[:2], Range(), manifests)


def test_tasks_have_enough_to_do() -> None:
    assert [[one.size for one in group] for group in grouped([one._replace(size=30) for one in ALL], 60)] == [
        [30, 30],
        [30],
    ]
    assert len(grouped(ALL, 1)) == 3
    assert grouped([]) == []


def test_a_folder_may_hold_other_files(tmp_path: Path) -> None:
    write_folder(tmp_path, SEGMENTS)
    (tmp_path / f"{SEGMENTS[0].name}.tmp").write_bytes(b"half")
    (tmp_path / "lock").touch()
    folder = Folder(str(tmp_path))
    assert folder.segments() == ALL
    assert folder.manifests(ALL) == MANIFESTS
    assert folder.manifests(ALL[:1]) == {ALL[0].file: MANIFESTS[ALL[0].file]}
    assert folder.read(ALL[0].file)[:4] == b"KWAL"
