"""What the tables job keeps beside its tables, in ``_headrace/``: which feed they are of, schemas, what was published.

Formats: docs/formats/tables.md. Files are replaced whole and durably, so a reader sees the old one or the new one. The
folder is one that the driver and all workers reach by the same path (a local disk, or a mount on a cluster).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from headrace.errors import ConfigInvalid, DataFolderLocked, FeedRecreated, Stopped
from headrace.pipeline.tables.schemas import PlacedSchema, SchemaHistory, TableName
from headrace.pipeline.tables.states import CapturedTable, LeftFolder, Reached, Request
from headrace.runtime.disk import Disk, DiskFile
from headrace.wire.versions import TABLES, check_readable

FOLDER: Final = "_headrace"
REQUESTS: Final = "requests"
PLAIN: Final = "entries"
"""Folder of the table of entries that name no table."""

FOLDER_BYTES_MAX: Final = 255
"""What file systems allow; PostgreSQL's longest names of tables take 380 where every letter is written in hex."""

_DELTA_COMMIT: Final = re.compile(r"(\d{20})\.json")
_SAFE: Final = re.compile(r"[A-Za-z0-9_-]")


class LedgerCorrupt(Stopped):
    """A file beside the tables can't be read."""

    code = "tables-ledger-corrupt"
    hint = (
        "Restore the `_headrace` folder from a backup, or start this feed's tables anew in an empty folder."
    )
    exit_code = 3


