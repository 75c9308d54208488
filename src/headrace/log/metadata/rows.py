"""Rows of the metadata database and their checksums, the same in both stores. Pure.

A database finds what is wrong with its pages, not a bit that flipped inside a value. So each row carries a CRC-32C of its
table's name and of all its columns: written with the row by whoever writes it, compared by whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

import google_crc32c

from headrace.errors import MetadataCorrupt
from headrace.wire.versions import FormatVersion

R = TypeVar("R", bound=tuple[Any, ...])
Key = tuple[Any, ...]


class ListenerRow(NamedTuple):
    """A registered listener and the bookmark it last reported; ``sequence_id`` is None if it never did."""

    listener_id: str
    feed: str
    hold: bool
    incarnation: str | None
    sequence_id: int | None
    lsn: str | None
    seen_at_ms: int


class SubscriberRow(NamedTuple):
    """A subscriber of the stream over all feeds (RFC-010). ``subject`` is who it is (``anonymous`` without a token),
    ``subscriber_id`` the name that it gave itself (empty if none).

    ``lsn`` is its place: everything up to there is acked, or was never asked for.
    """

    subject: str
    subscriber_id: str
    lsn: str
    seen_at_ms: int


class AlarmRow(NamedTuple):
    """Something that needs a person; ``cleared_at_ms`` is None while it stands."""

    alarm_id: int
    code: str
    feed: str
    agent_id: str
    detail: str
    raised_at_ms: int
    cleared_at_ms: int | None


class HydrationRow(NamedTuple):
    """A listener's hydration lease (design §4, rule 6): entries of ``incarnation`` from ``holds_from`` on are retained until
    ``expires_at_ms``.

    ``snapshot_id`` and ``sequence_id``: the snapshot that it takes, and what that stands for; None until it named one.
    """

    listener_id: str
    feed: str
    incarnation: str
    holds_from: int
    snapshot_id: str | None
    sequence_id: int | None
    renewed_at_ms: int
    expires_at_ms: int


class SnapshotRow(NamedTuple):
    """Where the publisher of a feed serves its snapshots, as it said when it registered with this ``epoch``.

    ``url`` None: it serves none. ``ticket_key``: base64url, the secret that tickets are signed with; never shown.
    """

    feed: str
    incarnation: str
    epoch: int
    url: str | None
    ticket_key: str

    def __repr__(self) -> str:
        """Return what holds no secret."""
        return f"SnapshotRow(feed={self.feed!r}, epoch={self.epoch}, url={self.url!r})"


class OwnerRow(NamedTuple):
    """Whose a listener is: the ``subject`` of the token that registered it. A listener without such a row is nobody's."""

    listener_id: str
    feed: str
    subject: str


class SchemaRow(NamedTuple):
    """A table's schema: the value of the entry of ``feed`` at ``sequence_id`` and ``lsn``, kept when that was dropped."""

    feed: str
    database_name: str
    table_name: str
    version: int
    sequence_id: int
    lsn: str
    value: bytes


class ProgressRow(NamedTuple):
    """Up to where something had come when: see ``headrace.wire.passages``, which ``points`` are bytes of.

    ``consumer``: ``listener``, ``subscriber`` or ``journal``. ``subject`` and ``name``: who. ``feed``: empty for who goes
    along all feeds; its places are LSNs then, and positions of the journal itself. ``step``: ``delivered``, ``acked`` or
    ``durable``. ``incarnation``: of the feed, empty for all feeds. ``wanted``: the filter that it asked with last.
    """

    consumer: str
    subject: str
    name: str
    feed: str
    step: str
    incarnation: str
    wanted: str
    moved_at_ms: int
    points: bytes


class ReportRow(NamedTuple):
    """The last that a process said of itself: ``kind`` (agent, capture, …) and ``name`` are whose it is.

    ``subject``: of the token that it reported with. ``reported_at_ms``: when the server got it. ``document``: JSON.
    """

    kind: str
    name: str
    subject: str
    reported_at_ms: int
    document: str


