"""A right in an object store: one has it, who loses it finds out, and a store that ignores conditions is refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from msgspec.structs import replace

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new, remove
from headrace.archive.rights.lease import Holder, Lease, fence, living
from headrace.archive.rights.owner import owner_of, take
from headrace.archive.rights.processes import ProcessMark, this_process
from headrace.errors import (
    ArchiveConflict,
    ArchiveFull,
    ArchiveOwned,
    ArchiveUnavailable,
    FormatTooNew,
    SetupMissing,
)

numbers = count(1)
LONG_S = 3600.0
"""A lease that no thread renews in a test."""


@pytest.fixture
def folder() -> Iterator[Folder]:
    found = Folder(f"memory://lease-{next(numbers)}/wal")
    yield found
    remove(found, files(found))


def files(folder: Folder) -> list[str]:
    return sorted(str(path).rpartition("/")[2] for path in folder.store.find(folder.path("")))


def name(number: int, stem: str = "owner") -> str:
    return f"{stem}-{number:016d}.json"


def shift(folder: Folder, number: int, **changes: Any) -> None:
    """Make the next number as another machine's process would, and take the one before away."""
    before = msgspec.json.decode(folder.read(name(number - 1)), type=Holder)
    other = replace(before, number=number, holder="another", process=ProcessMark("elsewhere", 7), **changes)
    put_new(folder, name(number), [msgspec.json.encode(other)])
    remove(folder, [name(number - 1)])


def test_who_owns_a_store_is_told_without_taking_it(folder: Folder) -> None:
    assert owner_of(folder) == ""
    with take(folder, lease_s=1.0) as owner:
        assert owner_of(folder) == f"backup, {this_process()}"
        owner.check()
    assert owner_of(folder) == ""
    put_new(folder, name(9), [b"not a document"])
    assert "can't be read" in owner_of(folder)


def test_numbers_grow_and_the_greatest_stays(folder: Folder) -> None:
    lease = Lease(folder, "owner", "backup", lease_s=LONG_S)
    assert files(folder) == [name(1)]
    lease.check()
    lease.check()
    assert files(folder) == [name(3)]
    lease.release()
    lease.release()
    assert files(folder) == [name(4)]
    with pytest.raises(ArchiveOwned, match="given up"):
        lease.check()
    second = Lease(folder, "owner", "backup", lease_s=LONG_S)
    assert files(folder) == [name(5)]
    second.release()


def test_an_owner_that_lives_is_named(folder: Folder) -> None:
    first = Lease(folder, "owner", "backup", lease_s=0.3)
    with pytest.raises(ArchiveOwned, match=r"belongs to another process: backup, process \d+ of "):
        Lease(folder, "owner", "backup", lease_s=0.3)
    first.check()
    first.release()
    with take(folder) as owner:
        owner.check()


def test_who_was_stopped_while_another_took_over_finds_out(folder: Folder) -> None:
    lease = Lease(folder, "owner", "backup", lease_s=LONG_S)
    shift(folder, 2)
    with pytest.raises(ArchiveOwned, match="taken by another process"):
        lease.check()
    with pytest.raises(ArchiveOwned):
        lease.check()
    lease.release()
    assert files(folder) == [name(2)], "who lost it touches nothing"


def test_who_was_stopped_for_long_finds_out_though_its_next_number_is_free(folder: Folder) -> None:
    lease = Lease(folder, "owner", "backup", lease_s=LONG_S)
    shift(folder, 2)
    shift(folder, 3)
    with pytest.raises(ArchiveOwned, match="taken by another process"):
        lease.check()
    assert files(folder) == [name(3)]
    other = Lease(folder, "second", "backup", lease_s=LONG_S)
    shift(folder, 4, released=True)
    other.check()
    other.release()


def test_an_abandoned_right_is_taken_once_it_has_stood_still(folder: Folder) -> None:
    first = Lease(folder, "owner", "backup", lease_s=LONG_S)
    shift(folder, 2, lease_s=0.2)
    second = Lease(folder, "owner", "backup", lease_s=LONG_S)
    assert files(folder) == [name(3)]
    with pytest.raises(ArchiveOwned):
        first.check()
    second.check()
    second.release()


def test_a_right_that_moves_while_it_is_watched_is_alive(folder: Folder) -> None:
    Lease(folder, "owner", "backup", lease_s=LONG_S)
    shift(folder, 2)
    seen = []

    def wait(_: float) -> None:
        seen.append(files(folder))
        shift(folder, 2 + len(seen))

    (found,) = living(folder, "owner-", wait=wait)
    assert str(found) == "backup, process 7 of elsewhere"
    assert len(seen) == 1
    assert living(folder, "none-", wait=wait) == []


def test_a_right_that_is_given_up_while_it_is_watched_is_free(folder: Folder) -> None:
    Lease(folder, "owner", "backup", lease_s=LONG_S)
    shift(folder, 2)
    assert living(folder, "owner-", wait=lambda _: shift(folder, 3, released=True)) == []
    hold = Lease(folder, "hold-abc", "restore", lease_s=0.3, unique=True)
    assert [str(one) for one in living(folder, "hold-")] == [f"restore, {this_process()}"]
    hold.release()
    assert files(folder) == [name(3)], "nothing is left of a right that nobody else asks for"


