"""How names in a statement become full names."""

from __future__ import annotations

from typing import NamedTuple

from headrace.capture.ddl.lexer import Unread, Words
from headrace.capture.ddl.statement import TableName


class Naming(NamedTuple):
    """Where a statement ran."""

    database: str
    """The session's default database, '' if it had none."""
    lower_case: bool
    """The server keeps names in lower case (``lower_case_table_names = 1``)."""

    def table(self, words: Words) -> TableName:
        """Take ``table``, ``.table`` or ``database.table``; Unread where neither the name nor the session has a database."""
        words.take(".")
        database, table = self.database, words.name()
        if words.take("."):
            database, table = table, words.name()
        if not database:
            raise Unread
        return TableName(self.kept(database), self.kept(table))

    def tables(self, words: Words) -> tuple[TableName, ...]:
        """Take names with commas between them."""
        names = [self.table(words)]
        while words.take(","):
            names.append(self.table(words))
        return tuple(names)

    def kept(self, name: str) -> str:
        """Return a name as the server keeps it."""
        return name.lower() if self.lower_case else name