class Versioned(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A file's format versions."""

    written_as: int = TABLES.written_as
    readable_from: int = TABLES.readable_from


class TablesFile(Versioned, frozen=True, kw_only=True, rename="kebab"):
    """``tables.json``: the feed these tables are of, its incarnation, and every schema seen so far.

    ``begun``: the last sequence id of the furthest batch whose merges were begun; no table can be ahead of it. The others
    are there for captured feeds: the ``tables`` as ``reached`` left them; ``left``: folders to be removed.
    ``publishes``: times of publishes, one an hour, of the last days. ``cleaned``: when a folder's old files were removed.
    """

    feed: str
    incarnation: str
    schemas: list[PlacedSchema]
    begun: int = 0
    reached: Reached | UnsetType = UNSET
    tables: list[CapturedTable] | UnsetType = UNSET
    left: list[LeftFolder] | UnsetType = UNSET
    publishes: list[str] | UnsetType = UNSET
    cleaned: dict[str, str] | UnsetType = UNSET


class PublishedTable(msgspec.Struct, frozen=True, rename="kebab"):
    """One table of a published moment: its name in the feed (empty: the one without types), its folder, its version.

    ``stopped_after``: the table is stopped, and shows the feed up to this sequence id alone.
    """

    table: list[str]
    path: str
    version: int
    stopped_after: int | UnsetType = UNSET


class PublishedFile(Versioned, frozen=True, kw_only=True, rename="kebab"):
    """``published.json``: one moment of the feed, and the Delta version of each table that shows it.

    ``commit_ts``: the greatest WATERMARK at or below the moment: all that was committed up to it is in the tables.
    """

    feed: str
    incarnation: str
    sequence_id: int
    lsn: str
    published_at: str
    tables: list[PublishedTable]
    commit_ts: int | UnsetType = UNSET


_MORE: Final = ("reached", "tables", "left", "publishes", "cleaned")
F = TypeVar("F", bound=Versioned)


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


def newest_version(table: Path) -> int | None:
    """Return the newest version of the Delta table in this folder; None if there is no table."""
    log = table / "_delta_log"
    found = [_DELTA_COMMIT.fullmatch(path.name) for path in log.iterdir()] if log.is_dir() else []
    return max((int(match[1]) for match in found if match), default=None)


def read_published(to: Path) -> PublishedFile | None:
    """Return what was published last in the tables' folder ``to``; None if nothing was yet."""
    return _read(to / FOLDER / "published.json", PublishedFile)


def read_tables_file(to: Path) -> TablesFile | None:
    """Return what is known of the tables in the folder ``to``; None if there are none. A running job may be ahead of it."""
    return _read(to / FOLDER / "tables.json", TablesFile)


def leave_request(to: Path, request: Request, *, disk: Disk | None = None) -> None:
    """Leave a request for the job that keeps the tables in ``to``: durably, and one for each table."""
    folder = to / FOLDER / REQUESTS
    disk = disk or Disk()
    disk.make_folder(folder)
    disk.write_whole(folder / _request_name(request), msgspec.json.encode(request))


def _request_name(request: Request) -> str:
    return f"{hashlib.sha256(msgspec.json.encode(request.table)).hexdigest()[:32]}.json"


class Ledger:
    """The ``_headrace`` folder of one tables job; owned by one process at a time. Close it to let another one in."""

    def __init__(self, to: Path, feed: str, incarnation: str, *, disk: Disk | None = None) -> None:
        """Open it, or begin it if the folder is new.

        Raises DataFolderLocked if another job has it, ConfigInvalid if the folder holds tables of another feed,
        FeedRecreated if they are of another history of this one, FormatTooNew, LedgerCorrupt.
        """
        self._disk = disk or Disk()
        self.to = to
        self.folder = to / FOLDER
        self._disk.make_folder(self.folder)
        self._lock: DiskFile = self._disk.open(self.folder / "lock", create=True)
        try:
            if not self._lock.lock():
                raise DataFolderLocked(
                    f"another job keeps the tables in {to}",
                    hint="Stop the other one, or give this one its own folder.",
                )
            found = _read(self.folder / "tables.json", TablesFile)
            if found is None:
                found = TablesFile(feed=feed, incarnation=incarnation, schemas=[])
                self._write("tables.json", found)
            self._check(found, feed, incarnation)
            self.published = read_published(to)
        except BaseException:
            self._lock.close()
            raise
        self.feed = feed
        self.incarnation = incarnation
        self.schemas = SchemaHistory(list(found.schemas))
        self._begun = found.begun
        self._more = {name: getattr(found, name) for name in _MORE}

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

    def begin(self, last: int, schemas: list[PlacedSchema]) -> None:
        """Note durably, before any table follows, that a batch up to the sequence id ``last`` begins, and its schemas."""
        fresh = self.schemas.add(schemas)
        if fresh or last > self._begun:
            self._begun = max(self._begun, last)
            self._save()

    @property
    def reached(self) -> Reached | None:
        """The end of the last batch that is merged whole; None if nothing of a captured feed is."""
        return self._more["reached"] or None

    @property
    def tables(self) -> list[CapturedTable]:
        """The captured tables, by identity, as they were when the ledger was last kept."""
        return list(self._more["tables"] or ())

    @property
    def left(self) -> list[LeftFolder]:
        """The folders that no published moment names any more."""
        return list(self._more["left"] or ())

    @property
    def publishes(self) -> list[str]:
        """Times of publishes, one an hour at most, in order."""
        return list(self._more["publishes"] or ())

    @property
    def cleaned(self) -> dict[str, str]:
        """When the old files of each folder were removed last."""
        return dict(self._more["cleaned"] or {})

    def keep(self, **members: Any) -> None:
        """Replace members of ``tables.json`` durably: reached, tables, left, publishes, cleaned."""
        self._more |= members
        self._save()

    def update(self, table: CapturedTable) -> None:
        """Keep one captured table durably: it replaces the one of its identity."""
        others = [one for one in self.tables if one.identity != table.identity]
        self.keep(tables=sorted([*others, table], key=lambda one: one.identity))

    def requests(self) -> list[Request]:
        """Return what operators ask for."""
        found = sorted((self.folder / REQUESTS).glob("*.json"))
        return [msgspec.json.decode(path.read_bytes(), type=Request) for path in found]

    def served(self, request: Request) -> None:
        """Forget a request."""
        (self.folder / REQUESTS / _request_name(request)).unlink(missing_ok=True)

    def _save(self) -> None:
        file = TablesFile(
            feed=self.feed,
            incarnation=self.incarnation,
            schemas=list(self.schemas.placed),
            begun=self._begun,
            # A program of version 1 would pass over what it does not know, and show captured tables wrongly.
            readable_from=2 if self.tables else 1,
            **self._more,
        )
        self._write("tables.json", file)

    def may_publish(self, last: int) -> bool:
        """Tell whether tables merged up to ``last`` show one moment: not if one may be ahead of it.

        That is so where a checkpoint was lost after some tables were merged further; the stream then catches up first.
        """
        return last >= self._begun

    def publish(self, published: PublishedFile) -> None:
        """Replace ``published.json``: from now on readers see this moment."""
        self._write("published.json", published)
        self.published = published

    def close(self) -> None:
        """Let another job have the folder."""
        self._lock.close()

    def _write(self, name: str, file: Versioned) -> None:
        self._disk.write_whole(self.folder / name, msgspec.json.format(msgspec.json.encode(file)) + b"\n")


def _read(path: Path, kind: type[F]) -> F | None:
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        versions = msgspec.json.decode(data, type=Versioned)
        check_readable(str(path), versions.readable_from, TABLES)
        return msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise LedgerCorrupt(f"{path}: {error}") from None
