"""Topic expressions name the topics that TiCDC's do."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigInvalid
from headrace.simple.topics import TopicExpression


@pytest.mark.parametrize(
    ("expression", "schema", "table", "topic"),
    [
        ("{schema}", "abc", "", "abc"),
        ("abc{schema}def", "hello", "", "abchellodef"),
        ("abc{schema}", "DEF", "", "abcDEF"),
        ("abc._-def{schema}abc", "HELLO", "", "abc._-defHELLOabc"),
        ("abc_def{schema}", "!@#$%^&*()_+.{}", "", "abc_def____________.__"),
        ("abc{schema}def", "你好", "", "abc__def"),
        ("{schema}_{table}", "HELLO", "WORLD", "HELLO_WORLD"),
        ("{schema}_{table}", "hello", "!@#$%^&*", "hello_________"),
        ("{schema}_{table}", "()_+.{}", "world", "____.___world"),
        ("ab.-c_{schema}_{table}_de.-f", "hello", "WORLD", "ab.-c_hello_WORLD_de.-f"),
        ("abc_{schema}de._-{table}_fhi", "hello", "world", "abc_hellode._-world_fhi"),
        ("{schema}_{table}", "你好", "世界", "_____"),
        ("{schema}_{table}", "{table}", "x", "_table__x"),
        ("prefix_{table}", "test", "table1", "prefix_table1"),
        ("{schema}", ".", "", "_"),
        ("{schema}", "..", "", "__"),
        ("{schema}-{table}", "a" * 200, "b" * 200, "a" * 200 + "-" + "b" * 48),
        ("literal.topic", "a", "b", "literal.topic"),
    ],
)
def test_topic_of_a_table(expression: str, schema: str, table: str, topic: str) -> None:
    assert TopicExpression(expression).topic_of(schema, table) == topic


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "{{{{schema}",
        "你好{schema}",
        "{schema}}}}}",
        "{xxx}",
        "abc{sch}",
        "{sch}_{tab}",
        "{schema}!{table}",
        "{table}_{schema}",
        "{schema}{schema}",
        "{Schema}",
        ".",
        "..",
        "a" * 250,
        "a\n",
    ],
)
def test_what_is_no_topic(expression: str) -> None:
    with pytest.raises(ConfigInvalid, match="the topic"):
        TopicExpression(expression)
