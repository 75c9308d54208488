"""SQLSTATEs: what an error is called in PostgreSQL's protocol. The one table of them; docs/reference/pg.md lists it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from headrace.errors import (
    BeyondHead,
    FeedNotFound,
    Forbidden,
    HeadraceError,
    InvalidRequest,
    JournalCorrupt,
    KeysUnavailable,
    LsnNotAvailable,
    MetadataCorrupt,
    SequenceLost,
    StoreUnavailable,
    Unauthenticated,
    Unavailable,
    ValueUnfit,
)


class SqlState(StrEnum):
    """The codes that are answered, with PostgreSQL's names."""

    WARNING = "01000"
    CONNECTION_FAILURE = "08006"
    PROTOCOL_VIOLATION = "08P01"
    FEATURE_NOT_SUPPORTED = "0A000"
    INVALID_PARAMETER_VALUE = "22023"
    INVALID_TEXT_REPRESENTATION = "22P02"
    INVALID_AUTHORIZATION = "28000"
    INVALID_PASSWORD = "28P01"  # noqa: S105  # no password but a code
    INVALID_CATALOG_NAME = "3D000"
    INSUFFICIENT_PRIVILEGE = "42501"
    SYNTAX_ERROR = "42601"
    INVALID_NAME = "42602"
    UNDEFINED_OBJECT = "42704"
    DUPLICATE_OBJECT = "42710"
    UNDEFINED_COLUMN = "42703"
    UNDEFINED_FUNCTION = "42883"
    UNDEFINED_TABLE = "42P01"
    CONFIGURATION_LIMIT_EXCEEDED = "53400"
    TOO_MANY_CONNECTIONS = "53300"
    PROGRAM_LIMIT_EXCEEDED = "54000"
    NOT_IN_PREREQUISITE_STATE = "55000"
    OBJECT_IN_USE = "55006"
    QUERY_CANCELED = "57014"
    ADMIN_SHUTDOWN = "57P01"
    CANNOT_CONNECT_NOW = "57P03"
    INTERNAL_ERROR = "XX000"
    DATA_CORRUPTED = "XX001"


class PgError(Exception):
    """An answer that says no in PostgreSQL's words. ``fatal``: the connection ends with it."""

    def __init__(
        self, state: SqlState, message: str, *, hint: str = "", detail: str = "", fatal: bool = False
    ) -> None:
        self.state = state
        self.message = message
        self.hint = hint
        self.detail = detail
        self.fatal = fatal
        super().__init__(message)


_STATES: Final[tuple[tuple[type[HeadraceError], SqlState], ...]] = (
    (InvalidRequest, SqlState.INVALID_PARAMETER_VALUE),
    (Unauthenticated, SqlState.INVALID_PASSWORD),
    (Forbidden, SqlState.INSUFFICIENT_PRIVILEGE),
    (FeedNotFound, SqlState.INVALID_CATALOG_NAME),
    (ValueUnfit, SqlState.INVALID_TEXT_REPRESENTATION),
    (BeyondHead, SqlState.INVALID_PARAMETER_VALUE),
    (LsnNotAvailable, SqlState.NOT_IN_PREREQUISITE_STATE),
    (SequenceLost, SqlState.DATA_CORRUPTED),
    (JournalCorrupt, SqlState.DATA_CORRUPTED),
    (MetadataCorrupt, SqlState.DATA_CORRUPTED),
    (KeysUnavailable, SqlState.CANNOT_CONNECT_NOW),
    (StoreUnavailable, SqlState.CANNOT_CONNECT_NOW),
    (Unavailable, SqlState.CANNOT_CONNECT_NOW),
)


def pg_error(error: HeadraceError, *, fatal: bool = False) -> PgError:
    """Return ``error`` as it is answered: its own words, its hint, its stable code as the detail."""
    state = next((state for kind, state in _STATES if isinstance(error, kind)), SqlState.INTERNAL_ERROR)
    return PgError(state, error.detail, hint=error.advice, detail=f"code: {error.code}", fatal=fatal)
