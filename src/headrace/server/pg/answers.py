"""Answers to the small SQL of ``queries``: settings, functions, and the one relation that there is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from headrace import __version__
from headrace.access.grants import Grant
from headrace.log.log import Log
from headrace.server.guard import StreamRights
from headrace.server.pg.commands import slot_name
from headrace.server.pg.lsn import lsn_text
from headrace.server.pg.output.registry import OUTPUTS
from headrace.server.pg.queries import Call, Column, Item, Literal, Select, Star
from headrace.server.pg.slot_views import SlotOptions, SlotView
from headrace.server.pg.slots import Slots
from headrace.server.pg.sqlstate import PgError, SqlState

SERVER_VERSION: Final = "15.0"
"""The version of PostgreSQL whose replication commands are spoken: clients choose the syntax of options by it."""
VERSION: Final = f"PostgreSQL {SERVER_VERSION} (Headrace {__version__})"

ANSWER_BYTES_MAX: Final = 1 << 20
"""Most bytes of an answer, about: all slots that there may be take half of it. More would hold up everybody else."""
VALUE_BYTES: Final = 4
"""Of each value, in front of it."""

_SETTINGS: Final[Mapping[str, str]] = {
    "server_version": SERVER_VERSION,
    "server_version_num": "150000",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "is_superuser": "off",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
    "transaction_read_only": "off",
    "transaction_isolation": "read committed",
    "search_path": "",
    "wal_level": "logical",
    "wal_segment_size": "16MB",
    "data_directory_mode": "0700",
    "headrace.version": __version__,
}
REPORTED: Final[Mapping[str, str]] = {
    "server_version": "server_version",
    "server_encoding": "server_encoding",
    "client_encoding": "client_encoding",
    "DateStyle": "datestyle",
    "IntervalStyle": "intervalstyle",
    "TimeZone": "timezone",
    "integer_datetimes": "integer_datetimes",
    "standard_conforming_strings": "standard_conforming_strings",
    "is_superuser": "is_superuser",
    "in_hot_standby": "in_hot_standby",
    "default_transaction_read_only": "default_transaction_read_only",
}
"""Settings that are told at the beginning of a session, by the names that clients know."""
SLOT_COLUMNS: Final = (
    "slot_name", "plugin", "slot_type", "datoid", "database", "temporary", "active", "active_pid", "xmin",
    "catalog_xmin", "restart_lsn", "confirmed_flush_lsn", "wal_status", "safe_wal_size", "two_phase",
)  # fmt: skip
"""Those of PostgreSQL 15's ``pg_replication_slots``, in its order."""

Row = Mapping[str, str | None]


class Answer(NamedTuple):
    """Columns and rows."""

    names: Sequence[str]
    rows: Sequence[Sequence[str | None]]


@dataclass(slots=True)
class Asking:
    """Whose session asks. ``warn`` tells it what it should know beside an answer."""

    user: str
    database: str
    grant: Grant
    rights: StreamRights | None
    pid: int
    settings: dict[str, str]
    warn: Callable[[PgError], None]


