"""Where an archive without a base begins for ``snapshot create --from-publishers``, and a segment that can't say it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.cli.app import main
from headrace.entries.lsn import Lsn
from headrace.errors import SegmentGap
from headrace.pipeline.bases.making import planned
from headrace.pipeline.bases.publishers import middle_of
from headrace.wire.kwal import Sealed
from tests.kwal import TS, manifest_of, numbered, sealed, write

WALKED_FROM = Lsn(TS, 7, 3)
"""Where the agent's stream began: the archive has nothing of what was before."""


@pytest.fixture
def segments(tmp_path: Path) -> list[Sealed]:
    """Three segments that join, of a feed whose first three entries were never archived."""
    found = [sealed([numbered(first, 2)]) for first in (4, 6, 8)]
    for before, one in zip([None, *found], found, strict=False):
        walked_from = WALKED_FROM if before is None else None
        write(tmp_path, one, manifest_of(one, before=before, near=4, walked_from=walked_from))
    return found


def test_it_begins_where_the_stream_did(tmp_path: Path, segments: list[Sealed]) -> None:
    (base,) = middle_of(Archive.read(str(tmp_path))).bases
    assert (base.lsn, base.manifest.files, base.manifest.feeds) == (WALKED_FROM, (), ())
    _, found = planned(str(tmp_path), "", None, "auto", middle=True)
    assert found.target_lsn == segments[-1].name.last
    assert [one.file for one in found.segments] == [str(one.name) for one in segments]


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_first_segment_without_a_manifest_is_refused(
    tmp_path: Path, segments: list[Sealed], is_damaged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    first = tmp_path / segments[0].name.manifest
    if is_damaged:
        first.write_bytes(b"{")
    else:
        first.unlink()
    before = sorted(one.name for one in tmp_path.iterdir())
    with pytest.raises(SegmentGap, match=f"{segments[0].name} has no manifest"):
        middle_of(Archive.read(str(tmp_path)))
    # The command says so before it starts Spark or asks a server, and writes nothing.
    words = ["snapshot", "create", "--wal-dir", str(tmp_path), "--from-publishers", "--json"]
    assert main([*words, "--server", "http://127.0.0.1:1"]) == 3
    told = json.loads(capsys.readouterr().out)
    assert (told["code"], str(segments[0].name) in told["detail"]) == ("segment-gap", True)
    assert sorted(one.name for one in tmp_path.iterdir()) == before


def test_behind_a_later_segment_without_a_manifest_it_begins_anew(
    tmp_path: Path, segments: list[Sealed]
) -> None:
    (tmp_path / segments[1].name.manifest).unlink()
    (base,) = middle_of(Archive.read(str(tmp_path))).bases
    assert segments[1].name.last <= base.lsn < segments[2].name.first
    _, found = planned(str(tmp_path), "", None, "auto", middle=True)
    assert [one.file for one in found.segments] == [str(segments[2].name)]