def test_a_thread_keeps_the_right(folder: Folder) -> None:
    moved = threading.Event()

    class Watched(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
        def rm_file(self, path: str) -> None:
            super().rm_file(path)
            moved.set()

    folder.store = Watched(skip_instance_cache=True)
    lease = Lease(folder, "owner", "backup", lease_s=0.1)
    assert moved.wait(30)
    lease.release()


class Careless(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """A store that puts an object over another one whatever it is told."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        super().pipe_file(path, value)


def test_a_store_that_ignores_conditions_is_refused(folder: Folder) -> None:
    folder.store = Careless(skip_instance_cache=True)
    with pytest.raises(SetupMissing, match="puts an object over another one"):
        take(folder)
    assert files(folder) == []


class Failing(MemoryFileSystem):  # type: ignore[misc]  # fsspec ships no types
    """A store whose puts fail, before (``done`` False) or after they were done, with any error of its driver's."""

    error: Exception = RuntimeError("connection lost")
    failing = ""
    done = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **more: Any) -> None:
        fails = bool(self.failing) and self.failing in path
        if not fails or self.done:
            super().pipe_file(path, value, mode, **more)
        if fails:
            raise self.error


def test_a_lost_answer_is_looked_up(folder: Folder) -> None:
    store = folder.store = Failing(skip_instance_cache=True)
    store.failing, store.done = "file", True
    put_new(folder, "file", [b"a", b"b"])
    assert folder.read("file") == b"ab"
    with pytest.raises(ArchiveConflict):
        put_new(folder, "file", [b"a", b"c"])
    store.done = False
    with pytest.raises(ArchiveUnavailable, match=r"other-file was not written: .*connection lost"):
        put_new(folder, "other-file", [b"a"])
    assert not folder.exists("other-file")
    store.error = OSError(28, "No space left")
    with pytest.raises(ArchiveFull):
        put_new(folder, "other-file", [b"a"])


def test_a_renewal_that_failed_is_done_again(folder: Folder) -> None:
    store = folder.store = Failing(skip_instance_cache=True)
    lease = Lease(folder, "owner", "backup", lease_s=LONG_S)
    store.failing = "owner"
    with pytest.raises(ArchiveUnavailable):
        lease.check()
    store.done = True
    lease.check()
    store.failing = ""
    lease.check()
    lease.release()
    assert files(folder) == [name(4)]


def test_an_object_that_says_nothing_is_not_taken_for_free(folder: Folder) -> None:
    put_new(folder, name(1), [b"{}"])
    with pytest.raises(ArchiveOwned, match="can't be read"):
        take(folder)
    newer = {"written-as": 9, "readable-from": 9, "what": "x", "holder": "h", "number": 1, "lease-s": 1.0}
    remove(folder, [name(1)])
    put_new(folder, name(1), [msgspec.json.encode(newer | {"process": {"host": "h", "pid": 1}})])
    with pytest.raises(FormatTooNew):
        take(folder)


def test_a_store_that_shows_half_a_file_is_refused() -> None:
    folder = Folder("memory://half/wal")
    folder.store = type("Sftp", (MemoryFileSystem,), {"protocol": "sftp"})(skip_instance_cache=True)
    with pytest.raises(SetupMissing, match="half-written"):
        put_new(folder, "file", [b"x"])


def test_an_answer_of_a_moment_ago_will_do_until_the_right_is_lost(folder: Folder) -> None:
    lease = Lease(folder, "prune", "prune", lease_s=LONG_S)
    lease.check(lately=True)
    assert files(folder) == [name(1, "prune")], "nobody was asked"
    other = msgspec.json.decode(folder.read(name(1, "prune")), type=Holder)
    put_new(folder, name(2, "prune"), [msgspec.json.encode(replace(other, number=2, holder="another"))])
    with pytest.raises(ArchiveOwned):
        lease.check()
    with pytest.raises(ArchiveOwned):
        lease.check(lately=True)


def test_an_abandoned_right_is_fenced(folder: Folder) -> None:
    assert fence(folder, "prune", "restore")
    assert files(folder) == [], "nobody had it"
    lease = Lease(folder, "prune", "prune", lease_s=LONG_S)
    asleep = replace(
        msgspec.json.decode(folder.read(name(1, "prune")), type=Holder),
        process=ProcessMark("elsewhere", 7),
        lease_s=0.2,
    )
    remove(folder, [name(1, "prune")])
    put_new(folder, name(1, "prune"), [msgspec.json.encode(asleep)])
    assert fence(folder, "prune", "restore")
    left = files(folder)
    with pytest.raises(ArchiveOwned, match="was taken by another process"):
        lease.check()
    assert fence(folder, "prune", "restore")
    assert files(folder) == left, "it was given up, which is known at once"


def test_a_right_that_somebody_has_is_not_fenced(folder: Folder) -> None:
    lease = Lease(folder, "prune", "prune", lease_s=1.0)
    assert not fence(folder, "prune", "restore")
    lease.check()
    lease.release()
    assert fence(folder, "prune", "restore")