class SlotRow(NamedTuple):
    """A replication slot: a subscriber with a name of its own that is followed over PostgreSQL's replication protocol.

    ``slot_id``: a UUID; a slot that is dropped and made anew has another one. ``subject``: whose token made it. ``plugin``:
    its output format. ``options``: JSON, what it was made with. ``position``: up to there its client has confirmed
    everything. ``holder``: the server at which it is in use, empty if at none; void from ``held_until_ms`` on. Its place,
    which holds retention, is a :class:`SubscriberRow`: :func:`slot_subscriber`.
    """

    name: str
    slot_id: str
    subject: str
    plugin: str
    options: str
    position: int
    holder: str
    held_until_ms: int


def slot_subscriber(name: str) -> str:
    """Return the ``subscriber_id`` of the place of a slot. No subscriber can call itself so: it has a space."""
    return f"slot {name}"


class SlotMove(NamedTuple):
    """What the client of a slot has confirmed: all up to ``position``; what is above ``lsn`` is still to be held.

    It fits the slot of this ``slot_id`` while ``holder`` has it: whoever has lost a slot moves it no more.
    """

    name: str
    slot_id: str
    holder: str
    position: int
    lsn: str

    def fits(self, row: SlotRow) -> bool:
        """Tell whether it may move this slot."""
        return (row.slot_id, row.holder) == (self.slot_id, self.holder)


JOURNAL: Final = "journal"
"""The name of the one :class:`SchemaMark`."""


class SchemaMark(NamedTuple):
    """Up to which ``position`` of the journal all schemas are kept: one row, ``name`` is ``journal``.

    ``frame_position`` and ``global_ts`` are those of the frame that ends there, 0 if none was looked at: a journal that was
    put back has another one there.
    """

    name: str
    position: int
    frame_position: int
    global_ts: int


@dataclass(frozen=True, slots=True)
class Table(Generic[R]):
    """A table whose rows are ``R``. ``columns``: all but the checksum, which stands in a column ``crc`` behind them; the
    first ``keys`` of them are the key.
    """

    name: str
    columns: tuple[str, ...]
    keys: int
    make: Callable[..., R]

    def stamped(self, row: R) -> tuple[Any, ...]:
        """Return the row as it is stored: its columns, then its checksum."""
        return *row, row_checksum(self.name, row)

    def key_of(self, stored: Sequence[Any]) -> Key:
        """Return the key of a row, stored or not."""
        return tuple(stored[: self.keys])

    def whole(self, stored: Sequence[Any]) -> R | None:
        """Return a stored row (columns, checksum) as it was written; None if any bit of it is another."""
        *values, crc = stored
        try:
            intact = type(crc) is int and row_checksum(self.name, values) == crc
        except (TypeError, OverflowError):  # a value of a type that nobody wrote
            return None
        return self.make(*values) if intact else None


def _listener(*values: Any) -> ListenerRow:
    listener_id, feed, hold, *rest = values  # SQLite has no booleans
    return ListenerRow(listener_id, feed, bool(hold), *rest)


LISTENER: Final = Table("listener", ListenerRow._fields, 2, _listener)
SUBSCRIBER: Final = Table("subscriber", SubscriberRow._fields, 2, SubscriberRow)
ALARM: Final = Table("alarm", AlarmRow._fields, 1, AlarmRow)
HYDRATION: Final = Table("hydration", HydrationRow._fields, 2, HydrationRow)
SNAPSHOT: Final = Table("snapshot", SnapshotRow._fields, 1, SnapshotRow)
OWNER: Final = Table("listener_owner", OwnerRow._fields, 2, OwnerRow)
SCHEMA: Final = Table("table_schema", SchemaRow._fields, 4, SchemaRow)
SCHEMA_MARK: Final = Table("schema_mark", SchemaMark._fields, 1, SchemaMark)
PROGRESS: Final = Table("progress", ProgressRow._fields, 5, ProgressRow)
REPORT: Final = Table("report", ReportRow._fields, 2, ReportRow)
SLOT: Final = Table("slot", SlotRow._fields, 1, SlotRow)
FORMAT: Final = Table("format", FormatVersion._fields, 0, FormatVersion)
TABLES: Final[tuple[Table[Any], ...]] = (
    LISTENER, SUBSCRIBER, ALARM, HYDRATION, SNAPSHOT, OWNER, SCHEMA, SCHEMA_MARK, PROGRESS, REPORT,
    SLOT,
)  # fmt: skip
"""Those whose rows stand for themselves: one that is damaged concerns no other."""
ADDED: Final[dict[int, tuple[Table[Any], ...]]] = {
    3: (HYDRATION, SNAPSHOT),
    4: (OWNER,),
    5: (SCHEMA, SCHEMA_MARK),
    6: (PROGRESS, REPORT),
    7: (SLOT,),
}
"""Those that a format added, by its version. Format 2 had all the others."""
OF_LISTENER: Final = frozenset({LISTENER.name, HYDRATION.name, OWNER.name})
"""The names of those whose key is a listener's id and a feed."""


