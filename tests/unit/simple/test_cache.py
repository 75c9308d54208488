"""The schema cache: exact keys, bounded, never without what is needed."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import SimpleInvalid
from headrace.simple.cache import SchemaCache
from headrace.simple.message import Bootstrap, Ddl, MessageType
from tests.simple_tables import column, table

T = table("shop.orders", "a", version=3)


def versions(cache: SchemaCache) -> list[int]:
    return [schema.version for schema in cache]


def test_keys_are_exact() -> None:
    cache = SchemaCache()
    assert cache.add(T) is True
    assert cache.get(("shop", "orders", 3)) == T
    for key in [("shop", "orders", 4), ("shop", "Orders", 3), ("Shop", "orders", 3)]:
        assert cache.get(key) is None
        assert key not in cache


def test_what_was_not_used_for_longest_goes_first() -> None:
    cache = SchemaCache(3)
    for version in (1, 2, 3):
        cache.add(table("s.t", "a", version=version))
    cache.get(("s", "t", 1))
    cache.add(table("s.t", "a", version=4))
    assert versions(cache) == [3, 1, 4]


def test_what_is_needed_stays_even_above_the_bound() -> None:
    cache = SchemaCache(2)
    needed = {("s", "t", 1), ("s", "t", 2)}
    for version in (1, 2, 3):
        cache.add(table("s.t", "a", version=version), needed)
    assert versions(cache) == [1, 2, 3], "and the new one has to be there too"
    cache.add(table("s.t", "a", version=4), needed)
    assert versions(cache) == [1, 2, 4]
    cache.add(table("s.t", "a", version=5))
    assert versions(cache) == [4, 5]


def test_ddl_and_bootstrap_bring_schemas() -> None:
    cache = SchemaCache()
    before, after = table("s.t", "a", version=1), table("s.t", "a", "b", version=2)
    assert cache.learn(Ddl(MessageType.ALTER, "", 9, 9, after, before)) is True
    assert versions(cache) == [1, 2]
    assert cache.learn(Bootstrap(9, after)) is False
    assert cache.learn(Ddl(MessageType.QUERY, "CREATE DATABASE x", 9, 9)) is False


def test_truncate_gives_the_version_another_table_id() -> None:
    cache = SchemaCache()
    cache.add(T)
    emptied = msgspec.structs.replace(T, table_id=99)
    cache.learn(Ddl(MessageType.TRUNCATE, "", 9, 9, emptied, T))
    assert cache.get(T.key) == emptied


def test_the_first_of_equals_stays() -> None:
    cache = SchemaCache()
    first = table("s.t", "a", "b")
    cache.add(first)
    assert cache.add(table("s.t", "b", "a")) is False, "generations of writers order columns differently"
    assert cache.get(first.key) is first


def test_a_version_has_one_set_of_columns() -> None:
    cache = SchemaCache()
    cache.add(table("s.t", "a"))
    other = table("s.t", column("a", "bigint"))
    with pytest.raises(SimpleInvalid, match=r"BOOTSTRAP of s\.t version 1: tableSchema\.columns must be"):
        cache.learn(Bootstrap(9, other))
