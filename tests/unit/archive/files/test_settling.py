"""A segment and its manifest are put in an order that can be cut anywhere: what is found then is finished or taken back."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.archive.files import settling
from headrace.archive.files.folder import Folder
from headrace.archive.files.settling import Settled, prepare, put_segment, settle
from headrace.archive.files.writing import put_new
from headrace.archive.rights.owner import LOCK, take
from headrace.errors import ArchiveConflict, ArchiveOwned, ArchiveUnavailable, SegmentCorrupt
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_manifest import encode_manifest
from tests.identities import age_identity
from tests.kwal import bytes_of, manifest_of, numbered, sealed

SEGMENT = sealed([numbered(1, 10)])
NAME = SEGMENT.name


def free() -> None:
    """Nobody else is there."""


class Lost:
    """Raises from the ``after``-th time on that it is asked."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise ArchiveOwned("another process has it")


@pytest.fixture(params=["plain", "encrypted"])
def recipients(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Whom the segments are encrypted to."""
    return [age_identity(tmp_path / "key")] if request.param == "encrypted" else []


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """An archive with nothing in it."""
    (tmp_path / "wal").mkdir()
    return Folder(str(tmp_path / "wal"), str(tmp_path / "key"))


def test_whatever_step_it_is_cut_at_the_next_start_settles_it(folder: Folder, recipients: list[str]) -> None:
    files = prepare(SEGMENT, manifest_of(SEGMENT), recipients)
    stands = []
    for after in range(3):
        with pytest.raises(ArchiveOwned):
            put_segment(folder, files, Lost(after))
        stands.append(set(folder.files()))
    assert stands == [set(), {NAME.pending}, {NAME.pending, files.manifest.file}]
    assert settle(folder) == [Settled(NAME, kept=True)]
    assert set(folder.files()) == {files.manifest.file, NAME.manifest}
    (found,) = folder.segments()
    assert folder.manifests([found]) == {found.file: files.manifest}
    assert folder.read_segment(found.file) == bytes_of(SEGMENT)
    assert settle(folder) == []


def test_what_was_only_announced_is_taken_back(folder: Folder, recipients: list[str]) -> None:
    with pytest.raises(ArchiveOwned):
        put_segment(folder, prepare(SEGMENT, manifest_of(SEGMENT), recipients), Lost(1))
    with take(folder):
        assert settle(folder) == [Settled(NAME, kept=False)]
        assert set(folder.files()) == {LOCK}
        # Encrypted anew: other bytes than those that were announced.
        put_segment(folder, prepare(SEGMENT, manifest_of(SEGMENT), recipients), free)


def test_the_same_entries_again_are_fine_and_others_are_refused(
    folder: Folder, recipients: list[str]
) -> None:
    files = prepare(SEGMENT, manifest_of(SEGMENT), recipients)
    assert put_segment(folder, files, free) == files.manifest
    assert put_segment(folder, prepare(SEGMENT, manifest_of(SEGMENT), recipients), free) == files.manifest
    other = sealed([numbered(1, 10, size=1)])
    assert other.name == NAME
    before = folder.files()
    with pytest.raises(ArchiveConflict, match="is there already"):
        put_segment(folder, prepare(other, manifest_of(other), recipients), free)
    assert folder.files() == before


def test_a_try_that_failed_at_its_last_step_leaves_nothing_once_it_is_made_again(
    folder: Folder, recipients: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = prepare(SEGMENT, manifest_of(SEGMENT), recipients)

    def fail(*_: object) -> None:
        raise ArchiveUnavailable("the store went away")

    with monkeypatch.context() as broken:
        broken.setattr(settling, "remove", fail)
        with pytest.raises(ArchiveUnavailable):
            put_segment(folder, files, free)
    stands = {files.manifest.file, NAME.manifest}
    assert set(folder.files()) == {*stands, NAME.pending}
    with pytest.raises(ArchiveOwned):
        put_segment(folder, files, Lost(0))
    assert NAME.pending in folder.files(), "another owner may need it"
    assert put_segment(folder, files, free) == files.manifest
    assert set(folder.files()) == stands


def test_the_same_entries_with_a_key_and_without_are_one_segment(folder: Folder, tmp_path: Path) -> None:
    plain = prepare(SEGMENT, manifest_of(SEGMENT))
    encrypted = prepare(SEGMENT, manifest_of(SEGMENT), [age_identity(tmp_path / "key")])
    assert put_segment(folder, encrypted, free) == encrypted.manifest
    assert put_segment(folder, plain, free) == encrypted.manifest
    assert set(folder.files()) == {NAME.encrypted, NAME.manifest}
    (tmp_path / "wal" / NAME.encrypted).unlink()
    with pytest.raises(ArchiveConflict, match="its segment is not"):
        put_segment(folder, encrypted, free)


def pending(folder: Path, segment: Sealed, recipients: list[str]) -> Path:
    """Leave a segment as who was killed before its manifest left it; return its path."""
    files = prepare(segment, manifest_of(segment), recipients)
    (folder / segment.name.pending).write_bytes(encode_manifest(files.manifest))
    (folder / files.manifest.file).write_bytes(b"".join(files.pieces))
    return folder / files.manifest.file


def test_a_damaged_segment_is_not_settled(folder: Folder, recipients: list[str], tmp_path: Path) -> None:
    path = pending(tmp_path / "wal", SEGMENT, recipients)
    data = path.read_bytes()
    for damaged in (data[:-1], data[:300] + b"\0" + data[301:]):
        path.write_bytes(damaged)
        with pytest.raises(SegmentCorrupt, match=path.name):
            settle(folder)
        assert set(folder.files()) == {path.name, NAME.pending}, "nothing is taken away"


def test_a_manifest_of_other_entries_is_not_settled_over(folder: Folder, tmp_path: Path) -> None:
    other = sealed([numbered(1, 10, size=1)])
    pending(tmp_path / "wal", SEGMENT, [])
    (tmp_path / "wal" / NAME.manifest).write_bytes(encode_manifest(manifest_of(other)))
    with pytest.raises(ArchiveConflict, match="with other entries"):
        settle(folder)
    (tmp_path / "wal" / NAME.pending).write_bytes(b"{}")
    with pytest.raises(SegmentCorrupt, match="pending"):
        settle(folder)


@pytest.fixture
def store(tmp_path: Path) -> Folder:
    """An archive in an object store, with a file of another kind: such a store has no empty folders."""
    found = Folder(f"memory://settling/{tmp_path.name}", str(tmp_path / "key"))
    put_new(found, "readme.txt", [b"x"])
    return found


def stands(folder: Folder) -> set[str]:
    return set(folder.files()) - {"readme.txt"}


def test_what_is_on_the_way_in_an_object_store_is_still_known_when_it_arrives(
    store: Folder, recipients: list[str]
) -> None:
    files = prepare(SEGMENT, manifest_of(SEGMENT), recipients)
    with pytest.raises(ArchiveOwned):
        put_segment(store, files, Lost(1))
    assert settle(store) == []
    assert stands(store) == {NAME.pending}
    put_new(store, files.manifest.file, files.pieces)
    assert settle(store) == [Settled(NAME, kept=True)]
    assert store.manifests(store.segments()) == {files.manifest.file: files.manifest}


@pytest.mark.parametrize("arrives", ["before the next one's", "after it", "before the next one is killed"])
def test_the_same_segment_on_the_way_from_two_agents_is_put_once(
    store: Folder, recipients: list[str], arrives: str
) -> None:
    first, second = (prepare(SEGMENT, manifest_of(SEGMENT), recipients) for _ in range(2))
    with pytest.raises(ArchiveOwned):
        put_segment(store, first, Lost(1))
    if arrives != "after it":
        put_new(store, first.manifest.file, first.pieces)
    if arrives == "before the next one is killed":
        with pytest.raises(ArchiveOwned):
            put_segment(store, second, Lost(2))
        assert settle(store) == [Settled(NAME, kept=True)]
    else:
        came = first if arrives == "before the next one's" else second
        assert put_segment(store, second, free) == came.manifest
    assert stands(store) == {first.manifest.file, NAME.manifest}
    assert store.read_segment(first.manifest.file) == bytes_of(SEGMENT)


def test_what_came_too_late_is_not_finished(store: Folder, recipients: list[str]) -> None:
    longer = sealed([numbered(1, 10), numbered(11, 10)])
    late = prepare(longer, manifest_of(longer), recipients)
    with pytest.raises(ArchiveOwned):
        put_segment(store, late, Lost(2))
    files = prepare(SEGMENT, manifest_of(SEGMENT), recipients)
    put_segment(store, files, free)
    assert settle(store) == [Settled(longer.name, kept=False)]
    assert stands(store) == {files.manifest.file, NAME.manifest, late.manifest.file}
    assert [one.name for one in store.segments()] == [NAME]


def test_who_loses_the_archive_before_the_last_look_acks_nothing(folder: Folder) -> None:
    with pytest.raises(ArchiveOwned):
        put_segment(folder, prepare(SEGMENT, manifest_of(SEGMENT)), Lost(3))
    assert set(folder.files()) == {str(NAME), NAME.manifest, NAME.pending}
