"""What a statement does to a table's columns, from its text alone: for readers that keep rows, such as Spark tables.

A schema says what rows look like, not what became of those that are there: a column that is renamed, or dropped and added
again, can be told by ``sql`` alone. MariaDB's wording and TiDB's. Pure, like all of this package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from headrace.capture.ddl.alter import parts_of
from headrace.capture.ddl.definition import ColumnDefinition, Default, DefaultKind, read_definition
from headrace.capture.ddl.lexer import Token, Unread, Words, tokens

__all__ = [
    "Add",
    "Change",
    "Clause",
    "ColumnChanges",
    "ColumnDefinition",
    "ColumnUnknown",
    "Default",
    "DefaultKind",
    "Drop",
    "Outcome",
    "Rename",
    "column_changes",
]


class ColumnUnknown(Exception):
    """A statement names a column that its table does not have; the argument is the name."""


@dataclass(frozen=True, slots=True)
class Drop:
    """``DROP COLUMN name``; ``conditional``: IF EXISTS."""

    name: str
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Rename:
    """``RENAME COLUMN old TO new``."""

    old: str
    new: str
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Add:
    """``ADD COLUMN …``; ``conditional``: IF NOT EXISTS."""

    column: ColumnDefinition
    conditional: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """``CHANGE old …``, or ``MODIFY``, which keeps the name."""

    old: str
    column: ColumnDefinition
    conditional: bool = False


Clause = Drop | Rename | Add | Change


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a table's columns. Places are those in the names that were given."""

    kept: dict[int, tuple[str, ColumnDefinition | None]]
    """Place -> what the column is called now, and its new definition if the statement gives one."""
    dropped: tuple[int, ...]
    added: tuple[ColumnDefinition, ...]

    @property
    def names(self) -> list[str]:
        """The names that the table has now, those that were there first."""
        return [name for name, _ in self.kept.values()] + [column.name for column in self.added]


@dataclass(frozen=True, slots=True)
class ColumnChanges:
    """What a statement does to columns: nothing, if all members are empty."""

    clauses: tuple[Clause, ...] = ()
    drops_primary_key: bool = False
    primary_key: tuple[str, ...] = ()
    """The columns that it makes the primary key of: NULL is not allowed in them any more."""
    converts_charset: str = ""
    """The character set that all text is converted to; ``DEFAULT`` if that is the database's."""
    unread: bool = False
    """The text can't be read: nothing may be assumed of any column."""

    def applied(self, names: Sequence[str]) -> Outcome:
        """Return what becomes of columns called ``names``. ColumnUnknown if the table can't have been this one.

        As the server does it: all clauses speak of the columns as they were before the statement, so that two may change
        names, and one may be dropped and added again. Names are equal whatever their case.
        """
        places = {name.casefold(): place for place, name in enumerate(names)}
        kept: dict[int, tuple[str, ColumnDefinition | None]] = {
            place: (name, None) for place, name in enumerate(names)
        }
        dropped: list[int] = []
        added: dict[str, ColumnDefinition] = {}
        for clause in self.clauses:
            if isinstance(clause, Add):
                folded = clause.column.name.casefold()
                if not (clause.conditional and (folded in places or folded in added)):
                    added[folded] = clause.column
                continue
            named = clause.name if isinstance(clause, Drop) else clause.old
            place = places.get(named.casefold())
            if place is None:
                if clause.conditional:
                    continue
                raise ColumnUnknown(named)
            match clause:
                case Drop():
                    kept.pop(place, None)
                    dropped.append(place)
                case Rename(_, new):
                    kept[place] = (new, kept[place][1])
                case Change(_, column):
                    kept[place] = (column.name, column)
        return Outcome(kept, tuple(dropped), tuple(added.values()))


_KEY_WORDS: Final = frozenset(
    {"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY", "FOREIGN", "CHECK", "VECTOR"}
)
_NO_COLUMNS: Final = _KEY_WORDS | {"CONSTRAINT", "PARTITION", "STATS_EXTENDED"}
_PAIRS: Final = frozenset({("SYSTEM", "VERSIONING"), ("PERIOD", "FOR")})


