"""A base whose making fails at its manifest: whatever a manifest may name stays, and nothing else does."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from headrace.archive.files.bases import usable_bases
from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new
from headrace.entries.lsn import Lsn
from headrace.errors import ArchiveUnavailable
from headrace.pipeline.bases.attempt import Attempt
from headrace.pipeline.bases.writing import Place
from headrace.runtime.disk import Disk
from headrace.wire.base_manifest import MANIFEST, BaseFile, BaseManifest, base_folder

LSN = Lsn(1_700_000_000_000 << 18, 1, 5)
PATH = base_folder(LSN)
DATA = b"x" * 100


@pytest.fixture(params=["local", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Folder]:
    if request.param == "local":
        yield Folder(str(tmp_path))
        return
    found = Folder(f"memory://{tmp_path.name}")
    found.store.makedirs(found.path(""), exist_ok=True)
    yield found
    fsspec.filesystem("memory").rm(found.path(""), recursive=True)


def begun(folder: Folder, name: str = "a") -> tuple[Attempt, BaseManifest]:
    """Write the one file of an attempt, and return the manifest that names it."""
    file = f"bucket=0/part-{name}-1.parquet"
    put_new(folder, f"{PATH}/{file}", [DATA])
    manifest = BaseManifest(
        lsn=str(LSN),
        committed_at_ms=LSN.committed_at_ms,
        created_at_ms=ord(name),
        buckets=1,
        feeds=(),
        files=(BaseFile(path=file, size=len(DATA), crc=zlib.crc32(DATA), rows=0, bucket=0),),
    )
    return Attempt(folder, Place("", PATH, name)), manifest


def parts(folder: Folder) -> list[str]:
    """Return which attempts have a file there."""
    root = folder.path(PATH)
    return sorted(name.rpartition("part-")[2][0] for name in folder.store.find(root) if "part-" in name)


def failing(call: Callable[..., Any], error: BaseException, *, first: bool) -> Callable[..., Any]:
    """Return a call that does what it should, if not ``first``, and then fails: the answer is lost."""

    def made(*args: Any, **options: Any) -> Any:
        if not first:
            call(*args, **options)
        raise error

    return made


def test_what_failed_before_its_manifest_is_taken_away_and_nothing_of_another_attempt(folder: Folder) -> None:
    begun(folder, "b")
    attempt, _ = begun(folder)
    attempt.take_away()
    assert parts(folder) == ["b"]


@pytest.mark.parametrize("folder", ["memory"], indirect=True)
@pytest.mark.parametrize("first", [False, True])
def test_a_put_whose_answer_is_lost_takes_nothing_away(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    """Where nobody can look, and where the look says no: the store may carry the put out behind that."""
    attempt, manifest = begun(folder)
    lost = OSError("connection reset")
    with monkeypatch.context() as patch:
        patch.setattr(folder.store, "pipe_file", failing(folder.store.pipe_file, lost, first=first))
        if not first:
            patch.setattr(folder.store, "info", failing(folder.store.info, lost, first=True))
        with pytest.raises(ArchiveUnavailable):
            attempt.finish(manifest)
        attempt.take_away()
    assert parts(folder) == ["a"]
    # Again, as the operator would: it stands, or is made.
    assert [one.path for one in usable_bases(folder).sound] == ([] if first else [PATH])
    assert attempt.finish(manifest).manifest == manifest
    assert [one.manifest for one in usable_bases(folder).sound] == [manifest]


@pytest.mark.parametrize("folder", ["local"], indirect=True)
@pytest.mark.parametrize("first", [False, True])
def test_an_interrupt_at_the_manifest_takes_files_away_only_if_it_is_not_there(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    attempt, manifest = begun(folder)
    with monkeypatch.context() as patch:
        patch.setattr(Disk, "link", failing(Disk.link, KeyboardInterrupt(), first=first))
        with pytest.raises(KeyboardInterrupt):
            attempt.finish(manifest)
        attempt.take_away()
    assert folder.exists(f"{PATH}/{MANIFEST}") is not first
    assert parts(folder) == ([] if first else ["a"])
    assert [one.manifest for one in usable_bases(folder).sound] == ([] if first else [manifest])


def test_an_interrupt_behind_the_manifest_takes_nothing_away(folder: Folder) -> None:
    attempt, manifest = begun(folder)
    attempt.finish(manifest)
    attempt.take_away()
    assert [one.manifest for one in usable_bases(folder).sound] == [manifest]


def test_of_two_attempts_the_slower_one_goes_and_returns_the_others_base(folder: Folder) -> None:
    quick, kept = begun(folder, "q")
    slow, manifest = begun(folder, "s")
    assert quick.finish(kept).manifest == kept
    assert slow.finish(manifest).manifest == kept
    assert parts(folder) == ["q"]
    slow.take_away()
    quick.take_away()
    assert [one.manifest for one in usable_bases(folder).sound] == [kept]
