"""Which tables and columns go out, which are masked, and that nothing slips out of a rule: no key, no type, no DDL."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.capture.selection import ColumnRules, ColumnSelector, Selection, TableChoice
from headrace.errors import ConfigInvalid, TableStopped
from headrace.simple.schema import Column, TableSchema
from tests.simple_tables import column, table


def text(name: str, length: int = 80) -> Column:
    return column(name, "varchar", length=length)


def users(name: str = "shop.users", *columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return table(name, column("id"), *(columns or (text("name"), text("email"))), key=key)


def delivered(schema: TableSchema, **rules: Any) -> list[str]:
    choice = Selection(["*.*"], ColumnRules(**rules)).of(schema)
    return [schema.columns[place].name for place in choice.delivered]


def test_tables() -> None:
    selection = Selection(["shop.*", "!shop.tmp_*", "mysql.user"])
    assert selection.captures("shop", "orders")
    assert selection.captures("Shop", "ORDERS")
    assert not selection.captures("shop", "tmp_1")
    assert not selection.captures("mysql", "user")
    everything = Selection(["*.*"])
    for database in ("mysql", "MYSQL", "information_schema", "performance_schema", "sys"):
        assert not everything.captures(database, "t")
    assert not Selection(["shop.*"], case_sensitive=True).captures("Shop", "orders")


def test_without_rules_all_goes_out() -> None:
    assert Selection(["*.*"]).of(users()) == TableChoice((0, 1, 2), (None, None, None), True)


def test_excluded_columns() -> None:
    assert delivered(users(), exclude=("shop.users.email",)) == ["id", "name"]
    assert delivered(users(), exclude=("*.*.E*",)) == ["id", "name"]
    assert delivered(users(), exclude=("shop.orders.email", "other.users.name")) == ["id", "name", "email"]


def test_only_some_columns_and_the_key() -> None:
    assert delivered(users(), columns=("shop.users.name",)) == ["id", "name"]
    assert delivered(users("shop.orders"), columns=("shop.users.name",)) == ["id", "name", "email"]
    assert delivered(users(), columns=("shop.users.nothing",)) == ["id"]
    assert delivered(users(), columns=("shop.*.*",), exclude=("*.*.name",)) == ["id", "email"]


def test_what_is_hidden_is_known_without_a_schema() -> None:
    rules = ColumnRules(columns=("shop.users.name",), exclude=("*.*.email",), mask=("*.*.name",))
    hides = Selection(["*.*"], rules).hides
    assert hides("shop", "users", "place")
    assert hides("shop", "orders", "email")
    assert not hides("shop", "users", "name")
    assert not hides("shop", "orders", "place")


def test_masked_columns() -> None:
    schema = users("shop.users", text("a"), text("b", 2), text("c", 0), column("n"))
    choice = Selection(["*.*"], ColumnRules(mask=("shop.users.[abc]",))).of(schema)
    assert choice == TableChoice((0, 1, 2, 3, 4), (None, "***", "**", "", None), False)
    both = ColumnRules(mask=("*.*.a",), exclude=("*.*.a",))
    assert Selection(["*.*"], both).of(schema).delivered == (0, 2, 3, 4)


def test_the_first_selector_that_matches_counts() -> None:
    selectors = (
        ColumnSelector(("shop.users",), ("*", "!email")),
        ColumnSelector(("shop.*",), ("id", "email")),
    )
    assert delivered(users(), selectors=selectors) == ["id", "name"]
    assert delivered(users("shop.orders"), selectors=selectors) == ["id", "email"]
    assert delivered(users("other.users"), selectors=selectors) == ["id", "name", "email"]


@pytest.mark.parametrize(
    ("pattern", "database", "name", "column_name"),
    [
        ('"a.b".`c.d`.e', "a.b", "c.d", "e"),
        (r"a\.b.c./e\.f|g/", "a.b", "c", "xgx"),
        ("[a.].c.[e.f]", ".", "c", "."),
        ('a."b\\".c', "a", "b\\", "c"),
        (" a.b.c ", "a", "b", "c"),
    ],
)
def test_dots_that_part_nothing(pattern: str, database: str, name: str, column_name: str) -> None:
    schema = TableSchema(database, name, 1, 1, (text(column_name), text("other")), ())
    choice = Selection(["*.*"], ColumnRules(exclude=(pattern,))).of(schema)
    assert choice.delivered == (1,)


@pytest.mark.parametrize(
    "pattern", ["", "a", "a.b", "a.b.c.d", "a..c", ".b.c", "a.b.", "!a.b.c", "a.b.c d", "a.b.[", "a./b.c"]
)
def test_no_pattern_for_columns(pattern: str) -> None:
    for rules in (ColumnRules(mask=(pattern,)), ColumnRules(exclude=(pattern,))):
        with pytest.raises(ConfigInvalid, match=r"(mask|exclude-columns): ") as caught:
            Selection(["*.*"], rules)
        assert repr(pattern) in caught.value.detail


@pytest.mark.parametrize(
    "rules",
    [
        ColumnRules(exclude=("*.*.id",)),
        ColumnRules(mask=("shop.users.id",)),
        ColumnRules(selectors=(ColumnSelector(("*.*",), ("name",)),)),
    ],
)
def test_the_key_can_be_neither_left_out_nor_masked(rules: ColumnRules) -> None:
    with pytest.raises(TableStopped, match=r"shop\.users\.id is in the handle key") as caught:
        Selection(["*.*"], rules).of(users())
    assert caught.value.members == {"database": "shop", "table": "users"}


@pytest.mark.parametrize("kind", ["int", "blob", "enum", "json", "timestamp"])
def test_only_text_can_be_masked(kind: str) -> None:
    schema = users("shop.users", column("secret", kind))
    selection = Selection(["*.*"], ColumnRules(mask=("*.*.secret",)))
    with pytest.raises(TableStopped, match=rf"shop\.users\.secret is of the type {kind}: only text"):
        selection.of(schema)


HIDE = Selection(["*.*"], ColumnRules(exclude=("shop.users.email",)))
MASK = Selection(["*.*"], ColumnRules(mask=("shop.users.email",)))
ONLY = Selection(["*.*"], ColumnRules(columns=("shop.users.email",)))


@pytest.mark.parametrize("selection", [HIDE, MASK, ONLY])
def test_a_renamed_column_does_not_slip_out_of_its_rule(selection: Selection) -> None:
    after = users("shop.users", text("name"), text("mail"))
    with pytest.raises(TableStopped, match=r"shop\.users\.mail may be email under a new name") as caught:
        selection.of(after, users())
    assert "capture copy" in caught.value.advice
    assert selection.of(after).delivered[0] == 0, "a table that is begun anew has no past"


@pytest.mark.parametrize("selection", [HIDE, MASK])
def test_a_renamed_table_does_not_slip_out_of_its_rule(selection: Selection) -> None:
    with pytest.raises(TableStopped, match=r"shop\.users_old\.email was (hidden|masked) in shop\.users"):
        selection.of(users("shop.users_old"), users())
    assert selection.of(users(), users("shop.users_new")).delivered, "into a rule is no way out of one"


def test_a_new_key_does_not_show_what_was_hidden() -> None:
    with pytest.raises(TableStopped, match=r"shop\.users\.name was hidden"):
        ONLY.of(users(key=("id", "name")), users())


@pytest.mark.parametrize(
    "after",
    [
        users("shop.users", text("name"), text("email"), text("phone")),
        users("shop.users", text("name")),
        users("shop.users", text("email"), text("name", 10)),
        users("shop.users", text("full_name"), text("email")),
    ],
)
def test_other_changes_of_a_table_keep_its_rules(after: TableSchema) -> None:
    for selection in (HIDE, MASK):
        selection.of(after, users())


def test_rules_that_name_nothing_are_told() -> None:
    rules = ColumnRules(
        columns=("shop.*.*",), exclude=("shop.users.emial", "*.*.name"), mask=("shop.user.email",)
    )
    told = Selection(["*.*"], rules).unmatched([users(), users("shop.orders")])
    assert told == ["exclude-columns: 'shop.users.emial'", "mask: 'shop.user.email'"]
    assert Selection(["*.*"], rules).unmatched([]) == [
        "columns: 'shop.*.*'",
        "exclude-columns: 'shop.users.emial'",
        "exclude-columns: '*.*.name'",
        "mask: 'shop.user.email'",
    ]
