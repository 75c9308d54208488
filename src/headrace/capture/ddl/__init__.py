"""The text of a QUERY event -> what it does to tables. Pure; never an exception, whatever the text is.

These change no table that rows are logged of, and come as nothing: transactions (BEGIN, COMMIT, SAVEPOINT, XA …), users,
roles and rights, routines, triggers, events, servers, sequences, packages, plugins, FLUSH, ANALYZE, OPTIMIZE, REPAIR, SET.
Anything else that is not known is ``unread``: who sees it must stop rather than guess.
"""

from __future__ import annotations

from headrace.capture.ddl.parse import parse
from headrace.capture.ddl.statement import DdlStatement, TableName

__all__ = ["DdlStatement", "TableName", "parse"]
