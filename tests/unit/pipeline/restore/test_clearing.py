"""Which control entries take a table's rows away, and which make keys unfit to tell rows apart."""

from __future__ import annotations

import json

import pytest

from headrace.errors import RestoreInexact, ValueUnfit
from headrace.pipeline.restore.clearing import check_exact, cleared_of
from headrace.pipeline.restore.surveying import Control
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, Ddl, MessageType
from headrace.simple.schema import Column, DataType, Index, TableSchema

INT = DataType("int", "binary", "binary")


def schema(table: str, *key: str) -> TableSchema:
    columns = tuple(Column(name, INT, nullable=False, default=None) for name in ("id", "n"))
    index = Index("primary", unique=True, primary=True, nullable=False, columns=key or ("id",))
    return TableSchema("shop", table, 1, 7, columns, (index,))


def longer_key() -> TableSchema:
    """The table ``t`` behind an ALTER of its key's type: its keys are written with more digits."""
    before = schema("t")
    longer = Column("id", DataType("decimal", "binary", "binary", 14, 4), nullable=False, default=None)
    return TableSchema("shop", "t", 1, 8, (longer, *before.columns[1:]), before.indexes)


def ddl(place: int, kind: str, table: str, after: TableSchema | None = None) -> Control:
    value = json_codec.encode(Ddl(MessageType(kind), f"{kind} …", 1, 1, after))
    return Control("f", "i", place, "ddl", ("shop", table), value)


def bootstrap(place: int, told: TableSchema) -> Control:
    value = json_codec.encode(Bootstrap(1, told))
    return Control("f", "i", place, "schema", ("shop", told.table), value)


def test_statements_clear_their_table_up_to_where_they_stand() -> None:
    value = json.dumps({"database": "main", "table": "t"}).encode()
    attached = [Control("f", "i", place, "truncate", (), value) for place in (4, 9)]
    assert cleared_of(attached) == ({("main", "t"): 9}, {})
    captured = [
        ddl(2, "CREATE", "t", schema("t")),
        bootstrap(3, schema("t")),
        ddl(5, "TRUNCATE", "t", schema("t")),
        ddl(6, "ALTER", "t", schema("t")),
        ddl(8, "ERASE", "gone", schema("gone")),
        ddl(9, "ERASE", "t", schema("t")),
        ddl(12, "CREATE", "t", schema("t", "n")),
    ]
    assert cleared_of(captured) == ({("shop", "t"): 12, ("shop", "gone"): 8}, {})
    with pytest.raises(ValueUnfit, match="sequence id 4"):
        cleared_of([Control("f", "i", 4, "truncate", (), b"{}")])


def test_a_rename_and_another_key_are_odd_until_the_table_is_cleared() -> None:
    renamed = [ddl(2, "CREATE", "t", schema("t")), ddl(5, "RENAME", "t", schema("u"))]
    places, odd = cleared_of(renamed)
    assert places == {("shop", "t"): 2, ("shop", "u"): 5}
    with pytest.raises(
        RestoreInexact, match=r"feed f, table shop\.u: .* renamed from shop\.t at sequence id 5"
    ):
        check_exact("f", odd)
    # Rows from before the rename stand under the old name, and go with the table.
    assert cleared_of([*renamed, ddl(9, "ERASE", "u")]) == ({("shop", "t"): 5, ("shop", "u"): 9}, {})
    rekeyed = [bootstrap(3, schema("t")), ddl(5, "ALTER", "t", schema("t", "n", "id"))]
    assert list(cleared_of(rekeyed)[1]) == [("shop", "t")]
    assert cleared_of([*rekeyed, ddl(7, "TRUNCATE", "t", schema("t", "n", "id"))])[1] == {}
    retyped = [bootstrap(3, schema("t")), ddl(5, "ALTER", "t", longer_key())]
    assert list(cleared_of(retyped)[1]) == [("shop", "t")]
    unread = Control("f", "i", 4, "ddl", ("shop", "t"), b"no message")
    assert "sequence id 4" in cleared_of([unread])[1]["shop", "t"]
