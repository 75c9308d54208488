"""What a MariaDB binlog holds, as values: positions, the shapes of tables, one class for each kind of event.

:mod:`headrace.capture.binlog.decode` makes them; whoever assembles transactions takes them. All of them are immutable.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from headrace.errors import BinlogInvalid

_GTID: Final = re.compile(r"([0-9]{1,10})-([0-9]{1,10})-([0-9]{1,20})", re.ASCII)
_POSITION_HINT: Final = "A position of MariaDB is a list of DOMAIN-SERVER-SEQUENCE, such as 0-1-100,1-2-5."


class Gtid(NamedTuple):
    """A transaction's id: replication domain and server (u32 each), and the sequence number in the domain (u64)."""

    domain: int
    server: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> Gtid:
        """Return the GTID that ``text`` writes as ``domain-server-sequence``; BinlogInvalid for anything else."""
        parts = _GTID.fullmatch(text)
        if parts is None:
            raise BinlogInvalid(f"{text!r} is no GTID", hint=_POSITION_HINT)
        return cls(int(parts[1]), int(parts[2]), int(parts[3]))


class GtidPosition(msgspec.Struct, frozen=True):
    """A place in the history of all domains: of each domain the last GTID, ordered by domain. Empty: before everything."""

    gtids: tuple[Gtid, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.gtids))

    @classmethod
    def parse(cls, text: str) -> GtidPosition:
        """Return the position that ``text`` lists with commas, in any order; ``""`` is the empty one.

        BinlogInvalid for anything else, a domain that stands there twice included.
        """
        gtids = sorted(Gtid.parse(part.strip()) for part in text.split(",")) if text.strip() else []
        if len({gtid.domain for gtid in gtids}) != len(gtids):
            raise BinlogInvalid(f"{text!r} names a domain twice", hint=_POSITION_HINT)
        return cls(tuple(gtids))

    def of(self, domain: int) -> Gtid | None:
        """Return the last GTID of ``domain``; None if nothing of it has been."""
        return next((gtid for gtid in self.gtids if gtid.domain == domain), None)

    def advanced(self, gtid: Gtid) -> GtidPosition:
        """Return the position at which ``gtid`` is the last of its domain, whatever was before."""
        if len(self.gtids) == 1 and self.gtids[0].domain == gtid.domain:
            return GtidPosition((gtid,))
        others = (other for other in self.gtids if other.domain != gtid.domain)
        return GtidPosition(tuple(sorted((*others, gtid))))

    def covers(self, gtid: Gtid) -> bool:
        """Tell whether ``gtid`` is at or before this position, by its sequence number in its domain."""
        last = self.of(gtid.domain)
        return last is not None and gtid.sequence <= last.sequence


class Place(NamedTuple):
    """The end of an event in one server's binlog, in bytes from the start of its file. Ordered by the file's number."""

    file: str
    offset: int

    @property
    def order(self) -> tuple[int, int]:
        """What places of one server are compared by: a file's number may outgrow the six digits that it is padded to."""
        number = self.file.rpartition(".")[2]
        return (int(number) if number.isascii() and number.isdigit() else -1), self.offset

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self.order < _order_of(other)

    def __le__(self, other: tuple[object, ...]) -> bool:
        return self.order <= _order_of(other)

    def __gt__(self, other: tuple[object, ...]) -> bool:
        return self.order > _order_of(other)

    def __ge__(self, other: tuple[object, ...]) -> bool:
        return self.order >= _order_of(other)


def _order_of(other: tuple[object, ...]) -> tuple[int, int]:
    if not isinstance(other, Place):
        raise TypeError("a place compares with places alone")
    return other.order


class BinlogColumn(msgspec.Struct, frozen=True):
    """A column as a TABLE_MAP event describes it.

    ``type`` is MySQL's number (:class:`headrace.capture.binlog.table_map.ColumnType`), the real one for ENUM and SET, and
    ``meta`` the number that belongs to it: bytes of a string, digits of a fraction, ``precision << 8 | scale``.
    ``collation`` is the id of a text, ENUM or SET column's collation, None for every other type, and ``charset`` the name
    that the reader's table of collations gives its character set (``""`` if that does not know it). ``labels`` are those of
    ENUM and SET. ``geometry``: the subtype of a GEOMETRY column, which has no other detail.
    """

    name: str
    type: int
    meta: int
    nullable: bool
    unsigned: bool = False
    collation: int | None = None
    charset: str = ""
    labels: tuple[str, ...] = ()
    geometry: int | None = None


