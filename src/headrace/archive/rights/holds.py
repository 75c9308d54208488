"""Who reads an archive just now, so that nothing is pruned under him: restores, and bases in the making.

A hold is a file ``hold-….json``, locked as long as its process lives; in an object store it is a lease
(:mod:`headrace.archive.rights.lease`). A prune takes a right of its own and then asks who holds; who holds first says so and
then waits until no prune has that right. So one of the two always sees the other.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec

from headrace.archive.files.folder import Folder
from headrace.archive.moments.pruning import Held
from headrace.archive.rights.lease import LEASE_S, Holder, Lease, fence, living
from headrace.archive.rights.locks import locked_soon
from headrace.archive.rights.processes import ProcessMark, this_process
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    ArchiveFull,
    ArchiveOwned,
    ArchiveUnavailable,
    HeadraceError,
    InvalidRequest,
    SetupMissing,
)
from headrace.runtime.disk import Disk, DiskFile
from headrace.runtime.logs import get_logger
from headrace.runtime.typed_json import decode_json

PREFIX: Final = "hold-"
"""How the names of holds begin."""
PRUNE: Final = "prune"
"""What the right to prune is called: ``prune.lock``, or objects ``prune-….json``."""
_PRUNE_LOCK: Final = f"{PRUNE}.lock"
_WAIT_S_MAX: Final = 3600.0
"""Longest that a hold waits for a prune: one that takes longer hangs."""
_LOOK_S: Final = 0.2
_TRIES: Final = 20
_FROM: Final = re.compile(r"(.*) from lsn=(\S+)", re.DOTALL)

NOT_HELD: Final = (
    "the archive was not held, as nothing can be written there: nothing kept what was read from being pruned"
)
"""What the outcome says of a restore whose :func:`hold` was not taken."""

_log = get_logger("archive")


class _Reader(msgspec.Struct, frozen=True, rename="kebab"):
    """What stands in a local hold."""

    what: str
    lsn_from: str
    process: ProcessMark


class Check(Protocol):
    """Raises ArchiveOwned if the right is lost. ``lately``: the answer of a moment ago will do, see :meth:`Lease.check`."""

    def __call__(self, *, lately: bool = False) -> None:
        """Return if the right is still this process's."""


@contextmanager
def hold(folder: Folder, lsn_from: Lsn, what: str = "restore", *, needed: bool = False) -> Iterator[bool]:
    """Keep everything from ``lsn_from`` on from being pruned: the base at that LSN and what follows it. ZERO: everything.

    Waits for a prune that is at work. What was read of the archive before may be gone then, so **plan anew once it is
    held**. Gives True. Where the archive can't be written it warns loudly and gives False: a restore must not fail for that,
    and says :data:`NOT_HELD`. With ``needed`` it raises: ArchiveUnavailable, ArchiveFull, SetupMissing. On a full volume the
    hold is one that holds everything. ArchiveOwned if a prune hangs.
    """
    try:
        taken = _standing(folder, lsn_from, what)
    except _NotTaken as error:
        if needed:
            detail = f"{folder.shown} can't be held, so what is being read might be pruned: {error}"
            raise type(error.why)(detail, hint=error.why.advice) from None
        _log.warning(
            "archive not held: nothing keeps what is being read from being pruned",
            archive=folder.shown,
            what=what,
            reason=str(error),
        )
        yield False
        return
    try:
        yield True
    finally:
        taken.release()


@contextmanager
def pruning(folder: Folder, *, lease_s: float = LEASE_S) -> Iterator[Check]:
    """Have the right to prune, which one process has at a time. Gives what raises ArchiveOwned once it is lost.

    ``lease_s``: as of an owner, for object stores. ArchiveOwned if another one prunes; ArchiveUnavailable.
    """
    if folder.local is None:
        lease = Lease(folder, PRUNE, PRUNE, lease_s=lease_s)
        try:
            yield lease.check
        finally:
            lease.release()
        return
    with folder.reaching(_PRUNE_LOCK), Disk().open(folder.local / _PRUNE_LOCK, create=True) as file:
        if not locked_soon(file):
            raise ArchiveOwned(f"{folder.shown} is being pruned by another process")
        yield _still


def _still(*, lately: bool = False) -> None:
    """A lock ends with its process, and not before."""


class Holds(NamedTuple):
    """Who holds an archive, and the files of holds that count no more, as their processes are dead: they may be removed."""

    held: list[Held]
    dead: list[str]


def holders(folder: Folder) -> Holds:
    """Return who holds the archive now. ArchiveUnavailable; ArchiveOwned if that can't be told.

    In an object store that takes a while if anybody does: until his lease moves, or has stood still for long enough.
    """
    names = sorted(name for name in folder.files() if name.startswith(PREFIX))
    if folder.local is not None:
        found = [(name, _holder(folder.local / name)) for name in names]
        return Holds(
            [one for _, one in found if one is not None], [name for name, one in found if one is None]
        )
    alive = living(folder, PREFIX)
    marks = {one.holder for one in alive}
    held = [_told(one.what, str(one.process)) for one in alive]
    return Holds(held, [name for name in names if _is_dead(folder, name, marks)])