def column_changes(sql: str) -> ColumnChanges:
    """Return what ``sql``, the text of a DDL message, does to the columns of its table.

    Statements other than ALTER TABLE do nothing to them. Never an exception: what can't be read is ``unread``.
    """
    try:
        words = Words(list(tokens(sql)))
        if not words.take("ALTER"):
            return ColumnChanges()
        while words.take_any("ONLINE", "OFFLINE", "IGNORE"):
            pass
        if not words.take("TABLE"):
            return ColumnChanges()
        words.take("IF", "EXISTS")
        words.name()
        if words.take("."):
            words.name()
        if words.take("WAIT"):
            words.next()
        words.take("NOWAIT")
        return _Reader().read(parts_of(words.rest()))
    except Unread:
        return ColumnChanges(unread=True)


class _Reader:
    def __init__(self) -> None:
        self.clauses: list[Clause] = []
        self.drops_key = False
        self.key: tuple[str, ...] = ()
        self.charset = ""

    def read(self, parts: Iterable[list[Token]]) -> ColumnChanges:
        for part in parts:
            words = Words(part)
            match words.take_any("ADD", "DROP", "RENAME", "CHANGE", "MODIFY", "CONVERT"):
                case "ADD":
                    self._read_add(words)
                case "DROP":
                    self._read_drop(words)
                case "RENAME" if words.take("COLUMN"):
                    conditional = words.take("IF", "EXISTS")
                    old = words.name()
                    words.need("TO")
                    self.clauses.append(Rename(old, words.name(), conditional))
                case "CHANGE" | "MODIFY" as verb:
                    self._read_change(words, keeps_name=verb == "MODIFY")
                case "CONVERT" if words.take("TO"):
                    if not words.take_any("CHARSET") and not words.take("CHARACTER", "SET"):
                        words.need("CHAR", "SET")
                    self.charset = words.next().text.strip("'\"").lower()
        return ColumnChanges(tuple(self.clauses), self.drops_key, self.key, self.charset)

    def _read_add(self, words: Words) -> None:
        named = words.take("COLUMN")
        conditional = words.take("IF", "NOT", "EXISTS")
        if words.take("("):
            for part in parts_of(_closed(words)):
                inner = Words(part)
                if inner.peek() in _NO_COLUMNS:
                    self.key += _primary_key(part)
                else:
                    self._add(inner, conditional=conditional)
            return
        if not named and (words.peek() in _NO_COLUMNS or (words.peek(), words.peek(1)) in _PAIRS):
            self.key += _primary_key(words.rest())
            return
        self._add(words, conditional=conditional)

    def _add(self, words: Words, *, conditional: bool) -> None:
        name = words.name()
        self._note_key(name, words)
        self.clauses.append(Add(read_definition(name, words), conditional))

    def _read_drop(self, words: Words) -> None:
        named = words.take("COLUMN")
        if not named and (words.peek() in _NO_COLUMNS or (words.peek(), words.peek(1)) in _PAIRS):
            self.drops_key |= words.peek() == "PRIMARY"
            return
        conditional = words.take("IF", "EXISTS")
        self.clauses.append(Drop(words.name(), conditional))

    def _read_change(self, words: Words, *, keeps_name: bool) -> None:
        words.take("COLUMN")
        conditional = words.take("IF", "EXISTS")
        old = words.name()
        name = old if keeps_name else words.name()
        self._note_key(name, words)
        self.clauses.append(Change(old, read_definition(name, words), conditional))

    def _note_key(self, name: str, words: Words) -> None:
        if any(item.keyword == "PRIMARY" for item in words.rest()):
            self.key += (name,)


def _closed(words: Words) -> list[Token]:
    """Return the tokens up to the parenthesis that closes the one just taken."""
    depth = 1
    found: list[Token] = []
    while True:
        token = words.next()
        depth += (token.keyword == "(") - (token.keyword == ")")
        if depth == 0:
            return found
        found.append(token)


def _primary_key(items: list[Token]) -> tuple[str, ...]:
    """Return the columns of ``[CONSTRAINT c] PRIMARY KEY [name] [USING BTREE] (a, b(10) DESC)``; () of another clause."""
    words = Words(items)
    is_primary = False
    while words.token() is not None and not words.take("("):
        is_primary |= words.next().keyword == "PRIMARY"
    return tuple(Words(part).name() for part in parts_of(_closed(words))) if is_primary else ()
