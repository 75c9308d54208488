"""The numbers of kinds of events: MySQL's below 160, MariaDB's own above."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class EventKind(IntEnum):
    """What stands in an event's header; errors name kinds by these names."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    INTVAR = 5
    LOAD = 6
    CREATE_FILE = 8
    APPEND_BLOCK = 9
    EXEC_LOAD = 10
    DELETE_FILE = 11
    NEW_LOAD = 12
    RAND = 13
    USER_VAR = 14
    FORMAT_DESCRIPTION = 15
    XID = 16
    BEGIN_LOAD_QUERY = 17
    EXECUTE_LOAD_QUERY = 18
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    IGNORABLE = 28
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    MYSQL_GTID = 33
    MYSQL_ANONYMOUS_GTID = 34
    MYSQL_PREVIOUS_GTIDS = 35
    XA_PREPARE = 38
    MYSQL_PARTIAL_UPDATE_ROWS = 39
    MYSQL_TRANSACTION_PAYLOAD = 40
    ANNOTATE_ROWS = 160
    BINLOG_CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED_V1 = 166
    UPDATE_ROWS_COMPRESSED_V1 = 167
    DELETE_ROWS_COMPRESSED_V1 = 168
    WRITE_ROWS_COMPRESSED = 169
    UPDATE_ROWS_COMPRESSED = 170
    DELETE_ROWS_COMPRESSED = 171


_K = EventKind
MYSQL: Final = frozenset(kind for kind in EventKind if kind.name.startswith("MYSQL_"))
"""Kinds of events that only MySQL writes."""
STATEMENT_FORMAT: Final = frozenset(
    {
        *(_K.LOAD, _K.CREATE_FILE, _K.APPEND_BLOCK, _K.EXEC_LOAD, _K.DELETE_FILE, _K.NEW_LOAD),
        *(_K.BEGIN_LOAD_QUERY, _K.EXECUTE_LOAD_QUERY),
    }
)
"""LOAD DATA as a statement: what it changes is not told."""


def kind_name(number: int) -> str:
    """Return how errors name the kind of an event."""
    return EventKind(number).name if number in _NUMBERS else f"kind {number}"


_NUMBERS: Final = frozenset(EventKind)
