"""What the tables job keeps beside its tables, in ``_headrace/``: which feed they are of, schemas, what was published.

Formats: docs/formats/tables.md. What is published is a file that is replaced whole. The ledger is a file and a journal
behind it, to which each change is appended as one line: with a thousand tables, noting one of them writes some kilobytes.
The folder is one that the driver and all workers reach by the same path (a local disk, or a mount on a cluster).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec import UNSET

from headrace.errors import ConfigInvalid, DataFolderLocked, FeedRecreated, LedgerCorrupt
from headrace.pipeline.tables.attached import AttachedState
from headrace.pipeline.tables.delta_log import newest_version
from headrace.pipeline.tables.files import (
    FOLDER,
    JOURNAL_READABLE_FROM,
    PUBLISHED,
    STATE,
    Change,
    PublishedFile,
    PublishedTable,
    TablesFile,
    Versioned,
    applied,
    journal_name,
    line_of,
    read_file,
    read_published,
    read_state,
    read_tables_file,
)
from headrace.pipeline.tables.schemas import PlacedSchema, SchemaHistory, TableName, TableSchema
from headrace.pipeline.tables.states import CapturedTable, LeftFolder, Reached, Start
from headrace.runtime.disk import Disk, DiskFile
from headrace.wire.versions import TABLES

__all__ = [
    "FOLDER",
    "Ledger",
    "LedgerCorrupt",
    "PublishedFile",
    "PublishedTable",
    "TablesFile",
    "folder_of",
    "free_folder",
    "local_folder",
    "newest_version",
    "read_published",
    "read_tables_file",
]

PLAIN: Final = "entries"
"""Folder of the table of entries that name no table."""

FOLDER_BYTES_MAX: Final = 255
"""What file systems allow; PostgreSQL's longest names of tables take 380 where every letter is written in hex."""

JOURNAL_BYTES_MAX: Final = 4 << 20
"""A journal that is larger than this, and than the state that it goes on from, gives way to a state written anew."""

_SAFE: Final = re.compile(r"[A-Za-z0-9_-]")


def folder_of(table: TableName) -> str:
    """Return the folder of a table below the tables' folder: ``main.accounts``. No two names share one.

    Letters, digits, ``_`` and ``-`` stand for themselves, other characters as ``~`` and their UTF-8 bytes in hex. What is
    longer than a folder's name may be is cut, and ends in ``~~`` and a hash of the whole.
    """
    if not table:
        return PLAIN
    name = ".".join("".join(_escaped(char) for char in part) for part in table)
    # A name of one part has no dot, so the sign before it can't make it another table's; nor can it before _ - and dot,
    # with which names of hidden files begin.
    name = name if len(table) > 1 and name[0] not in "_-." else f"~{name}"
    if len(name) <= FOLDER_BYTES_MAX:
        return name
    # No other name has two such signs in a row, but at its beginning.
    hashed = hashlib.sha256(name.encode()).hexdigest()[:32]
    return f"{name[: FOLDER_BYTES_MAX - len(hashed) - 2]}~~{hashed}"


def free_folder(table: TableName, identity: int, taken: Iterable[str]) -> str:
    """Return a folder for a captured table that is none of ``taken``: another table of that name had, or has, its own.

    A sign and two hex digits stand for a character in :func:`folder_of`, so what ends like this is no other table's.
    """
    name = folder_of(table)
    used = set(taken)
    number = 0
    found = name
    while found in used:
        number += 1
        mark = f"~v{identity}" if number == 1 else f"~v{identity}-{number}"
        found = f"{name[: FOLDER_BYTES_MAX - len(mark)]}{mark}"
    return found


def _escaped(char: str) -> str:
    return char if _SAFE.fullmatch(char) else "".join(f"~{byte:02x}" for byte in char.encode())


def local_folder(text: str) -> Path:
    """Return the folder that ``--to`` names; ConfigInvalid for a URL of another kind than ``file:``."""
    plain = text.removeprefix("file://") if text.startswith("file:///") else text
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:", plain):
        raise ConfigInvalid(
            f"{text!r} is no folder",
            hint="Tables are kept in a folder that driver and workers reach by the same path, such as a mount.",
        )
    return Path(plain).absolute()


