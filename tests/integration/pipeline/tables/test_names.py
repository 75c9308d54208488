"""Tables of any schema and name are apart from each other, and TRUNCATE clears one of them up to its place in the feed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.pipeline.tables.ledger import folder_of
from headrace.pipeline.tables.reader import iter_rows, published_moment
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.source_tables import ID, SourceTables, Table, column
from tests.scale import sized

ORDERS = ("public", "orders")
OTHER = ("audit", "orders")
ODD = ('Sälés `2024` "x".y/z', "order lines; ~'☃'")
LONG = ("ж" * 31, "я" * 31)
DOTTED = [("public.orders", "x"), ("public", "orders.x")]
MORE: list[Table] = sized([], soak=[OTHER, LONG, *DOTTED])
"""The folders of such names are in tests/unit/pipeline/tables/test_ledger.py."""


def shown(to: str) -> dict[tuple[str, ...], dict[Any, dict[str, Any]]]:
    found: dict[tuple[str, ...], dict[Any, dict[str, Any]]] = {
        tuple(one.table): {} for one in published_moment(to).tables
    }
    for name, row in iter_rows(to):
        assert row["id"] not in found[name]
        found[name][row["id"]] = row
    return found


def named(rows: Mapping[Any, Any]) -> dict[tuple[str, ...], Any]:
    return {("main", table) if isinstance(table, str) else table: of for table, of in rows.items()}


def test_tables_of_several_schemas_are_apart(source: SourceTables, to: str, bring: Bring) -> None:
    tables: list[Table] = ["orders", ORDERS, ODD, *MORE]
    for place, table in enumerate(tables):
        source.schema(table, ID, column("n", "int64"), *([column("more", "string")] if place else []))
        for number in range(3):
            row = {"id": number, "n": place} | ({"more": f"{table}"} if place else {})
            source.put(table, row)
    first = source.commit()
    for table in (ODD, *MORE[-2:]):
        source.put(table, source.rows[table][1] | {"n": -1})
        source.delete(table, 2)
    # A column whose name Delta can keep only by a mapping.
    source.schema(ODD, ID, column("n", "int64"), column("more", "string"), column("a, b", "int64"))
    source.rows[ODD] = {key: row | {"a, b": None} for key, row in source.rows[ODD].items()}
    source.put(ODD, {"id": 7, "n": 7, "more": None, "a, b": 8})
    source.patch(ORDERS, 0, {"n": 9})
    source.commit()
    assert bring(entries_max=first).batches == 2
    assert shown(to) == named(source.rows)
    folders = {"main.orders", "public.orders", folder_of(ODD), *map(folder_of, map(tuple, MORE))}
    assert {path.name for path in Path(to).iterdir()} >= folders


def truncate_in_a_transaction(source: SourceTables) -> None:
    """Two tables with rows; one is cleared in the middle of a transaction, and both change behind it."""
    for table in (ORDERS, OTHER):
        source.schema(table, ID, column("n", "int64"))
        for number in range(4):
            source.put(table, {"id": number, "n": 0})
    source.commit()
    source.put(ORDERS, {"id": 5, "n": 1})  # in the transaction of the TRUNCATE, before it
    source.truncate(ORDERS)
    source.put(ORDERS, {"id": 1, "n": 2})
    source.put(ORDERS, {"id": 6, "n": 2})
    source.delete(ORDERS, 6)
    source.commit()
    source.patch(ORDERS, 1, {"n": 3})
    source.put(OTHER, {"id": 9, "n": 3})
    source.commit()
    assert list(source.rows[ORDERS]) == [1]


def test_truncate_clears_its_table_up_to_its_place(source: SourceTables, to: str, bring: Bring) -> None:
    truncate_in_a_transaction(source)
    assert bring(entries_max=12).batches == 2  # the first of which ends with the TRUNCATE
    assert shown(to) == named(source.rows)
    assert len(source.rows[OTHER]) == 5
    source.truncate(ORDERS)
    source.put(ORDERS, {"id": 1, "n": 4})
    source.truncate(ORDERS)
    source.put(ORDERS, {"id": 2, "n": 4})
    source.truncate(OTHER)  # no row of it is in this batch
    source.truncate(OTHER)
    source.commit()
    bring()
    assert shown(to) == named(source.rows)