class Answers:
    """What one server answers."""

    def __init__(self, log: Log, slots: Slots) -> None:
        self._log = log
        self._slots = slots
        self._functions: Mapping[str, Callable[[Asking, Sequence[str | None]], Awaitable[str | None]]] = {
            "version": self._version,
            "current_setting": self._current_setting,
            "set_config": self._set_config,
            "pg_current_wal_lsn": self._end,
            "pg_current_wal_flush_lsn": self._end,
            "pg_current_wal_insert_lsn": self._end,
            "current_database": self._database,
            "current_schema": self._schema,
            "current_user": self._user,
            "session_user": self._user,
            "user": self._user,
            "pg_backend_pid": self._pid,
            "pg_is_in_recovery": self._no,
            "pg_drop_replication_slot": self._drop,
        }

    def setting(self, asking: Asking, name: str) -> str:
        """Return a setting's value; PgError (42704) for one that is not there."""
        known = asking.settings.get(name.lower(), _SETTINGS.get(name.lower()))
        if known is None:
            raise PgError(SqlState.UNDEFINED_OBJECT, f'unrecognized configuration parameter "{name}"')
        return known

    async def system(self) -> tuple[str, int]:
        """Return the log's identity (a number as text) and the journal's end.

        The identity is that of the oldest feed's history: it is another one where the journal was made anew or restored.
        """
        await self._log.refresh()
        tails = self._log.feeds()
        identity = int(tails[0].incarnation.replace("-", "")[:15] or "0", 16) if tails else 1
        return str(identity or 1), self._log.store.end()

    async def create(self, asking: Asking, name: str, plugin: str, *, temporary: bool) -> int:
        """Make a slot; return where it begins. PgError: 42704 for an output that is not there, and those of ``Slots``."""
        if plugin not in OUTPUTS:
            known = ", ".join(sorted(OUTPUTS))
            raise PgError(
                SqlState.UNDEFINED_OBJECT,
                f'output plugin "{plugin}" does not exist',
                hint=f"There are: {known}.",
            )
        options = SlotOptions(asking.database, temporary)
        row = await self._slots.create(
            name, plugin, options, asking.grant, asking.rights, pid=asking.pid, warn=asking.warn
        )
        return row.position

    async def select(self, asking: Asking, query: Select) -> Answer:
        """Answer a query; PgError: 42P01, 42883, 42703 for what is not there, 54000 for an answer that is too long."""
        columns, rows = await self._source(asking, query.source)
        for name, value in query.where:
            _known_column(name, columns)
            wanted = {"true": "t", "false": "f"}.get(value, value)
            rows = [row for row in rows if row[name] == wanted]
        rows = rows if query.limit is None else rows[: query.limit]
        names: list[str] = []
        for item in query.items:
            names += columns if isinstance(item.value, Star) else [item.name]
        found: list[Sequence[str | None]] = []
        size = 0
        for row in rows:
            found.append(await self._row(asking, query.items, columns, row))
            size += sum(VALUE_BYTES + len(value or "") for value in found[-1])
            if size > ANSWER_BYTES_MAX:
                raise PgError(
                    SqlState.PROGRAM_LIMIT_EXCEEDED,
                    f"the answer has more than {ANSWER_BYTES_MAX} bytes",
                    hint="Ask for less: name columns, or use WHERE or LIMIT.",
                )
        return Answer(names, found)

    async def _row(
        self, asking: Asking, items: Sequence[Item], columns: Sequence[str], row: Row
    ) -> list[str | None]:
        values: list[str | None] = []
        for item in items:
            match item.value:
                case Star():
                    values += [row[name] for name in columns]
                case Literal(value):
                    values.append(value)
                case Column(name):
                    _known_column(name, columns)
                    values.append(row[name])
                case Call("count", ("*",)):
                    raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "nothing is counted here")
                case Call("pg_create_logical_replication_slot", arguments):
                    made = await self._create(asking, arguments)
                    values.append(f"({','.join(str(value) for value in made.values())})")
                case Call(name, arguments):
                    values.append(await self._call(asking, name, arguments))
        return values

    async def _source(
        self, asking: Asking, source: Column | Call | None
    ) -> tuple[Sequence[str], Sequence[Row]]:
        if source is None:
            return (), [{}]
        if isinstance(source, Call):
            if source.name == "pg_create_logical_replication_slot":
                made = await self._create(asking, source.arguments)
                return tuple(made), [made]
            return (source.name,), [{source.name: await self._call(asking, source.name, source.arguments)}]
        if source.name == "pg_replication_slots":
            views = await self._slots.all(asking.grant)
            return SLOT_COLUMNS, [_slot_row(view) for view in views]
        raise PgError(
            SqlState.UNDEFINED_TABLE,
            f'relation "{source.name}" does not exist',
            hint="There is one relation here: pg_replication_slots.",
        )

    async def _call(self, asking: Asking, name: str, arguments: Sequence[str | None]) -> str | None:
        function = self._functions.get(name)
        if function is None:
            raise PgError(SqlState.UNDEFINED_FUNCTION, f"function {name} does not exist")
        return await function(asking, arguments)

    async def _create(self, asking: Asking, arguments: Sequence[str | None]) -> Row:
        if not 2 <= len(arguments) <= 4:
            raise PgError(
                SqlState.UNDEFINED_FUNCTION,
                "pg_create_logical_replication_slot takes a name, an output plugin, and whether it is temporary",
            )
        if len(arguments) == 4 and _is_true(arguments[3]):
            raise PgError(SqlState.FEATURE_NOT_SUPPORTED, "two-phase commits are not supported")
        name, plugin = slot_name(arguments[0] or ""), arguments[1] or ""
        temporary = len(arguments) > 2 and _is_true(arguments[2])
        position = await self.create(asking, name, plugin, temporary=temporary)
        return {"slot_name": name, "lsn": lsn_text(position)}

    async def _drop(self, asking: Asking, arguments: Sequence[str | None]) -> str:
        (name,) = _exactly("pg_drop_replication_slot", arguments, 1)
        await self._slots.drop(slot_name(name), asking.grant, pid=asking.pid)
        return ""

    async def _version(self, _asking: Asking, _arguments: Sequence[str | None]) -> str:
        return VERSION

    async def _current_setting(self, asking: Asking, arguments: Sequence[str | None]) -> str | None:
        if len(arguments) == 2 and _is_true(arguments[1]):
            known = (arguments[0] or "").lower()
            return asking.settings.get(known, _SETTINGS.get(known))
        (name,) = _exactly("current_setting", arguments, 1)
        return self.setting(asking, name)

    async def _set_config(self, _asking: Asking, arguments: Sequence[str | None]) -> str:
        return _exactly("set_config", arguments, 3)[1]

    async def _end(self, _asking: Asking, _arguments: Sequence[str | None]) -> str:
        return lsn_text((await self.system())[1])

    async def _database(self, asking: Asking, _arguments: Sequence[str | None]) -> str:
        return asking.database

    async def _schema(self, _asking: Asking, _arguments: Sequence[str | None]) -> None:
        return None

    async def _user(self, asking: Asking, _arguments: Sequence[str | None]) -> str:
        return asking.user

    async def _pid(self, asking: Asking, _arguments: Sequence[str | None]) -> str:
        return str(asking.pid)

    async def _no(self, _asking: Asking, _arguments: Sequence[str | None]) -> str:
        return "f"


