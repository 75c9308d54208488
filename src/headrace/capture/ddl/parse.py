"""One statement's verb and object -> the statements that messages tell of."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from headrace.capture.ddl.alter import read_alter
from headrace.capture.ddl.lexer import Quoting, Token, Unread, Words, plainly_quoted, tokens
from headrace.capture.ddl.naming import Naming
from headrace.capture.ddl.statement import DdlStatement
from headrace.simple.message import MessageType

Statements = tuple[DdlStatement, ...]

_NO_TABLES_VERBS: Final = frozenset(
    {
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "START",
        "SAVEPOINT",
        "RELEASE",
        "XA",
        "GRANT",
        "REVOKE",
        "FLUSH",
        "RESET",
        "PURGE",
        "ANALYZE",
        "OPTIMIZE",
        "REPAIR",
        "CHECK",
        "CHECKSUM",
        "INSTALL",
        "UNINSTALL",
        "CHANGE",
        "STOP",
        "BACKUP",
        "LOCK",
        "UNLOCK",
    }
)
_NO_TABLES_OBJECTS: Final = frozenset(
    {
        "PROCEDURE",
        "FUNCTION",
        "TRIGGER",
        "EVENT",
        "USER",
        "ROLE",
        "SERVER",
        "SEQUENCE",
        "PACKAGE",
        "TABLESPACE",
        "LOGFILE",
        "PREPARE",
    }
)
_ROW_VERBS: Final = frozenset(
    {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "SELECT", "VALUES", "CALL", "DO"}
)
_DATABASE_OPTIONS: Final = frozenset({"DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "UPGRADE"})
_MODIFIERS: Final = ("UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE", "AGGREGATE")


def parse(
    sql: str,
    default_database: str,
    *,
    ansi_quotes: bool = False,
    no_backslash_escapes: bool = False,
    lower_case_names: bool = False,
) -> Statements:
    """Return what ``sql`` does, in order; () if it does nothing to tables.

    ``default_database`` ('' if none), ``ansi_quotes`` and ``no_backslash_escapes`` are as the QUERY event says,
    ``lower_case_names`` the server's (``lower_case_table_names = 1``). A text that can't be read is one statement of the
    kind QUERY that is ``unread``.
    """
    quoting = Quoting(ansi_quotes, not no_backslash_escapes)
    try:
        first = next(tokens(sql, quoting), None)
        if first is None or first.keyword in _NO_TABLES_VERBS:
            return ()
        if first.keyword in _ROW_VERBS:
            return (DdlStatement(MessageType.QUERY, sql, statement_format=True),)
        plain = plainly_quoted(sql, quoting)
        return _Reader(plain, list(tokens(plain)), Naming(default_database, lower_case_names)).read()
    except Unread:
        return (DdlStatement(MessageType.QUERY, sql, unread=True),)


class _Reader:
    def __init__(self, sql: str, items: list[Token], naming: Naming) -> None:
        self.sql = sql
        self.words = Words(items)
        self.naming = naming

    def read(self) -> Statements:
        match self.words.take_any("SET", "CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"):
            case "SET":
                return self._read_set()
            case "CREATE":
                return self._read_create()
            case "ALTER":
                return self._read_alter()
            case "DROP":
                return self._read_drop()
            case "RENAME":
                return self._read_rename()
            case "TRUNCATE":
                self.words.take("TABLE")
                table = self.naming.table(self.words)
                self._need_end()
                return (DdlStatement(MessageType.TRUNCATE, self.sql, table),)
            case _:
                raise Unread

    def _read_set(self) -> Statements:
        """Read SET, or the statement behind ``SET STATEMENT … FOR``, whose text is then all that counts."""
        if not self.words.take("STATEMENT"):
            return ()
        depth = 0
        while (symbol := self.words.next().keyword) != "FOR" or depth:
            depth += (symbol == "(") - (symbol == ")")
        rest = self.words.rest()
        if not rest:
            raise Unread
        if rest[0].keyword in _NO_TABLES_VERBS:
            return ()
        sql = self.sql[rest[0].start :]
        if rest[0].keyword in _ROW_VERBS:
            return (DdlStatement(MessageType.QUERY, sql, statement_format=True),)
        shifted = [
            item._replace(start=item.start - rest[0].start, end=item.end - rest[0].start) for item in rest
        ]
        return _Reader(sql, shifted, self.naming).read()

    def _read_create(self) -> Statements:
        words = self.words
        replaced = words.take("OR", "REPLACE")
        self._skip_modifiers()
        temporary = words.take("TEMPORARY")
        at = words.token()
        if at is not None and words.take("TABLE"):
            if replaced and not temporary:
                self.sql = f"CREATE {self.sql[at.start :]}"
            return self._read_create_table(replaced=replaced, temporary=temporary)
        if words.take("INDEX"):
            return self._read_index(MessageType.CINDEX)
        if words.take_any("DATABASE", "SCHEMA"):
            return self._read_database(moves_rows=replaced)
        if words.take("VIEW"):
            conditional = self._takes_condition()
            view = self.naming.table(words)
            return (DdlStatement(MessageType.QUERY, self.sql, view, conditional=conditional, view=True),)
        return self._read_no_table()

    def _read_create_table(self, *, replaced: bool, temporary: bool) -> Statements:
        conditional = self._takes_condition()
        table = self.naming.table(self.words)
        create = DdlStatement(
            MessageType.CREATE,
            self.sql,
            table,
            conditional=conditional,
            temporary=temporary,
            unlogged_actions=self.words.unlogged_actions(),
            statement_format=_has_query(self.words.rest()),
        )
        if not replaced or temporary:
            return (create,)
        return DdlStatement(MessageType.ERASE, f"DROP TABLE {table}", table, conditional=True), create

    def _read_alter(self) -> Statements:
        words = self.words
        ignore = False
        while word := words.take_any("ONLINE", "OFFLINE", "IGNORE"):
            ignore |= word == "IGNORE"
        if words.take("TABLE"):
            return read_alter(words, self.sql, self.naming, ignore=ignore)
        if words.take_any("DATABASE", "SCHEMA"):
            return self._read_database()
        self._skip_modifiers()
        if words.take("VIEW"):
            return (DdlStatement(MessageType.QUERY, self.sql, self.naming.table(words), view=True),)
        return self._read_no_table()

    def _read_drop(self) -> Statements:
        words = self.words
        self._skip_modifiers()
        temporary = words.take("TEMPORARY")
        object_word = words.take_any("TABLE", "TABLES", "VIEW")
        if object_word:
            conditional = self._takes_condition()
            names = self.naming.tables(words)
            self._need_end()
            view = object_word == "VIEW"
            kind = MessageType.QUERY if view else MessageType.ERASE
            return tuple(
                DdlStatement(
                    kind,
                    f"DROP {'VIEW' if view else 'TABLE'} {name}",
                    name,
                    conditional=conditional,
                    temporary=temporary,
                    view=view,
                )
                for name in names
            )
        if words.take("INDEX"):
            return self._read_index(MessageType.DINDEX)
        if words.take_any("DATABASE", "SCHEMA"):
            return self._read_database(moves_rows=True)
        return self._read_no_table()

    def _read_index(self, kind: MessageType) -> Statements:
        """Read ``[IF [NOT] EXISTS] name [USING …] ON table``."""
        conditional = self._takes_condition()
        self.words.name()
        while not self.words.take("ON"):
            self.words.next()
        return (DdlStatement(kind, self.sql, self.naming.table(self.words), conditional=conditional),)

    def _read_rename(self) -> Statements:
        words = self.words
        if words.take_any("USER"):
            return ()
        if not words.take_any("TABLE", "TABLES"):
            raise Unread
        conditional = self._takes_condition()
        statements: list[DdlStatement] = []
        while True:
            table = self.naming.table(words)
            if words.take("WAIT"):
                words.next()
            words.take("NOWAIT")
            words.need("TO")
            new_name = self.naming.table(words)
            sql = f"RENAME TABLE {table} TO {new_name}"
            statements.append(
                DdlStatement(MessageType.RENAME, sql, table, new_name=new_name, conditional=conditional)
            )
            if not words.take(","):
                break
        self._need_end()
        return tuple(statements)

    def _read_database(self, *, moves_rows: bool = False) -> Statements:
        """Read ``[IF [NOT] EXISTS] [name] …``; ALTER DATABASE may leave the name out."""
        words = self.words
        conditional = self._takes_condition()
        unnamed = words.peek() in _DATABASE_OPTIONS and self.naming.database
        name = self.naming.database if unnamed else self.naming.kept(words.name())
        return (
            DdlStatement(
                MessageType.QUERY,
                self.sql,
                database_only=name,
                conditional=conditional,
                moves_rows=moves_rows,
            ),
        )

    def _takes_condition(self) -> bool:
        return self.words.take("IF", "NOT", "EXISTS") or self.words.take("IF", "EXISTS")

    def _need_end(self) -> None:
        """Go past how long to wait for locks; Unread if the statement then says more."""
        words = self.words
        words.take_any("RESTRICT", "CASCADE")
        if words.take("WAIT"):
            words.next()
        words.take("NOWAIT")
        if not words.ended():
            raise Unread

    def _read_no_table(self) -> Statements:
        if self.words.peek() not in _NO_TABLES_OBJECTS:
            raise Unread
        return ()

    def _skip_modifiers(self) -> None:
        words = self.words
        while True:
            if words.take("DEFINER"):
                self._skip_definer()
            elif words.take("ALGORITHM"):
                words.need("=")
                words.next()
            elif words.take("SQL", "SECURITY"):
                words.next()
            elif not words.take_any(*_MODIFIERS):
                return

    def _skip_definer(self) -> None:
        words = self.words
        words.need("=")
        words.next()
        words.take("(", ")")
        if words.take("@"):
            words.next()


def _has_query(items: list[Token]) -> bool:
    """Whether a CREATE TABLE fills the table by a query: where rows are logged, MariaDB logs it without the query."""
    for here, after in pairwise([*(item.keyword for item in items), ""]):
        if here == "SELECT" or (here == "VALUES" and after not in {"LESS", "IN"}):
            return True
    return False
