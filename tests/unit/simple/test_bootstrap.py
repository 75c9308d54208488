"""BOOTSTRAP messages are due when TiCDC's are."""

from __future__ import annotations

import msgspec
import pytest

from headrace.simple.bootstrap import BootstrapDue, BootstrapPolicy, BootstrapSettings
from headrace.simple.message import Bootstrap, Ddl, MessageType
from headrace.simple.schema import TableSchema
from tests.simple_tables import table

T = table("shop.orders", "a", table_id=1)
SECOND = 1_000
MINUTE = 60 * SECOND


def due(schema: TableSchema = T, topic: str = "orders", partitions: int = 4) -> BootstrapDue:
    return BootstrapDue(Bootstrap(7, schema), topic, range(partitions))


def begun(interval_s: int = 120, messages: int = 10_000, **more: bool) -> BootstrapPolicy:
    """A policy whose checks begin at 0, with one active table."""
    policy = BootstrapPolicy(BootstrapSettings(interval_s, messages, **more))
    assert policy.tick(0, 7) == []
    policy.row(T, "orders", 4, 0, 7)
    return policy


def rows(policy: BootstrapPolicy, count: int, now_ms: int) -> list[BootstrapDue | None]:
    return [policy.row(T, "orders", 4, now_ms, 7) for _ in range(count)]


def test_before_a_tables_first_row() -> None:
    policy = BootstrapPolicy(BootstrapSettings())
    assert policy.row(T, "orders", 4, 0, 7) == due()
    assert rows(policy, 3, 1) == [None] * 3


def test_to_the_first_partition_alone() -> None:
    policy = BootstrapPolicy(BootstrapSettings(to_all_partitions=False))
    assert policy.row(T, "orders", 4, 0, 7) == due(partitions=1)


def test_each_interval() -> None:
    policy = begun()
    assert policy.tick(119_999, 7) == []
    assert policy.tick(124_999, 7) == [due()], "5 seconds after the last look"
    assert policy.tick(125_000, 7) == []
    assert policy.tick(244_998, 7) == []
    assert policy.tick(249_998, 7) == [due()]


def test_a_count_is_noticed_every_five_seconds_alone() -> None:
    policy = begun(messages=3)
    assert rows(policy, 9, 1) == [None] * 9, "rows are never held up"
    assert policy.tick(4_999, 7) == []
    assert policy.tick(5_000, 7) == [due()]
    rows(policy, 2, 5_001)
    assert policy.tick(10_000, 7) == []
    rows(policy, 1, 10_001)
    assert policy.tick(14_999, 7) == []
    assert policy.tick(15_000, 7) == [due()]


@pytest.mark.parametrize(("interval_s", "messages"), [(0, 1), (1, 0), (-1, 1), (0, 0)])
def test_either_number_turns_it_off(interval_s: int, messages: int) -> None:
    policy = BootstrapPolicy(BootstrapSettings(interval_s, messages))
    assert policy.tick(0, 7) == []
    assert rows(policy, 5, 0) == [None] * 5
    assert policy.tick(200 * SECOND, 7) == []
    assert policy.active == 0


def test_a_table_without_rows_for_half_an_hour_is_left_out() -> None:
    policy = begun()
    for minute in range(1, 31):
        assert bool(policy.tick(minute * MINUTE, 7)) is (minute % 2 == 0), minute
    assert policy.active == 1
    assert policy.tick(30 * MINUTE + 25 * SECOND, 7) == []
    assert policy.active == 1, "it is looked for every 30 seconds"
    assert policy.tick(30 * MINUTE + 30 * SECOND, 7) == []
    assert policy.active == 0
    assert policy.tick(60 * MINUTE, 7) == []
    assert policy.row(T, "orders", 4, 61 * MINUTE, 7) == due(), "and comes back with its next row"


def test_a_ddl_brings_the_schema_itself() -> None:
    policy = begun(messages=3)
    rows(policy, 3, 1)
    altered = msgspec.structs.replace(T, version=2)
    policy.ddl(Ddl(MessageType.ALTER, "", 9, 7, altered, T), 100 * SECOND)
    assert policy.tick(130 * SECOND, 7) == []
    assert policy.tick(220 * SECOND, 7) == [due(altered)]


def test_a_dropped_table_is_not_active() -> None:
    policy = begun()
    policy.ddl(Ddl(MessageType.ERASE, "", 9, 7, T, T), SECOND)
    assert policy.active == 0


def test_a_truncated_table_is_another_one() -> None:
    policy = begun()
    emptied = msgspec.structs.replace(T, table_id=2)
    policy.ddl(Ddl(MessageType.TRUNCATE, "", 9, 7, emptied, T), SECOND)
    assert policy.active == 0
    assert policy.row(emptied, "orders", 4, SECOND, 7) == due(emptied)


def test_a_database_or_a_table_that_is_not_active() -> None:
    policy = begun()
    policy.ddl(Ddl(MessageType.QUERY, "CREATE DATABASE x", 9, 7), SECOND)
    policy.ddl(Ddl(MessageType.CREATE, "", 9, 7, table("shop.other", "a", table_id=8)), SECOND)
    assert policy.active == 1


def test_a_renamed_table_is_announced_in_its_new_topic() -> None:
    policy = begun()
    renamed = msgspec.structs.replace(T, table="sales")
    policy.ddl(Ddl(MessageType.RENAME, "", 9, 7, renamed, T), SECOND)
    assert policy.row(renamed, "sales", 4, SECOND, 7) == due(renamed, "sales")
    assert policy.tick(121 * SECOND, 7) == [due(renamed, "sales")]


def test_partitions_that_were_added() -> None:
    policy = begun()
    policy.row(T, "orders", 8, 1, 7)
    assert policy.tick(120 * SECOND, 7) == [due(partitions=8)]
