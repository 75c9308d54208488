"""A feed's archive has all of a range of sequence ids, or says what it lacks; damaged folders are named."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec
import pytest

from headrace.archive.files.folder import Folder
from headrace.entries.entry import Change
from headrace.errors import (
    ArchiveUnavailable,
    InvalidRequest,
    SegmentCorrupt,
    SequenceNotAvailable,
    SetupMissing,
)
from headrace.pipeline.wal.archive import read_part, segments_of
from headrace.wire.kwal import Sealed
from tests.kwal import INCARNATION, TS, bytes_of, manifest_of, numbered, sealed, stamped, write, write_folder

FEED = "vmapi::vm"


def ids(folder: Path, first: int, last: int, feed: str = FEED, incarnation: str = INCARNATION) -> list[int]:
    """The sequence ids of a range, as they are read."""
    found: list[int] = []
    for part in segments_of(str(folder), feed, incarnation, first, last):
        for batch in read_part(part, ("value", "sequence_id")):
            assert batch.schema.names == ["value", "sequence_id"]
            found += batch.column("sequence_id").to_pylist()
    return found


def lacking(folder: Path, first: int, last: int, incarnation: str = INCARNATION) -> str:
    with pytest.raises(SequenceNotAvailable) as caught:
        segments_of(str(folder), FEED, incarnation, first, last)
    return caught.value.detail


def story() -> list[Sealed]:
    """Three segments of two feeds: entries 1 to 60 of each."""
    other = [
        stamped([Change(b"{}")] * 10, first, ts=TS + first + 1, region=9, feed="orders")
        for first in range(1, 60, 10)
    ]
    own = [numbered(first, 10) for first in range(1, 60, 10)]
    return [sealed([own[at], other[at], own[at + 1], other[at + 1]]) for at in (0, 2, 4)]


def test_a_range_is_read_through_manifests(tmp_path: Path) -> None:
    write_folder(tmp_path, story())
    assert ids(tmp_path, 1, 60) == list(range(1, 61))
    assert ids(tmp_path, 18, 43) == list(range(18, 44))
    assert ids(tmp_path, 20, 20, feed="orders") == [20]
    assert len(segments_of(str(tmp_path), FEED, INCARNATION, 21, 40)) == 1
    assert f"lacks the entries 61 to 70 of {FEED}" in lacking(tmp_path, 55, 70)
    assert "lacks the entries 1 to 60" in lacking(tmp_path, 1, 60, "another-life")


def test_any_address_that_fsspec_knows_will_do(tmp_path: Path) -> None:
    made = tmp_path / "a [1] *"
    write_folder(made, story())
    store = fsspec.filesystem("memory")
    try:
        for path in made.iterdir():
            store.pipe_file(f"/bucket/wal/{path.name}", path.read_bytes())
        for url in (str(made), f"file://{made}", "memory://bucket/wal", "memory://bucket/wal/"):
            parts = segments_of(url, FEED, INCARNATION, 1, 60)
            assert [len(list(read_part(part, ("sequence_id",)))) for part in parts] == [1, 1, 1]
        with pytest.raises(SequenceNotAvailable, match="memory://"):
            segments_of("memory://bucket/wal", FEED, INCARNATION, 1, 99)
    finally:
        store.rm("/bucket", recursive=True)


def test_a_missing_segment_is_named_by_its_entries(tmp_path: Path) -> None:
    first, _, third = story()
    write_folder(tmp_path, [first, third])
    assert "lacks the entries 21 to 40" in lacking(tmp_path, 15, 60)
    assert ids(tmp_path, 41, 60) == list(range(41, 61))


def test_a_segment_without_a_manifest_counts_between_two_that_vouch_for_it(tmp_path: Path) -> None:
    first, second, third = story()
    write(tmp_path, first, manifest_of(first))
    write(tmp_path, second, None)
    assert "lacks the entries 21 to 40" in lacking(tmp_path, 1, 40), "it may be of another history"
    write(tmp_path, third, manifest_of(third, near=60))
    for _ in range(2):
        assert ids(tmp_path, 1, 60) == list(range(1, 61))
        assert ids(tmp_path, 1, 60, feed="orders") == list(range(1, 61))


def test_a_segment_is_read_whole_wherever_it_is(tmp_path: Path) -> None:
    for text in (b"", b"kwal" * 100_000):
        (tmp_path / "a.bin").write_bytes(text)
        fsspec.filesystem("memory").pipe_file("/wal/a.bin", text)
        for url in (str(tmp_path), "memory://wal"):
            assert Folder(url).read_segment("a.bin") == text
            with pytest.raises(ArchiveUnavailable, match=r"b\.bin is not there"):
                Folder(url).read_segment("b.bin")


def test_what_is_wrong_with_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ArchiveUnavailable, match="is not there") as missing:
        Folder(str(tmp_path / "none")).segments()
    assert (missing.value.exit_code, missing.value.retryable) == (4, True)
    with pytest.raises(InvalidRequest, match="holds no KWAL segment"):
        Folder(str(tmp_path)).segments()
    with pytest.raises(InvalidRequest, match="nosuch"):
        Folder("nosuch://x/y")
    with pytest.raises(SetupMissing, match="gs:"):
        Folder("gs://bucket/wal?secret=1")
    segments = story()
    write_folder(tmp_path, segments)
    data = bytearray(bytes_of(segments[1]))
    data[300] ^= 1
    (tmp_path / str(segments[1].name)).write_bytes(data)
    with pytest.raises(SegmentCorrupt, match=f"{tmp_path}/{segments[1].name}: bit 0 of byte 300"):
        ids(tmp_path, 1, 60)
    shutil.copy(tmp_path / segments[1].name.manifest, tmp_path / segments[0].name.manifest)
    with pytest.raises(SegmentCorrupt, match=f"is the manifest of {segments[1].name}"):
        Folder(str(tmp_path)).manifests(Folder(str(tmp_path)).segments())
    (tmp_path / segments[0].name.manifest).write_bytes(b"{}")
    with pytest.raises(SegmentCorrupt, match="is no manifest"):
        Folder(str(tmp_path)).manifests(Folder(str(tmp_path)).segments())
    (tmp_path / "kdb-wal-x.bin").touch()
    with pytest.raises(InvalidRequest, match=r"kdb-wal-x\.bin"):
        Folder(str(tmp_path)).segments()
