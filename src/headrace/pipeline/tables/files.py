"""The forms of the files beside the tables, and how they are read: by the job that owns them, and by whoever looks on.

Formats: docs/formats/tables.md. ``tables.json`` holds the ledger as it was at some time, its journal what changed since.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeVar

import google_crc32c
import msgspec
from msgspec import UNSET, UnsetType

from headrace.errors import LedgerCorrupt
from headrace.pipeline.tables.attached import AttachedState
from headrace.pipeline.tables.schemas import PlacedSchema, TableSchema
from headrace.pipeline.tables.states import CapturedTable, LeftFolder, Reached, Start
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import TABLES, check_readable

FOLDER: Final = "_headrace"
STATE: Final = "tables.json"
PUBLISHED: Final = "published.json"
JOURNAL_READABLE_FROM: Final = 3
"""Programs of older versions know no journal: they would go on from what was true before it."""
_READ_TIMES_MAX: Final = 20
"""A reader without the lock may meet a job that begins another journal; so often in a row is no chance."""


class Versioned(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A file's format versions."""

    written_as: int = TABLES.written_as
    readable_from: int = TABLES.readable_from


class TablesFile(Versioned, frozen=True, kw_only=True, rename="kebab"):
    """``tables.json``: the feed these tables are of, its incarnation, and every schema seen so far.

    ``begun``: the last sequence id of the furthest batch whose merges were begun; no table can be ahead of it. ``journal``:
    the number of the journal whose changes come on top, 0 for none. ``instance``: names this folder's job at the server.
    ``start``: where the tables began. ``merged``: the end of the last batch that is merged whole, of feeds that are not
    captured. ``given``: the columns of entries that name no table, where an operator gave them. The others are there for
    captured feeds: the ``tables`` as ``reached`` left them; ``left``: folders to be removed. ``publishes``: times of
    publishes, one an hour, of the last days. ``cleaned``: when a folder's old files were removed. ``seen``: its version when
    its files were counted.
    """

    feed: str
    incarnation: str
    schemas: list[PlacedSchema]
    begun: int = 0
    journal: int = 0
    instance: str = ""
    start: Start | UnsetType = UNSET
    merged: Reached | UnsetType = UNSET
    given: TableSchema | UnsetType = UNSET
    reached: Reached | UnsetType = UNSET
    tables: list[CapturedTable] | UnsetType = UNSET
    left: list[LeftFolder] | UnsetType = UNSET
    publishes: list[str] | UnsetType = UNSET
    cleaned: dict[str, str] | UnsetType = UNSET
    seen: dict[str, int] | UnsetType = UNSET
    attached: list[AttachedState] | UnsetType = UNSET