class _Taken(NamedTuple):
    """A hold. ``is_there``: tells whether its file still is; ``release`` ends it."""

    is_there: Callable[[], bool]
    release: Callable[[], None]


class _NotTaken(Exception):
    """The archive can't be written, so nobody can hold it."""

    def __init__(self, why: HeadraceError) -> None:
        super().__init__(why.detail)
        self.why = why


def _standing(folder: Folder, lsn_from: Lsn, what: str) -> _Taken:
    """Take a hold that every later prune sees: once no prune is at work, its file is still there.

    A prune that looked at the file before it was locked takes it for a dead one's, and removes it in the end.
    """
    for _ in range(_TRIES):
        try:
            take = _leased if folder.local is None else _local
            taken = take(folder, lsn_from, what)
        except (ArchiveUnavailable, ArchiveFull, SetupMissing) as error:
            raise _NotTaken(error) from error
        try:
            _wait_for_prune(folder, what)
            if taken.is_there():
                return taken
        except BaseException:
            taken.release()
            raise
        taken.release()
    raise ArchiveOwned(f"{folder.shown}: one prune after the other took a hold's file away")


# -- folders of this machine -------------------------------------------------------------------------------------------


def _local(folder: Folder, lsn_from: Lsn, what: str) -> _Taken:
    disk, root = Disk(), Path(folder.path(""))
    reader = _Reader(what, str(lsn_from), this_process())
    for _ in range(_TRIES):
        path = root / f"{PREFIX}{os.getpid()}-{secrets.token_hex(8)}.json"
        with folder.reaching(path.name):
            file = disk.open(path, create=True)
        # A prune that looks in between takes it for a dead one's.
        if not (file.lock() and file.is_at(path)):
            file.close()
            continue

        def release(path: Path = path, file: DiskFile = file) -> None:
            path.unlink(missing_ok=True)
            file.close()

        try:
            with folder.reaching(path.name):
                file.write_at(0, msgspec.json.encode(reader) + b"\n")
        except ArchiveFull as full:
            # The lock counts, not what the file says: a locked one that can't be read holds everything. A name still fits
            # where no byte does, and it is on a full volume that somebody prunes.
            _log.warning(
                "all of the archive is held: its volume is full", archive=folder.shown, reason=full.detail
            )
        except HeadraceError:
            release()
            raise
        return _Taken(partial(file.is_at, path), release)
    raise ArchiveUnavailable(f"no file in {folder.shown} can be locked")


def _holder(path: Path) -> Held | None:
    """Return who holds by this file; None if nobody does any more. In doubt somebody holds everything."""
    try:
        with _opened(path) as file:
            if not file.is_locked():
                return None
            data = file.read_at(0, 1 << 16)
    except FileNotFoundError:
        return None
    except OSError as error:
        return Held(f"{path.name} ({error.strerror})", ZERO)
    try:
        reader = decode_json(data, _Reader)
        return Held(f"{reader.what}, {reader.process}", Lsn.parse(reader.lsn_from))
    except (msgspec.MsgspecError, InvalidRequest):
        return Held(f"{path.name}, which can't be read", ZERO)


def _opened(path: Path) -> DiskFile:
    try:
        return Disk().open(path)
    except PermissionError:
        return Disk().open(path, readonly=True)


# -- object stores -----------------------------------------------------------------------------------------------------


def _leased(folder: Folder, lsn_from: Lsn, what: str) -> _Taken:
    """A lease that moves is never taken for a dead one's: each of its objects has a name of its own."""
    said = f"{what} from lsn={lsn_from}"
    lease = Lease(folder, f"{PREFIX}{secrets.token_hex(8)}", said, unique=True)
    return _Taken(lambda: True, lease.release)


def _told(what: str, process: str) -> Held:
    found = _FROM.fullmatch(what)
    try:
        return Held(f"{found[1]}, {process}", Lsn.parse(found[2])) if found else Held(what, ZERO)
    except InvalidRequest:
        return Held(what, ZERO)


def _is_dead(folder: Folder, name: str, marks: set[str]) -> bool:
    """Tell whether the lease of this object stood still, or ended: no later one of the same holder can have this name."""
    try:
        return decode_json(folder.read(name), Holder).holder not in marks
    except ArchiveUnavailable:
        return False  # it has moved on


# -- both --------------------------------------------------------------------------------------------------------------


def _wait_for_prune(folder: Folder, what: str) -> None:
    until = time.monotonic() + _WAIT_S_MAX
    while _is_pruned(folder, what):
        if time.monotonic() > until:
            raise ArchiveOwned(f"{folder.shown} is being pruned by another process, for an hour already")
        time.sleep(_LOOK_S)


def _is_pruned(folder: Folder, what: str) -> bool:
    if folder.local is None:
        # A prune that sleeps looked before this hold stood, and would go on when it wakes.
        return not fence(folder, PRUNE, f"{what}, which waits for prunes")
    try:
        with _opened(folder.local / _PRUNE_LOCK) as file:
            return file.is_locked()
    except FileNotFoundError:
        return False
    except OSError as error:
        _log.warning("prune not seen", archive=folder.shown, reason=str(error))
        return False