def row_checksum(table: str, values: Iterable[Any]) -> int:
    """Return the CRC-32C of a row: of the table's name and of the values, encoded as docs/formats/metadata.md says.

    TypeError or OverflowError for a value that is no text, no bytes, no 64-bit integer and not NULL.
    """
    return int(google_crc32c.value(b"".join(map(_encoded, (table, *values)))))


def _encoded(value: Any) -> bytes:
    if value is None:
        return b"\x00"
    if isinstance(value, int):
        return b"\x01" + int(value).to_bytes(8, "little", signed=True)
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogateescape")
        return b"\x02" + len(data).to_bytes(4, "little") + data
    if isinstance(value, bytes):
        return b"\x03" + len(value).to_bytes(4, "little") + value
    raise TypeError(f"{type(value).__name__} is no type of a column")


def snapshot_of(known: SnapshotRow | None, said: SnapshotRow) -> SnapshotRow:
    """Return what stands once ``said`` was said where ``known`` stood: see ``Metadata.keep_snapshot``."""
    if known is None or known.incarnation != said.incarnation or known.epoch < said.epoch:
        return said
    return known._replace(url=said.url) if known.epoch == said.epoch else known


class RowDamage(NamedTuple):
    """A row that fails its checksum. ``detail`` names file, table and key, as far as they can be read."""

    table: str
    key: Key
    detail: str

    @property
    def feed(self) -> str:
        """The feed it is about, empty if it is about none."""
        if self.table in {SNAPSHOT.name, SCHEMA.name}:
            return _shown(self.key[0])
        if self.table == PROGRESS.name:
            return _shown(self.key[3])
        return _shown(self.key[1]) if self.table in OF_LISTENER else ""

    @property
    def who(self) -> str:
        """Whose row it is: a listener's id, a subscriber's name, ``alarm N``."""
        if self.table in OF_LISTENER:
            return _shown(self.key[0])
        if self.table == SUBSCRIBER.name:
            return "/".join(_shown(part) for part in self.key if part != "")
        if self.table == SCHEMA.name:
            return f"schema {'/'.join(map(_shown, self.key[1:]))}"
        if self.table == PROGRESS.name:
            return f"progress {'/'.join(map(_shown, self.key))}"
        if self.table == REPORT.name:
            return f"report {'/'.join(map(_shown, self.key))}"
        return f"{self.table} {_shown(self.key[0])}"

    def error(self) -> MetadataCorrupt:
        """Return what whoever depends on this row is told."""
        return MetadataCorrupt(self.detail)


def damage_of(where: str, table: Table[Any], stored: Sequence[Any]) -> RowDamage:
    """Return what is to be said of a stored row that is not whole; ``where`` names the table."""
    key = table.key_of(stored)
    named = ", ".join(map(_shown, key))
    return RowDamage(table.name, key, f"{where}, key ({named}): the row fails its checksum")


def _shown(value: object) -> str:
    """Text of a damaged row may be any bytes."""
    return str(value).encode("utf-8", "backslashreplace").decode()
