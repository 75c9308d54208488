"""ALTER TABLE: its actions told apart, since their mix decides the kind of message, and a rename gets one of its own."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from itertools import pairwise
from typing import Final, NamedTuple

from headrace.capture.ddl.lexer import Token, Unread, Words
from headrace.capture.ddl.naming import Naming
from headrace.capture.ddl.statement import DdlStatement, TableName
from headrace.simple.message import MessageType


class _Act(Enum):
    ADD_INDEX = MessageType.CINDEX
    DROP_INDEX = MessageType.DINDEX
    ALTER = MessageType.ALTER
    RENAME = MessageType.RENAME
    NEUTRAL = None  # how to do it, not what


class _Action(NamedTuple):
    act: _Act
    start: int
    end: int
    target: TableName | None = None  # the new name, or the other table
    moves_rows: bool = False


_INDEX_WORDS: Final = frozenset({"INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "PRIMARY", "FOREIGN"})
_HOW: Final = frozenset({"ALGORITHM", "LOCK", "WAIT", "NOWAIT"})
_KEEPING_ENGINES: Final = frozenset({"INNODB", "ARIA", "MYISAM", "ROCKSDB", "MEMORY", "CSV", "ARCHIVE"})
"""Engines that hold the rows that a table had before; BLACKHOLE and its like don't."""
_VARYING: Final = frozenset(
    {
        *("UUID", "UUID_SHORT", "SYS_GUID", "RAND", "RANDOM_BYTES", "NEXTVAL", "SETVAL", "LASTVAL"),
        *("CONNECTION_ID", "USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "CURRENT_ROLE", "VERSION"),
        *("DATABASE", "SCHEMA", "LAST_INSERT_ID"),
    }
)
"""Functions whose value nobody but the source knows, or that give each row its own."""
_BEFORE_NAME: Final = frozenset({"(", ",", "COLUMN", "EXISTS", "AFTER"})
"""What stands before a column's name; what stands before its type is the name."""


def read_alter(words: Words, sql: str, naming: Naming, *, ignore: bool) -> tuple[DdlStatement, ...]:
    """Return what ``ALTER [IGNORE] TABLE`` does; ``words`` stands behind TABLE.

    IGNORE drops rows that break a new unique key, so it counts as moving rows.
    """
    conditional = words.take("IF", "EXISTS")
    table = naming.table(words)
    if words.take("WAIT"):
        words.next()
    words.take("NOWAIT")
    unlogged_actions = words.unlogged_actions()
    actions = [_read_action(part, naming) for part in parts_of(words.rest())]
    renames = [action for action in actions if action.act is _Act.RENAME]
    others = [action for action in actions if action.act is not _Act.RENAME]
    statements: list[DdlStatement] = []
    if not renames or any(action.act is not _Act.NEUTRAL for action in others):
        statements.append(
            DdlStatement(
                _kind(others),
                _without_renames(sql, actions) if renames else sql,
                table,
                others=tuple(action.target for action in others if action.target is not None),
                conditional=conditional,
                moves_rows=ignore or any(action.moves_rows for action in others),
                unlogged_actions=unlogged_actions,
            )
        )
    if renames and (new_name := renames[-1].target):
        rename = f"RENAME TABLE {table} TO {new_name}"
        statements.append(
            DdlStatement(MessageType.RENAME, rename, table, new_name=new_name, conditional=conditional)
        )
    return tuple(statements)


def _kind(actions: Iterable[_Action]) -> MessageType:
    acts = {action.act for action in actions} - {_Act.NEUTRAL}
    kind = acts.pop().value if len(acts) == 1 else None
    return kind or MessageType.ALTER


def _without_renames(sql: str, actions: list[_Action]) -> str:
    kept = [sql[action.start : action.end] for action in actions if action.act is not _Act.RENAME]
    return sql[: actions[0].start] + ", ".join(kept)


def parts_of(items: Iterable[Token]) -> Iterable[list[Token]]:
    """Split at the commas outside of parentheses; Unread where nothing stands before one."""
    depth = 0
    part: list[Token] = []
    for item in items:
        symbol = item.keyword
        depth += (symbol == "(") - (symbol == ")")
        if symbol == "," and depth == 0:
            if not part:
                raise Unread
            yield part
            part = []
        elif symbol != ";":
            part.append(item)
    if part:
        yield part


def _read_action(part: list[Token], naming: Naming) -> _Action:
    start, end = part[0].start, part[-1].end
    words = Words(part)
    alter = _Action(_Act.ALTER, start, end)
    match words.take_any(
        "ADD", "DROP", "RENAME", "EXCHANGE", "CONVERT", "TRUNCATE", "DISCARD", "IMPORT", "ENGINE"
    ):
        case "ADD":
            added = words.rest()
            if _adds_index(words):
                return alter._replace(act=_Act.ADD_INDEX)
            return alter._replace(moves_rows=_fills_rows(added))
        case "DROP":
            if words.peek() == "PARTITION" or (words.peek(), words.peek(1)) == ("SYSTEM", "VERSIONING"):
                return alter._replace(moves_rows=True)
            alone = words.peek() in _INDEX_WORDS and not _is_repartitioned(part)
            return alter._replace(act=_Act.DROP_INDEX) if alone else alter
        case "RENAME":
            if words.peek() in {"COLUMN", "INDEX", "KEY"}:
                return alter
            words.take_any("TO", "AS", "=")
            return _Action(_Act.RENAME, start, end, naming.table(words))
        case "EXCHANGE":
            words.need("PARTITION")
            words.name()
            words.need("WITH", "TABLE")
            return alter._replace(target=naming.table(words), moves_rows=True)
        case "CONVERT":
            return _read_conversion(words, naming, alter)
        case "TRUNCATE" | "DISCARD" | "IMPORT":
            return alter._replace(moves_rows=True)
        case "ENGINE":
            words.take("=")
            return alter._replace(moves_rows=words.next().text.strip("'\"").upper() not in _KEEPING_ENGINES)
        case _:
            return alter._replace(act=_Act.NEUTRAL) if words.peek() in _HOW else alter


def _adds_index(words: Words) -> bool:
    repartitioned = _is_repartitioned(words.rest())
    if words.take("CONSTRAINT"):
        words.take("IF", "NOT", "EXISTS")
        if words.peek() not in _INDEX_WORDS | {"CHECK"}:
            words.name()
    return words.peek() in _INDEX_WORDS and not repartitioned


def _fills_rows(items: list[Token]) -> bool:
    """Whether a column that is added gives each row there is a value of its own, which only the source knows."""
    words = [item.keyword for item in items]
    pairs = list(pairwise(["(", *words]))
    serial = any(here == "SERIAL" and before not in _BEFORE_NAME for before, here in pairs)
    calls = any(here in _VARYING and after == "(" for here, after in pairs)
    next_value = ("NEXT", "VALUE") in pairs or (".", "NEXTVAL") in pairs
    bare = not {"CURRENT_USER", "CURRENT_ROLE"}.isdisjoint(words)
    varies = "DEFAULT" in words and (calls or next_value or bare)
    return "AUTO_INCREMENT" in words or serial or varies


def _is_repartitioned(items: list[Token]) -> bool:
    """Whether the last action is followed by how to partition the table: no comma stands before that."""
    return any(item.keyword in {"PARTITION", "REMOVE"} for item in items)


def _read_conversion(words: Words, naming: Naming, alter: _Action) -> _Action:
    if words.take("PARTITION"):
        words.name()
        words.need("TO", "TABLE")
        return alter._replace(target=naming.table(words), moves_rows=True)
    if words.take("TABLE"):
        return alter._replace(target=naming.table(words), moves_rows=True)
    return alter