def _slot_row(view: SlotView) -> Row:
    row, options = view.row, view.options
    values = {
        "slot_name": row.name,
        "plugin": row.plugin,
        "slot_type": "logical",
        "database": options.database,
        "temporary": "t" if options.temporary else "f",
        "active": "t" if view.active else "f",
        "active_pid": str(view.active_pid) if view.active_pid is not None else None,
        "restart_lsn": lsn_text(view.restart) if view.restart is not None else None,
        "confirmed_flush_lsn": lsn_text(row.position),
        "wal_status": {True: "lost", False: "reserved", None: None}[view.lost],
        "two_phase": "f",
    }
    return {name: values.get(name) for name in SLOT_COLUMNS}


def _known_column(name: str, columns: Sequence[str]) -> None:
    if name not in columns:
        raise PgError(SqlState.UNDEFINED_COLUMN, f'column "{name}" does not exist')


def _exactly(function: str, arguments: Sequence[str | None], count: int) -> list[str]:
    if len(arguments) != count:
        raise PgError(
            SqlState.UNDEFINED_FUNCTION, f"{function} takes {count} arguments, not {len(arguments)}"
        )
    return [argument or "" for argument in arguments]


def _is_true(value: str | None) -> bool:
    return (value or "").lower() in {"t", "true", "on", "yes", "1"}