class TableMap(msgspec.Struct, frozen=True):
    """The shape of a table's rows, from the event that stands before them.

    ``table_id`` (u48) is the server's number for this shape in the statement at hand, no identity of the table.
    ``primary_key`` holds the places of its columns, from 0, in the key's order; ``()`` if there is none. ``key_prefixes`` is
    of the same length: characters or bytes of that column that the key takes, 0 for all of it.
    ``identity``: equal bytes mean that everything but ``table_id`` is equal.
    """

    table_id: int
    database: str
    table: str
    columns: tuple[BinlogColumn, ...]
    primary_key: tuple[int, ...]
    key_prefixes: tuple[int, ...]
    identity: bytes

    @property
    def name(self) -> str:
        """How errors name the table."""
        return f"{self.database}.{self.table}"


class RowsKind(StrEnum):
    """What a rows event does to its rows."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"


class AlterPhase(StrEnum):
    """Which half of an ALTER TABLE that is logged in two (``binlog_alter_two_phase``) a transaction is."""

    START = "start"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class Event(msgspec.Struct, frozen=True):
    """What every event says.

    ``time_s``: when the statement began, seconds since 1970 by the server's clock (u32; 0 in events made for this reader).
    ``server_id``: the server on which it happened first. ``end``: the offset behind it in the server's current file; an
    event that stands in no file has that of the event before it.
    """

    time_s: int
    server_id: int
    end: int


class Format(Event, frozen=True):
    """FORMAT_DESCRIPTION: how the events that follow are written. ``version`` is the server's."""

    version: str
    checksums: bool


class Rotate(Event, frozen=True):
    """ROTATE: the next event stands at ``offset`` of ``file``. ``fake``: made for this reader, it stands in no file."""

    file: str
    offset: int
    fake: bool


class Begin(Event, frozen=True):
    """GTID: a transaction begins.

    ``standalone``: it is the next Statement alone, with no Commit (DDL). ``ddl``: that is DDL. ``xa``: a part of an XA
    transaction. ``alter``: a part of an ALTER TABLE in two phases.
    """

    gtid: Gtid
    standalone: bool
    ddl: bool
    xa: bool
    alter: AlterPhase | None


class Statement(Event, frozen=True):
    """QUERY: a statement's text, DDL, or ``BEGIN``, ``COMMIT`` and ``ROLLBACK``, which stand as such.

    ``database``: the default one, ``""`` if there was none. ``charset``: of the client; bytes of the text that it does not
    have are U+FFFD in ``sql``. ``error``: the code with which the statement ended at the server (0: well).
    """

    database: str
    sql: str
    charset: str
    ansi_quotes: bool
    no_backslash_escapes: bool
    error: int


class Commit(Event, frozen=True):
    """XID: the transaction is committed."""

    xid: int


class TableMapped(Event, frozen=True):
    """TABLE_MAP: rows of ``table`` may follow."""

    table: TableMap


class RowsChanged(Event, frozen=True):
    """WRITE, UPDATE or DELETE_ROWS: rows of one table, as bytes (uncompressed).

    ``before`` and ``after`` are the bitmaps of the columns that the two images have, None where the kind has no such image.
    ``end_of_statement``: no rows of this statement follow, and the table maps seen so far are void.
    """

    kind: RowsKind
    table_id: int
    column_count: int
    before: bytes | None
    after: bytes | None
    data: bytes
    end_of_statement: bool


class Annotated(Event, frozen=True):
    """ANNOTATE_ROWS: the text of the statement whose rows follow."""

    sql: str


class Heartbeat(Event, frozen=True):
    """HEARTBEAT: the server has nothing to send; its reader stands at ``end`` of ``file``."""

    file: str


class GtidList(Event, frozen=True):
    """GTID_LIST: what was in the binlog before this file (of one domain perhaps several servers: ``gtids`` has them all).

    ``position`` holds the last one of each domain.
    """

    gtids: tuple[Gtid, ...]
    position: GtidPosition


class XaPrepared(Event, frozen=True):
    """XA_PREPARE: an XA transaction is prepared, its outcome comes later; ``one_phase``: it is committed with this."""

    one_phase: bool


class Incident(Event, frozen=True):
    """INCIDENT: the server lost something that should stand here."""

    text: str


class Ended(Event, frozen=True):
    """STOP: the server was shut down here."""


class Ignored(Event, frozen=True):
    """An event of ``type`` that changes nothing for a reader."""

    type: int
