"""Which folders of an archive are bases, which should be one and are not, and what is missing of one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.files.bases import check_files, files_of, place_of, read_base, read_bases
from headrace.archive.files.folder import Folder
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt
from headrace.pipeline.bases.making import known_base
from headrace.wire.base_manifest import base_folder
from tests.archive_model import Append, History, write_archive
from tests.golden.bases import LAST, PATHS, make_base

NAME = base_folder(LAST)


def test_an_archive_that_is_not_there_has_no_bases(tmp_path: Path) -> None:
    assert read_bases(Folder(str(tmp_path / "none"))) == ([], [])


def test_folders_that_are_no_base(tmp_path: Path) -> None:
    make_base(tmp_path)
    other = base_folder(Lsn(1, 2, 3))
    (tmp_path / other).mkdir()
    (tmp_path / "kdb-base-x").mkdir()
    (tmp_path / base_folder(Lsn(1, 2, 4))).mkdir()
    data = (tmp_path / NAME / "manifest.json").read_bytes()
    (tmp_path / base_folder(Lsn(1, 2, 4)) / "manifest.json").write_bytes(data)
    folder = Folder(str(tmp_path))
    found = read_bases(folder)
    assert [one.path for one in found.sound] == [NAME]
    assert [(one.path, one.finished) for one in found.unsound] == [
        (other, False),
        (base_folder(Lsn(1, 2, 4)), True),
    ]
    with pytest.raises(BaseCorrupt, match="never finished"):
        read_base(folder, other)
    with pytest.raises(BaseCorrupt, match="is the manifest of the base at"):
        known_base(folder, Lsn(1, 2, 4))
    assert known_base(folder, Lsn(1, 2, 3)) is None
    assert known_base(folder, LAST) == found.sound[0]


def test_a_damaged_manifest(tmp_path: Path) -> None:
    make_base(tmp_path)
    file = tmp_path / NAME / "manifest.json"
    file.write_bytes(file.read_bytes().replace(b'"rows": 1', b'"rows": 2'))
    folder = Folder(str(tmp_path))
    (found,) = read_bases(folder).unsound
    assert found.finished
    assert NAME in found.problem


def test_files_that_are_gone_or_of_another_size(tmp_path: Path) -> None:
    make_base(tmp_path)
    folder = Folder(str(tmp_path))
    base = read_base(folder, NAME)
    check_files(folder, base)
    assert set(files_of(folder, NAME)) == {"manifest.json", *PATHS}
    file = tmp_path / NAME / PATHS[1]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(BaseCorrupt, match=f"{PATHS[1]} has .* bytes, not"):
        check_files(folder, base)
    file.unlink()
    with pytest.raises(BaseCorrupt, match=f"{PATHS[1]} is not there"):
        check_files(folder, base)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("/backups/wal/a", ("/backups/wal", "a")),
        ("/backups/wal/a/", ("/backups/wal", "a")),
        ("s3://bucket/wal/a", ("s3://bucket/wal", "a")),
        ("s3://bucket/a", ("s3://bucket", "a")),
        ("/a", ("/", "a")),
        ("a", (".", "a")),
    ],
)
def test_where_a_base_stands_by_its_address(address: str, place: tuple[str, str]) -> None:
    assert place_of(address) == place


def test_a_base_right_below_the_root_is_named_so(tmp_path: Path) -> None:
    """It is looked for there, not in the present folder."""
    history = History([Append(7, 0)])
    write_archive(tmp_path, history.segments([]))
    at = Asked(to_lsn=history.entries[0].lsn)
    with pytest.raises(BaseCorrupt, match=r"^/kdb-base-of-nobody has no manifest"):
        plan(Archive.read(str(tmp_path)), at, "/kdb-base-of-nobody")
