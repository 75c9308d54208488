"""A base snapshot that a release wrote is read, and the page's example is what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.archive.files.bases import check_files, read_bases
from headrace.archive.files.folder import Folder
from headrace.errors import BaseCorrupt, FormatTooNew
from headrace.pipeline.bases.reading import BaseFileTask, read_file
from headrace.wire.base_manifest import decode_base
from tests.golden.bases import LAST, ROWS, example, make_base, manifest_of
from tests.golden.make import kept

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "base-snapshot.md"


@pytest.mark.parametrize("path", kept("base"), ids=lambda path: path.parent.name)
def test_every_generation_is_read(path: Path) -> None:
    folder = Folder(str(path))
    (base,) = read_bases(folder).sound
    assert (base.lsn, base.manifest) == (LAST, manifest_of(base.manifest.files))
    check_files(folder, base)
    rows = []
    for one in base.manifest.files:
        task = BaseFileTask(f"{base.path}/{one.path}", one.size, one.crc, one.rows)
        rows += [row for batch in read_file(folder, task) for row in batch.to_pylist()]
    told = ("sequence_id", "lsn", "op", "key", "value", "control", "table", "tx_last", "incarnation")
    assert [[row[name] for name in told] for row in rows] == [[row[name] for name in told] for row in ROWS]


def test_today_a_base_has_the_same_manifest(tmp_path: Path) -> None:
    make_base(tmp_path)
    (base,) = read_bases(Folder(str(tmp_path))).sound
    assert base.manifest == manifest_of(base.manifest.files)


def test_the_pages_example_is_what_is_written() -> None:
    (shown,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert example().decode() == shown


def test_every_byte_of_a_manifest_counts() -> None:
    data = example()
    for place in range(0, len(data), 3):
        damaged = bytes([*data[:place], data[place] ^ 0x20, *data[place + 1 :]])
        with pytest.raises((BaseCorrupt, FormatTooNew), match="here"):
            decode_base(damaged, "here")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"sequence-id": 68', '"sequence-id": 61', "ends before it begins"),
        ('"entries": 3', '"entries": 4', "are not the files' rows"),
        ('"bucket": 3', '"bucket": 4', "a bucket that there is none of"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_none(old: str, new: str, problem: str) -> None:
    data = example().replace(old.encode(), new.encode())
    with pytest.raises(BaseCorrupt, match=problem):
        decode_base(data, "here")
