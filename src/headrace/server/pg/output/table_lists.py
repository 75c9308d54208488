"""Lists of tables as wal2json's options ``add-tables`` and ``filter-tables`` have them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from headrace.errors import InvalidRequest

_ANY: Final = "*"


class TableLists(NamedTuple):
    """Which tables have records: those of ``added``, or all where it is None, but for those of ``filtered``.

    A pair is (schema, table); ``*`` is any.
    """

    added: frozenset[tuple[str, str]] | None = None
    filtered: frozenset[tuple[str, str]] = frozenset()

    def has(self, schema: str, table: str) -> bool:
        """Tell whether a table has records."""
        ways = {(schema, table), (_ANY, table), (schema, _ANY), (_ANY, _ANY)}
        return self.filtered.isdisjoint(ways) and (self.added is None or not self.added.isdisjoint(ways))


def table_lists(given: Mapping[str, str]) -> TableLists:
    """Return the tables that the options name; InvalidRequest for a list that can't be read."""
    added, filtered = (
        _pairs(name, given[name]) if name in given else None for name in ("add-tables", "filter-tables")
    )
    return TableLists(added, filtered or frozenset())


def _pairs(option: str, text: str) -> frozenset[tuple[str, str]]:
    """Read ``public.t, *.u, public.*``; a backslash takes what follows it as it is."""
    pairs: list[list[str]] = [[""]]
    letters = iter(text)
    for letter in letters:
        if letter == "\\":
            pairs[-1][-1] += next(letters, "")
        elif letter == ",":
            pairs.append([""])
        elif letter == ".":
            pairs[-1].append("")
        elif letter != " ":
            pairs[-1][-1] += letter
    if not all(len(pair) == 2 and all(pair) for pair in pairs):
        raise InvalidRequest(
            f"{option}: {text[:200]!r} is no list of tables",
            hint="Write schema.table,schema.* with a backslash before blanks, dots and commas of a name.",
            member=option,
        )
    return frozenset((pair[0], pair[1]) for pair in pairs)