class Ledger:
    """The ``_headrace`` folder of one tables job; owned by one process at a time. Close it to let another one in."""

    def __init__(
        self, to: Path, feed: str, incarnation: str, *, disk: Disk | None = None, instance: str | None = None
    ) -> None:
        """Open it, or begin it if the folder is new. ``instance``: names the folder's job, made up if it is new.

        Raises DataFolderLocked if another job has it, ConfigInvalid if the folder holds tables of another feed,
        FeedRecreated if they are of another history of this one, FormatTooNew, LedgerCorrupt.
        """
        self._disk = disk or Disk()
        self.to = to
        self.folder = to / FOLDER
        self._disk.make_folder(self.folder)
        self._lock: DiskFile = self._disk.open(self.folder / "lock", create=True)
        self._journal: _Journal | None = None
        try:
            if not self._lock.lock():
                raise DataFolderLocked(
                    f"another job keeps the tables in {to}",
                    hint="Stop the other one, or give this one its own folder.",
                )
            found = read_state(self.folder)
            self.published = read_published(to)
            if found is None:
                self._file = TablesFile(feed=feed, incarnation=incarnation, schemas=[])
            else:
                self._check(found, feed, incarnation)
                self._file = found
            if not self._file.instance:
                self._write_state(msgspec.structs.replace(self._file, instance=instance or uuid4().hex))
        except BaseException:
            self.close()
            raise
        self.feed = feed
        self.incarnation = incarnation
        self.schemas = SchemaHistory(list(self._file.schemas))

    def _check(self, found: TablesFile, feed: str, incarnation: str) -> None:
        if found.feed != feed:
            raise ConfigInvalid(
                f"{self.to} holds the tables of the feed {found.feed}", hint="Give each feed its own folder."
            )
        if found.incarnation != incarnation:
            raise FeedRecreated(
                f"the tables in {self.to} are of the incarnation {found.incarnation} of {feed}, which now is "
                f"{incarnation}",
                hint="The feed was made anew or restored: start its tables anew in an empty folder.",
            )

    def begin(self, last: int, schemas: list[PlacedSchema], *, merged: Reached | None = None) -> None:
        """Note durably, before any table follows, that a batch up to the sequence id ``last`` begins, and its schemas.

        ``merged``: with the same change, that what ends there is merged already, such as a snapshot.
        """
        known = {one.identity for one in self._file.schemas}
        fresh = [one for one in schemas if one.identity not in known]
        if fresh or last > self._file.begun:
            begun = max(self._file.begun, last)
            self._change(Change(begun=begun, schemas=fresh or UNSET, merged=merged or UNSET))
            self.schemas = SchemaHistory(list(self._file.schemas))

    @property
    def instance(self) -> str:
        """What names this folder's job, whatever its path: chosen at random, and kept."""
        return self._file.instance

    @property
    def begun(self) -> int:
        """The last sequence id of the furthest batch whose merges were begun; 0 before the first one."""
        return self._file.begun

    @property
    def start(self) -> Start | None:
        """Where the tables begin; None if nobody has said so yet, or an older version began them."""
        return self._file.start or None

    @property
    def given(self) -> TableSchema | None:
        """The columns that an operator gave to entries that name no table; None if nobody did."""
        return self._file.given or None

    @property
    def reached(self) -> Reached | None:
        """The end of the last batch that is merged whole; None if nothing of a captured feed is."""
        return self._file.reached or None

    @property
    def merged(self) -> Reached | None:
        """The end of the last batch that is merged whole, of any feed; None before the first one."""
        return self._file.reached or self._file.merged or None

    @property
    def merged_to(self) -> int | None:
        """The sequence id up to which nothing is missing in the tables; None if that is not known.

        What a version before journals wrote of a feed that is not captured is known by the batch that was begun last alone.
        """
        if self.merged is not None:
            return self.merged.sequence_id
        if self.start is not None:
            return self.start.after
        shown = self.published.sequence_id if self.published is not None else 0
        return max(self.begun, shown) or None

    @property
    def tables(self) -> list[CapturedTable]:
        """The captured tables, by identity, as they were when the ledger was last kept."""
        return list(self._file.tables or ())

    @property
    def attached(self) -> list[AttachedState]:
        """The attached tables of which there is something to keep in mind, by name."""
        return list(self._file.attached or ())

    @property
    def known(self) -> list[CapturedTable | AttachedState]:
        """All of them, captured and attached."""
        return [*self.tables, *self.attached]

    @property
    def left(self) -> list[LeftFolder]:
        """The folders that no published moment names any more."""
        return list(self._file.left or ())

    @property
    def publishes(self) -> list[str]:
        """Times of publishes, one an hour at most, in order."""
        return list(self._file.publishes or ())

    @property
    def cleaned(self) -> dict[str, str]:
        """When the old files of each folder were removed last."""
        return dict(self._file.cleaned or {})

    @property
    def seen(self) -> dict[str, int]:
        """The version of each folder's table when its files were counted last."""
        return dict(self._file.seen or {})

    def keep(self, **members: Any) -> None:
        """Replace members durably, all of them at once.

        start, merged, given, reached, tables, attached, left, publishes, cleaned, seen.
        """
        if "tables" in members:
            members |= self._changed_tables(members.pop("tables"))
        for name in {"cleaned", "seen"} & set(members):
            wanted, there = members[name], getattr(self, name)
            changed = {path: noted for path, noted in wanted.items() if there.get(path) != noted}
            members[name] = changed | dict.fromkeys(set(there) - set(wanted))
        self._change(Change(**members))

    def _changed_tables(self, tables: Iterable[CapturedTable]) -> dict[str, Any]:
        """Return the members of a change that makes these the captured tables."""
        before = {one.identity: one for one in self.tables}
        wanted = {one.identity: one for one in tables}
        changed = [one for identity, one in wanted.items() if before.get(identity) != one]
        gone = [identity for identity in before if identity not in wanted]
        return ({"tables": changed} if changed else {}) | ({"gone": gone} if gone else {})

    def update(self, table: CapturedTable) -> None:
        """Keep one captured table durably: it replaces the one of its identity."""
        self._change(Change(tables=[table]))

    def may_publish(self, last: int) -> bool:
        """Tell whether tables merged up to ``last`` show one moment: not if one may be ahead of it.

        That is so where a checkpoint was lost after some tables were merged further; the stream then catches up first.
        """
        return last >= self.begun

    def publish(self, published: PublishedFile) -> None:
        """Replace ``published.json``: from now on readers see this moment."""
        self._write(PUBLISHED, published)
        self.published = published

    def close(self) -> None:
        """Let another job have the folder."""
        if self._journal is not None:
            self._journal.file.close()
        self._lock.close()

    def _change(self, change: Change) -> None:
        """Make a change durable; only then is it true. After a failure the next one writes the whole ledger anew."""
        after = applied(self._file, [change])
        journal, self._journal = self._journal, None
        if journal is None or journal.size > max(JOURNAL_BYTES_MAX, journal.begun_with):
            if journal is not None:
                journal.file.close()
            self._write_state(after)
            return
        self._append(journal, line_of(change))
        self._journal = journal
        self._file = after

    def _append(self, journal: _Journal, line: bytes) -> None:
        journal.file.write_at(journal.size, line)
        journal.file.sync()
        journal.size += len(line)

    def _write_state(self, state: TablesFile) -> None:
        """Write the whole ledger, and begin another journal."""
        versions = {"written_as": TABLES.written_as, "readable_from": JOURNAL_READABLE_FROM}
        state = msgspec.structs.replace(state, journal=self._file.journal + 1, **versions)
        # What was tried before and failed may have got there.
        there = read_file(self.folder / STATE, TablesFile)
        if there is not None and there.journal >= state.journal:
            state = msgspec.structs.replace(state, journal=there.journal + 1)
        path = self.folder / journal_name(state.journal)
        self._write(STATE, state)
        self._file = state
        file = self._disk.open(path, create=True)
        file.truncate(0)
        file.sync()
        self._disk.sync_folder(self.folder)
        self._journal = _Journal(file, begun_with=(self.folder / STATE).stat().st_size)
        for old in self._disk.list(self.folder, ".journal"):
            if old != path:
                self._disk.remove(old)

    def _write(self, name: str, file: Versioned) -> None:
        self._disk.write_whole(self.folder / name, msgspec.json.format(msgspec.json.encode(file)) + b"\n")


class _Journal:
    """The open journal: ``size`` bytes are durable in it. ``begun_with``: bytes of the state that it goes on from."""

    def __init__(self, file: DiskFile, *, begun_with: int) -> None:
        self.file = file
        self.begun_with = begun_with
        self.size = 0
