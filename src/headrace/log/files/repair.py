"""Mend a damaged journal on demand: ``headrace log repair``. Never run by itself; everything it removes is kept in a file.

``skip`` puts a frame over each damaged one, of the same size, so nothing after it moves or goes. ``cut`` ends the journal
before the first damage. Each feed that lost entries gets a new incarnation, and where entries were skipped its tail names
the range. So every reader finds out (design §4, rule 4). A feed whose state may have changed in a damaged frame gets a new
epoch as well: whoever was fenced by what can't be read any more stays fenced.

The order makes a crash in the middle harmless. ``skip`` first writes what feeds must know at the journal's end, then
changes frames in place; run again it goes on (``repair-begun`` names the files that it may have written without being able
to sync them). ``cut`` first writes the new file beside the old and then notes in
``repair-pending`` that it is to take its place; no server opens such a folder before the repair has been run again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from headrace.errors import DataFolderLocked, JournalCorrupt, Usage
from headrace.log.damage import COSTS_NOTHING, DamageKind
from headrace.log.files import pending
from headrace.log.files.examine import examine
from headrace.log.files.findings import Findings
from headrace.log.files.losing import cut, skip
from headrace.log.files.mending import mend_copies, mend_end, mend_indexes, mend_mark, mend_starts
from headrace.log.files.plan import Mode, Plan, Repairing
from headrace.log.files.scan import CHUNK_BYTES
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk

BEGUN_NAME: Final = "repair-begun"
"""Names the segments that a repair writes in place, one a line; it is there until all of that is durable."""
_NEEDS_NO_MODE: Final = COSTS_NOTHING | {DamageKind.MARK, DamageKind.START, DamageKind.METADATA}


class Repair:
    """One data folder under repair, its lock held. Use :meth:`plan`, then :meth:`apply`; close it afterwards."""

    def __init__(self, folder: Path, *, disk: Disk | None = None, clock: Clock | None = None) -> None:
        """Take the folder's lock; DataFolderLocked if a server has it. An earlier repair's ``cut`` is finished first."""
        self.disk = disk if disk is not None else Disk()
        self.folder = folder
        self._clock = clock if clock is not None else SystemClock()
        if not self.disk.exists(folder / "mark") and not self.disk.exists(folder / "journal"):
            raise Usage(
                f"{folder}: there is no journal here", hint="Give the server's folder with --data-dir."
            )
        self._lock = self.disk.open(folder / "lock", create=True)
        if not self._lock.lock():
            self._lock.close()
            raise DataFolderLocked(
                f"{folder}: a server owns this data folder", hint="Stop the server first, then repair."
            )
        try:
            self._keep_written()
            self.finished_earlier = pending.finish(self.disk, folder)
        except BaseException:
            self.close()
            raise

    def _keep_written(self) -> None:
        """Make durable what a repair wrote that was killed, or failed, before its syncs were done.

        It looks mended now and would be left alone, until a power failure takes it back. A second sync would not do: after
        one that failed the page cache may call clean what is on no disk. So the same bytes are written once more.
        """
        journal, begun, mark = self.folder / "journal", self.folder / BEGUN_NAME, self.folder / "mark"
        if self.disk.exists(begun):
            with self.disk.open(begun, readonly=True) as file:
                names = file.read_at(0, file.size()).decode().split()
            for path in (journal / name for name in names):
                if self.disk.exists(path):
                    with self.disk.open(path) as file:
                        for at in range(0, file.size(), CHUNK_BYTES):
                            file.write_at(at, file.read_at(at, CHUNK_BYTES))
                        file.sync()
        if self.disk.exists(mark):  # else a power failure in the middle could set it back below the damage
            with self.disk.open(mark) as file:
                file.write_at(0, file.read_at(0, file.size()))
                file.sync()
        for folder in (self.folder, journal):
            if self.disk.exists(folder):
                self.disk.sync_folder(folder)
        if self.disk.exists(begun):
            self.disk.remove(begun)

    def close(self) -> None:
        """Let go of the lock."""
        self._lock.close()

    def plan(self, findings: Findings, mode: Mode) -> Plan:
        """Return what is to be done about ``findings``; writes nothing.

        Raises JournalCorrupt for damage that no repair can mend (a backup must), naming it.
        """
        work = Repairing(self.disk, self.folder, self._clock, findings, findings.mark)
        mend_starts(work)
        if not findings.segments:
            raise JournalCorrupt(
                f"{self.folder}: no journal segment is left", hint="Restore the data folder from a backup."
            )
        mend_end(work)
        bad = [damage for damage in findings.damages if damage.kind not in _NEEDS_NO_MODE]
        bad.sort(key=lambda damage: damage.position)
        if not (bad and findings.is_end_doubtful):  # else it would be decided that all of that stands
            mend_mark(work)
        if bad and mode == Mode.CUT:
            cut(work, bad)
            return work.made
        if bad and mode == Mode.NONE:
            work.made.unmended += bad
        elif bad:
            skip(work, bad)
        mend_copies(work, bad)
        mend_indexes(work)
        return work.made

    def apply(self, plan: Plan, said: Callable[[str], None] = lambda _: None) -> None:
        """Do what the plan says, telling each step before it is done."""
        begun = self.folder / BEGUN_NAME
        if plan.steps:
            names = sorted({step.file.name for step in plan.steps if step.file is not None})
            self.disk.write_whole(begun, "\n".join(names).encode())
        for step in plan.steps:
            said(step.text)
            step.do()
        if plan.steps:
            self.disk.remove(begun)

    def examine(self) -> Findings:
        """Look at the folder (again)."""
        return examine(self.folder, disk=self.disk)
