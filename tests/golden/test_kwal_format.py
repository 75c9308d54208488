"""Segments and manifests that a release wrote are read exactly, and written the same today."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Range, check_gaps
from headrace.archive.rights.lease import Holder, encode_holder
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import FeedRange, Manifest
from tests.golden.kwal import CHANGES, FIRST, OWNER, make_kwal, segments
from tests.golden.make import kept
from tests.kwal import INCARNATION, bytes_of


def _feeds(manifest: Manifest, generation: int) -> tuple[FeedRange, ...]:
    """Before the third generation nothing said whether a feed ends whole, before the fourth which transactions are open."""
    if generation >= 4:
        return manifest.feeds
    untold = tuple(replace(one, left_open=None, continued=None) for one in manifest.feeds)
    return untold if generation >= 3 else tuple(replace(one, ends_whole=None) for one in untold)


@pytest.mark.parametrize("path", kept("kwal"), ids=lambda path: path.parent.name)
def test_every_generation_is_read(path: Path) -> None:
    folder = Folder(str(path))
    found = folder.segments()
    manifests = folder.manifests(found)
    generation = int(path.parent.name)
    assert list(manifests.values()) == [
        replace(manifest, written_as=generation, feeds=_feeds(manifest, generation))
        for _, manifest in segments()
    ]
    check_gaps(found, None, Range(), manifests)
    rows = []
    for one in found:
        segment = Segment(folder.read(one.file), where=one.file, name=one.name, manifest=manifests[one.file])
        for batch in segment.batches(("feed", "sequence_id", "incarnation", "value")):
            rows += [tuple(row.values()) for row in batch.to_pylist()]
    vm = [("vmapi::vm", FIRST + at, INCARNATION, CHANGES[at % 4].value) for at in range(8)]
    new = [("vmapi::vm", FIRST + 1 + at, "second-life", CHANGES[at].value) for at in range(2)]
    assert rows == [*vm[:4], ("orders", 1, INCARNATION, b"x" * 300), *vm[4:], *new]


@pytest.mark.parametrize("path", kept("kwal-encrypted"), ids=lambda path: path.parent.name)
def test_every_generation_of_encryption_is_read(path: Path) -> None:
    folder = Folder(str(path), str(path / "identity.txt"))
    (found,) = folder.segments()
    (manifest,) = folder.manifests([found]).values()
    segment, told = segments()[0]
    assert folder.read_segment(found.file) == bytes_of(segment)
    assert manifest.encryption is not None
    told = replace(told, feeds=_feeds(told, manifest.written_as))
    assert replace(manifest, encryption=None, readable_from=1, written_as=told.written_as) == told


@pytest.mark.parametrize("path", kept("owner.json"), ids=lambda path: path.parent.name)
def test_every_generation_of_owner_is_read(path: Path) -> None:
    assert msgspec.json.decode(path.read_bytes(), type=Holder) == OWNER
    assert encode_holder(OWNER) == path.read_bytes(), "as it is written today"


def test_today_is_written_as_the_newest_generation(tmp_path: Path) -> None:
    make_kwal(tmp_path)
    newest = kept("kwal")[-1]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in newest.iterdir())
    for path in newest.iterdir():
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name
