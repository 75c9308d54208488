"""Segments beside others of the same entries: which are the archive's own, and when nobody can tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.archive.files.folder import Folder
from headrace.archive.files.overlaps import Parted, part, spare_beside
from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.backup.deposits import Deposits
from headrace.backup.verifying.archive_check import verify
from headrace.errors import SegmentsOverlap
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_manifest import Manifest
from tests.archive_model import Append, History
from tests.kwal import manifest_of, sealed, write

LOG = History([Append(7, at) for at in range(12)])


def cut(first: int, last: int) -> Sealed:
    """The segment of the appends first … last, numbered from 1."""
    return sealed(LOG.appends[first - 1 : last])


FIRST = cut(1, 4)
NEAR, NEXT, FAR = cut(5, 8), cut(9, 12), cut(5, 10)
"""Two that follow the first one in a row, and one that another agent cut elsewhere."""


def stored(segment: Sealed, *, told: bool = True) -> Stored:
    return Stored(segment.name, str(segment.name), segment.size, told)


MANIFESTS = {
    str(one.name): manifest_of(one, before=before)
    for one, before in ((FIRST, None), (NEAR, FIRST), (NEXT, NEAR), (FAR, FIRST))
}


def parted(
    *segments: Stored, manifests: dict[str, Manifest] | None = None
) -> tuple[list[Stored], list[Stored]]:
    known = MANIFESTS if manifests is None else manifests

    def read(told: Sequence[Stored]) -> dict[str, Manifest]:
        return {one.file: known[one.file] for one in told if one.file in known}

    return part(segments, read)


ALL = [stored(one) for one in (FIRST, NEAR, NEXT)]
LATE = stored(FAR, told=False)


def test_what_overlaps_nothing_is_not_looked_at() -> None:
    assert parted(*reversed(ALL), manifests={}) == (ALL, [])
    assert parted() == ([], [])


def test_one_without_a_manifest_is_spare_beside_those_that_have_one() -> None:
    assert parted(*ALL, LATE) == (ALL, [LATE])
    assert parted(*ALL[:2], LATE) == (ALL[:2], [LATE]), "nothing of it was acked, nor what it has beyond"
    assert parted(*ALL[1:], LATE) == (ALL[1:], [LATE]), "what was before is pruned"
    assert parted(ALL[2], LATE) == (ALL[2:], [LATE])


def test_of_two_without_a_manifest_the_longer_one_stays() -> None:
    short = stored(NEAR, told=False)
    assert parted(ALL[0], LATE, short) == ([ALL[0], LATE], [short])
    with pytest.raises(SegmentsOverlap):
        parted(ALL[0], LATE, stored(NEXT, told=False))


def test_of_two_branches_the_one_that_reaches_farthest_stays() -> None:
    branch = stored(FAR)
    assert parted(*ALL, branch) == (ALL, [branch])
    assert parted(*ALL[:2], branch) == ([ALL[0], branch], [ALL[1]])


def test_what_no_branch_has_is_never_passed_over() -> None:
    """Two logs in one folder; a hole that a stray segment may fill; a manifest that can't be read."""
    other = MANIFESTS | {str(FAR.name): manifest_of(FAR)}
    with pytest.raises(SegmentsOverlap):
        parted(*ALL, stored(FAR), manifests=other)
    for manifests in (
        MANIFESTS | {str(NEXT.name): replace(MANIFESTS[str(NEXT.name)], predecessor=None)},
        {file: one for file, one in MANIFESTS.items() if file != str(NEXT.name)},
    ):
        with pytest.raises(SegmentsOverlap) as found:
            parted(*ALL, LATE, manifests=manifests)
        assert LATE.file in found.value.advice
    began = MANIFESTS | {str(NEXT.name): manifest_of(NEXT, walked_from=NEAR.name.last)}
    with pytest.raises(SegmentsOverlap):
        parted(ALL[2], LATE, manifests=began)


def test_what_branches_off_goes_with_all_that_it_touches() -> None:
    found = Parted(ALL, [LATE])
    assert spare_beside(found, ALL[:1]) == []
    assert spare_beside(found, ALL[1:2]) == [LATE]


def test_an_archive_with_a_spare_segment_is_one_like_any_other(tmp_path: Path) -> None:
    for one, before in ((FIRST, None), (NEAR, FIRST), (NEXT, NEAR)):
        write(tmp_path, one, manifest_of(one, before=before))
    write(tmp_path, FAR, None)
    assert Folder(str(tmp_path)).segments() == ALL
    assert Archive.read(str(tmp_path)).chain.gaps() == []
    found = verify(str(tmp_path))
    assert found.findings == []
    assert [note for note in found.notes if note.startswith(LATE.file)]
    with Deposits.open(str(tmp_path)) as deposits:
        assert deposits.end == NEXT.name.last
    assert (tmp_path / LATE.file).exists()