class Change(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """One change of a ledger, durable as a whole: members that are there replace, but for these.

    ``schemas`` are added, ``tables`` replace those of their identities, ``gone`` are identities that are no more.
    ``cleaned`` and ``seen`` are added too; null takes a folder out.
    """

    begun: int | UnsetType = UNSET
    schemas: list[PlacedSchema] | UnsetType = UNSET
    start: Start | UnsetType = UNSET
    merged: Reached | UnsetType = UNSET
    given: TableSchema | UnsetType = UNSET
    reached: Reached | UnsetType = UNSET
    tables: list[CapturedTable] | UnsetType = UNSET
    gone: list[int] | UnsetType = UNSET
    left: list[LeftFolder] | UnsetType = UNSET
    publishes: list[str] | UnsetType = UNSET
    cleaned: dict[str, str | None] | UnsetType = UNSET
    seen: dict[str, int | None] | UnsetType = UNSET
    attached: list[AttachedState] | UnsetType = UNSET


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

    ``lsn``: of the entry ``sequence_id``; empty where it is not known. ``commit_ts``: the greatest WATERMARK at or below
    the moment: all that was committed up to it is in the tables.
    """

    feed: str
    incarnation: str
    sequence_id: int
    lsn: str
    published_at: str
    tables: list[PublishedTable]
    commit_ts: int | UnsetType = UNSET


F = TypeVar("F", bound=Versioned)
_REPLACED: Final = ("begun", "start", "merged", "given", "reached", "left", "publishes", "attached")


def applied(file: TablesFile, changes: Iterable[Change]) -> TablesFile:
    """Return the ledger behind these changes, in order."""
    schemas = {one.identity: one for one in file.schemas}
    tables = {one.identity: one for one in file.tables or ()}
    cleaned: dict[str, str | None] = dict(file.cleaned or {})
    seen: dict[str, int | None] = dict(file.seen or {})
    members = {name: getattr(file, name) for name in _REPLACED}
    for change in changes:
        members |= {name: value for name in _REPLACED if (value := getattr(change, name)) is not UNSET}
        schemas |= {one.identity: one for one in change.schemas or ()}
        for identity in change.gone or ():
            tables.pop(identity, None)
        tables |= {one.identity: one for one in change.tables or ()}
        cleaned |= change.cleaned or {}
        seen |= change.seen or {}
    return msgspec.structs.replace(
        file,
        schemas=[schemas[identity] for identity in sorted(schemas)],
        tables=[tables[identity] for identity in sorted(tables)] if tables or file.tables else UNSET,
        cleaned={path: at for path, at in cleaned.items() if at is not None} or UNSET,
        seen={path: version for path, version in seen.items() if version is not None} or UNSET,
        **members,
    )


def line_of(change: Change) -> bytes:
    """Return a change as one line of a journal: CRC-32C in eight hexadecimal digits, a space, JSON."""
    text = msgspec.json.encode(change)
    return b"%08x %s\n" % (google_crc32c.value(text), text)


def changes_in(data: bytes, where: str) -> list[Change]:
    """Return the changes of a journal. Its last line may be torn: then it was never durable, and is passed over.

    LedgerCorrupt for a damaged line that others follow.
    """
    lines = data.split(b"\n")[:-1]
    found: list[Change] = []
    for number, line in enumerate(lines, 1):
        checksum, _, text = line.partition(b" ")
        if checksum != b"%08x" % google_crc32c.value(text):
            if number == len(lines):
                break
            raise LedgerCorrupt(f"{where}: line {number} is damaged, and others follow it")
        try:
            found.append(decode_json(text, Change))
        except msgspec.MsgspecError as error:
            raise LedgerCorrupt(f"{where}, line {number}: {error}") from None
    return found


def journal_name(number: int) -> str:
    """Return the name of a journal's file."""
    return f"tables-{number}.journal"


def read_state(folder: Path) -> TablesFile | None:
    """Return the ledger in the ``_headrace`` folder, its journal's changes applied; None if there is none.

    Raises LedgerCorrupt, FormatTooNew. A job may be writing meanwhile: then it is some state that the ledger had.
    """
    for _ in range(_READ_TIMES_MAX):
        file = read_file(folder / STATE, TablesFile)
        if file is None or not file.journal:
            return file
        path = folder / journal_name(file.journal)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            if read_file(folder / STATE, TablesFile) == file:
                return file  # nothing has changed since it was begun
            continue
        return applied(file, changes_in(data, str(path)))
    raise LedgerCorrupt(f"{folder / STATE} names journals that are not there", hint="Try again.")


def read_file(path: Path, kind: type[F]) -> F | None:
    """Return a file's content; None if it isn't there. Raises LedgerCorrupt, FormatTooNew."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        versions = decode_json(data, Versioned)
        check_readable(str(path), versions.readable_from, TABLES)
        return decode_json(data, kind)
    except msgspec.MsgspecError as error:
        raise LedgerCorrupt(f"{path}: {error}") from None


def read_published(to: Path) -> PublishedFile | None:
    """Return what was published last in the tables' folder ``to``; None if nothing was yet."""
    return read_file(to / FOLDER / PUBLISHED, PublishedFile)


def read_tables_file(to: Path) -> TablesFile | None:
    """Return what is known of the tables in the folder ``to``; None if there are none. A running job may be ahead of it."""
    return read_state(to / FOLDER)
