"""The one step of a repair that can't be done in place: a shorter segment takes the place of the old one and all after it.

``repair-pending`` says that it was begun. Every part of :func:`finish` may be done twice, so after a crash it is run again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from headrace.errors import JournalCorrupt
from headrace.log.files.findings import Segment
from headrace.log.files.mark import MarkFile
from headrace.log.files.segment import SUFFIX
from headrace.runtime.disk import Disk
from headrace.runtime.typed_json import decode_json
from headrace.wire.mark import Mark

PENDING_NAME: Final = "repair-pending"
DRAFT_SUFFIX: Final = ".cut"


class _Pending(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True):
    """``segment``: name of the file that is cut at ``position``. The rest is the mark that belongs to it."""

    segment: str
    position: int
    counter: int
    end: int
    global_ts: int


def cut(  # noqa: PLR0917  # what is cut, where, and what ends it
    disk: Disk, folder: Path, segment: Segment, position: int, frames: bytes, mark: Mark
) -> None:
    """End the journal at ``position`` in ``segment``, followed by ``frames``; what is removed goes into its own folder."""
    start = segment.state.start_at(segment.first_position)
    data = start.encode() + segment.read(segment.first_position, position - segment.first_position) + frames
    disk.write_whole(segment.path.with_suffix(DRAFT_SUFFIX), data)
    asked = _Pending(segment.path.name, position, mark.counter, mark.end, mark.global_ts)
    disk.write_whole(folder / PENDING_NAME, msgspec.json.encode(asked))
    finish(disk, folder)


def finish(disk: Disk, folder: Path) -> bool:
    """Finish a cut that was begun; returns whether there was one."""
    path = folder / PENDING_NAME
    if not disk.exists(path):
        return False
    with disk.open(path, readonly=True) as file:
        data = file.read_at(0, file.size())
    try:
        asked = decode_json(data, _Pending)
    except msgspec.DecodeError as error:
        raise JournalCorrupt(
            f"{path}: can't be read: {error}", hint="Restore the data folder from a backup."
        ) from None
    journal, removed = folder / "journal", folder / f"removed-{asked.position:016x}"
    draft = (journal / asked.segment).with_suffix(DRAFT_SUFFIX)
    disk.make_folder(removed)
    if disk.exists(draft):
        for old in disk.list(journal, SUFFIX):
            if old.name >= asked.segment:
                disk.rename(old, removed / old.name)
                disk.sync_folder(journal)
        disk.rename(draft, journal / asked.segment)
    disk.sync_folder(journal)  # an earlier try may have been killed between a new name and its sync
    disk.sync_folder(removed)
    MarkFile.create(disk, folder / "mark", Mark(asked.counter, asked.end, asked.global_ts))
    disk.remove(path)
    return True
