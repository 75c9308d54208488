"""Bases that can't be used, by what stands in their folder: none is, the next older one serves, and somebody says so."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.cli.wal_list import document
from headrace.errors import BaseCorrupt, TargetUnreachable
from headrace.wire.base_manifest import BaseFile, base_folder
from tests.archive_model import SMALL as HISTORY
from tests.archive_model import SMALL_CUTS as CUTS
from tests.archive_model import SMALL_LSNS as LSNS
from tests.archive_model import write_archive, write_base

PART = BaseFile(path="part-0.parquet", size=10, crc=1, rows=0, bucket=0)


def test_a_damaged_base_is_passed_over_and_named(tmp_path: Path) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), bases=[HISTORY.entries[:1]])
    (tmp_path / base_folder(LSNS[0]) / "manifest.json").write_bytes(b"{}")
    found = plan(Archive.read(str(tmp_path)), Asked(to_lsn=LSNS[6]))
    assert found.base is None
    assert any("a base snapshot can't be used" in one for one in found.warnings)


@pytest.mark.parametrize("data", [None, b"too short"])
def test_a_base_whose_files_are_not_all_there_is_passed_over_and_named(
    tmp_path: Path, data: bytes | None
) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS))
    for entries in (1, 7):
        write_base(tmp_path, HISTORY.entries[:entries], files=(PART,))
        (tmp_path / base_folder(LSNS[entries - 1]) / PART.path).write_bytes(bytes(PART.size))
    newest = tmp_path / base_folder(LSNS[6])
    whole = Archive.read(str(tmp_path))
    assert plan(whole, Asked(to_lsn=LSNS[9])).after_lsn == LSNS[6]
    if data is None:
        (newest / PART.path).unlink()
    else:
        (newest / PART.path).write_bytes(data)
    damaged = Archive.read(str(tmp_path))
    found = plan(damaged, Asked(to_lsn=LSNS[9]))
    assert (found.after_lsn, found.target_lsn) == (LSNS[0], LSNS[9])
    (warning,) = found.warnings
    assert f"{newest.name}/{PART.path}" in warning
    assert [one["path"] for one in document(damaged)["unusable-bases"]] == [newest.name]
    assert PART.path in document(damaged)["unusable-bases"][0]["problem"]
    for named in (newest.name, str(newest)):
        with pytest.raises(BaseCorrupt, match=PART.path):
            plan(damaged, Asked(to_lsn=LSNS[9]), named)


@pytest.mark.parametrize("lost", [[0], range(len(CUTS) + 1)])
def test_where_no_base_is_left_the_refusal_names_windows_and_what_is_wrong(
    tmp_path: Path, lost: Sequence[int]
) -> None:
    write_archive(tmp_path, HISTORY.segments(CUTS), lost=lost)
    write_base(tmp_path, HISTORY.entries[:7], files=(PART,))
    archive = Archive.read(str(tmp_path))
    with pytest.raises(
        TargetUnreachable, match=rf"nothing can be rebuilt.*{PART.path} is not there"
    ) as refused:
        plan(archive, Asked(to_lsn=LSNS[6]))
    assert refused.value.members["windows"] == []
