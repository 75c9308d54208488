"""Dispatch rules: the first that matches wins."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigInvalid
from headrace.simple.dispatch import Dispatcher, DispatchRule
from headrace.simple.message import Ddl, MessageType
from tests.simple_tables import insert, table

RULES = [
    DispatchRule(("test_default1.*",), "default"),
    DispatchRule(("test_default2.*",), "unknown-dispatcher"),
    DispatchRule(("test_table.*",), "table", topic="hello_{schema}_world"),
    DispatchRule(("test_index_value.*",), "index-value", topic="{schema}_world"),
    DispatchRule(("test.*",), "rowid", topic="hello_{schema}"),
    DispatchRule(("*.*", "!*.test"), "TS", topic="{schema}_{table}"),
    DispatchRule(("hard_code_schema.*",), "default", topic="hard_code_topic"),
]


@pytest.mark.parametrize(
    ("name", "topic", "partitions", "partition"),
    [
        ("sbs.test", "main", 16, None),
        ("test_default1.table", "main", 16, 14),
        ("test_default2.table", "main", 16, 0),
        ("TEST_TABLE.table", "hello_TEST_TABLE_world", 16, None),
        ("test_table.table", "hello_test_table_world", 16, 15),
        ("test_index_value.table", "test_index_value_world", 10, 1),
        ("test.t1", "hello_test", 16, 2),
        ("a.table", "a_table", 2, 1),
        ("hard_code_schema.test", "hard_code_topic", 16, None),
    ],
)
def test_routes(name: str, topic: str, partitions: int, partition: int | None) -> None:
    schema = table(name, "a", "b")
    route = Dispatcher(RULES, "main").route_of(schema)
    assert route.topic == topic
    if partition is not None:
        assert route.partition_of(insert(schema, 1, a="11", b="22"), partitions) == partition


def test_case_counts_if_asked() -> None:
    rules = [DispatchRule(("Shop.*",), topic="mine")]
    assert Dispatcher(rules, "main").topic_of("shop", "t") == "mine"
    assert Dispatcher(rules, "main", case_sensitive=True).topic_of("shop", "t") == "main"


def test_topics_for_watermarks() -> None:
    names = ["test_default1", "test_default2", "test_table", "test_index_value", "test", "sbs"]
    topics = Dispatcher(RULES, "main").topics([(name, "table") for name in names])
    assert topics == ["main", "hello_test_table_world", "test_index_value_world", "hello_test", "sbs_table"]
    assert Dispatcher(RULES, "main").topics([("sbs", "table")]) == ["sbs_table", "main"]


def test_topic_of_a_ddl() -> None:
    dispatcher = Dispatcher(RULES, "main")
    old, new = table("test1.tb1", "a"), table("test1.tb2", "a")
    assert dispatcher.topic_of_ddl(Ddl(MessageType.CREATE, "", 1, 1, old)) == "test1_tb1"
    assert dispatcher.topic_of_ddl(Ddl(MessageType.RENAME, "", 1, 1, new, old)) == "test1_tb1"
    assert dispatcher.topic_of_ddl(Ddl(MessageType.QUERY, "CREATE DATABASE x", 1, 1)) == "main"


def test_what_counts_for_nothing_is_said() -> None:
    rules = [
        DispatchRule(("a.*",), "nothing"),
        DispatchRule(("b.*",), "ts", index="i"),
        DispatchRule(("c.*",), "table", columns=("x",)),
    ]
    warnings = Dispatcher(rules, "main").warnings
    assert [warning.split(":")[0] for warning in warnings] == [
        f"dispatch rule {place}" for place in (1, 2, 3)
    ]
    assert "'nothing' is not known: default is used" in warnings[0]
    assert Dispatcher([], "main").warnings == []


def test_wrong_rules() -> None:
    with pytest.raises(ConfigInvalid, match="needs a list of columns"):
        Dispatcher([DispatchRule(("*.*",), "columns")], "main")
    with pytest.raises(ConfigInvalid, match="the topic"):
        Dispatcher([DispatchRule(("*.*",), topic="{nope}")], "main")
    with pytest.raises(ConfigInvalid, match="the table filter"):
        Dispatcher([DispatchRule(("nope",))], "main")
    schema = table("a.b", "a")
    route = Dispatcher([], "main").route_of(schema)
    with pytest.raises(ConfigInvalid, match="must have a partition"):
        route.partition_of(insert(schema, a="1"), 0)
