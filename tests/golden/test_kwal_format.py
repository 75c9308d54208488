"""Segments and manifests that a release wrote are read exactly, and written the same today."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.pipeline.wal.folder import Folder
from headrace.pipeline.wal.plan import Range, check_gaps
from headrace.wire.kwal_columns import Segment
from tests.golden.kwal import CHANGES, FIRST, make_kwal, segments
from tests.golden.make import kept
from tests.kwal import INCARNATION


@pytest.mark.parametrize("path", kept("kwal"), ids=lambda path: path.parent.name)
def test_every_generation_is_read(path: Path) -> None:
    folder = Folder(str(path))
    found = folder.segments()
    manifests = folder.manifests(found)
    assert list(manifests.values()) == [manifest for _, manifest in segments()]
    check_gaps(found, None, Range(), manifests)
    rows = []
    for one in found:
        segment = Segment(folder.read(one.file), where=one.file, name=one.name, manifest=manifests[one.file])
        for batch in segment.batches(("feed", "sequence_id", "incarnation", "value")):
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    vm = [("vmapi::vm", FIRST + at, INCARNATION, CHANGES[at % 4].value) for at in range(8)]
    new = [("vmapi::vm", FIRST + 1 + at, "second-life", CHANGES[at].value) for at in range(2)]
    assert rows == [*vm[:4], ("orders", 1, INCARNATION, b"x" * 300), *vm[4:], *new]


def test_today_is_written_as_the_newest_generation(tmp_path: Path) -> None:
    make_kwal(tmp_path)
    newest = kept("kwal")[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in newest.iterdir())
    for path in newest.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
