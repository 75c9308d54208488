"""The folder that a restore writes: empty before, whole afterwards, and never something between that a reader would take.

All is written into a folder of its own below it, whose name readers of tables pass over; at the end what is in there
gets its names, and ``_headrace/outcome.json`` comes last. What failed is taken away.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Final
from uuid import uuid4

from headrace.archive.files.folder import Folder
from headrace.archive.files.writing import put_new
from headrace.errors import ArchiveFull, OutNotEmpty, StoreUnavailable, Usage
from headrace.runtime.disk import Disk

OUTCOME: Final = "_headrace/outcome.json"
"""The file that says that a restore is whole."""
_WRITING: Final = "_restoring-"
_SHOWN_MAX: Final = 3


def check_out(out: Path, bytes_needed: int = 0) -> None:
    """Raise OutNotEmpty unless ``out`` is an empty folder or not there, ArchiveFull if its volume has not that much room.

    Usage if it is a file, or this user may not write there.
    """
    if out.exists() and not out.is_dir():
        raise Usage(f"--out {out} is a file, not a folder")
    names = sorted(one.name for one in out.iterdir()) if out.is_dir() else []
    if any(name.startswith(_WRITING) for name in names):
        raise OutNotEmpty(
            f"{out} holds what a restore left that was cut short ({', '.join(names[:_SHOWN_MAX])}), or one is running",
            hint="Once no restore writes there, remove the folder, or name another one.",
        )
    if names:
        raise OutNotEmpty(f"{out} is not empty: it holds {', '.join(names[:_SHOWN_MAX])}")
    there = next(one for one in (out, *out.parents) if one.exists())
    if not there.is_dir():
        raise Usage(f"--out {out}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise Usage(f"--out {out}: this user can't write in {there}")
    free = shutil.disk_usage(there).free
    if free < bytes_needed:
        raise ArchiveFull(
            f"{out} has room for {free:,} bytes, and the base alone has {bytes_needed:,}",
            hint="Name a folder on a larger volume: --out DIR. Nothing was written.",
        )


def no_room(folder: str, option: str, detail: str) -> ArchiveFull:
    """Return the error of a folder, named by ``option``, whose volume got full."""
    return ArchiveFull(
        f"{folder} has no room for the restore: {detail}",
        hint=f"Name a folder on a larger volume: {option} DIR. Nothing is left of this restore.",
    )


def unwritable(folder: str, option: str, failure: OSError) -> ArchiveFull | StoreUnavailable:
    """Return the error of a folder, named by ``option``, that got full, or that could not be written for another reason."""
    if failure.errno in {errno.ENOSPC, errno.EDQUOT}:
        return no_room(folder, option, str(failure))
    return StoreUnavailable(
        f"{folder} can't be written: {failure}",
        hint=f"Look at the disk and at this user's rights, or name another folder: {option} DIR.",
    )


class Out:
    """The folder ``out`` while a restore writes it. Use as ``with``: unless :meth:`publish` was called, nothing is left.

    Of several restores into one folder at most one goes on. Who finds another's folder beside its own gives up, and
    ``_headrace`` is made by one alone, who alone takes it away again.
    """

    def __init__(self, out: Path, disk: Disk | None = None) -> None:
        """``disk``: what makes it durable."""
        self.out = out
        self._disk = disk or Disk()
        self._made = False
        self._claimed = False
        self._telling = False
        self._published = False
        self._shown: list[tuple[Path, Path]] = []
        self.writing = out / f"{_WRITING}{uuid4().hex}"
        """Where to write: what is in it gets its place in OUT at the end."""

    def __enter__(self) -> Out:
        """OutNotEmpty; whoever checks first need not check again."""
        check_out(self.out)
        try:
            self._begin()
        except BaseException:
            self._take_away()
            raise
        return self

    def _begin(self) -> None:
        if not self.out.exists():
            self._disk.make_folder(self.out.parent)
            try:
                self.out.mkdir()
            except FileExistsError:
                pass  # another restore was quicker, and it is his to take away
            else:
                self._made = True
        self.writing.mkdir()
        # Two may have found OUT empty. Each looks again behind its own mkdir, so one of them at least sees the other.
        others = sorted(one.name for one in self.out.iterdir() if one != self.writing)
        if others:
            raise _taken(self.out, ", ".join(others[:_SHOWN_MAX]))
        self.writing.chmod(self.out.stat().st_mode & 0o7777)  # workers of another user may write here too

    def publish(self, outcome: bytes) -> None:
        """Make all that was written durable, let it be seen, and put the outcome there last.

        OUT's own name is durable by then, too: what a power cut leaves with an outcome in it is whole. OutNotEmpty if
        another restore has got there first; SyncFailed and other kinds of OSError; ArchiveFull, ArchiveUnavailable.
        """
        for folder, _, files in os.walk(self.writing):
            for name in files:
                with self._disk.open(Path(folder) / name, readonly=True) as file:
                    file.sync()
            self._disk.sync_folder(Path(folder))
        try:
            (self.out / OUTCOME).parent.mkdir(mode=0o750)
        except FileExistsError:
            raise _taken(self.out, OUTCOME) from None
        self._claimed = True
        for one in sorted(self.writing.iterdir()):
            place = self.out / one.name
            self._shown.append((one, place))
            one.rename(place)
        self.writing.rmdir()
        self._disk.sync_folder(self.out)
        self._disk.sync_folder(self.out.parent)
        self._telling = True
        put_new(Folder(str(self.out)), OUTCOME, [outcome], disk=self._disk)
        self._published = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._published:
            self._take_away()

    def _take_away(self) -> None:
        """Remove what is this restore's own, the outcome first: it never stands over a part."""
        if self._telling:
            try:
                self._disk.remove(self.out / OUTCOME)
            except OSError:
                return  # it may be there, now or after a power cut; what it stands over is whole, and stays
        if self._claimed:
            shutil.rmtree((self.out / OUTCOME).parent, ignore_errors=True)
        for draft, place in self._shown:
            if not draft.exists():  # else it did not get its place, and what has it is not ours
                shutil.rmtree(place, ignore_errors=True)
        shutil.rmtree(self.writing, ignore_errors=True)
        if self._made:
            with contextlib.suppress(OSError):  # another restore writes there
                self.out.rmdir()


def _taken(out: Path, names: str) -> OutNotEmpty:
    return OutNotEmpty(
        f"{out} was empty when this restore began; now another one writes there ({names})",
        hint="Let the other one end, or name another folder. Nothing of it was touched.",
    )
