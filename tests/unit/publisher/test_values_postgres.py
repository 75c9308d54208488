"""PostgreSQL's types as words, and the JSON that its triggers write as the canonical one."""

from __future__ import annotations

import json
import math
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.publisher.attach.schema import Column, TableSchema
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.postgres.catalogue import SourceColumn
from headrace.publisher.postgres.render import RowRenderer
from headrace.publisher.postgres.spec import Spec
from headrace.publisher.postgres.triggers import JSON_NULLS
from headrace.publisher.postgres.values import DEPTH_MAX, column_type, fit_of, split_members


def source_column(base: str, *, kind: str = "base", typmod: int = -1, name: str = "c") -> SourceColumn:
    return SourceColumn(name, base, base, kind, typmod, False, True, "", "")


def numeric(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("column", "word"),
    [
        (source_column("int2"), "int64"),
        (source_column("int8"), "int64"),
        (source_column("float4"), "float64"),
        (source_column("numeric"), "decimal"),
        (source_column("numeric", typmod=numeric(10, 2)), "decimal(10,2)"),
        (source_column("numeric", typmod=numeric(38, 38)), "decimal(38,38)"),
        (source_column("numeric", typmod=numeric(39, 2)), "decimal"),
        (source_column("numeric", typmod=numeric(3, 5)), "decimal"),
        (source_column("numeric", typmod=numeric(3, -2)), "decimal"),
        (source_column("bool"), "boolean"),
        (source_column("bytea"), "binary"),
        (source_column("timestamptz"), "timestamp"),
        (source_column("timestamp"), "timestamp-ntz"),
        (source_column("timetz"), "string"),
        (source_column("jsonb"), "json"),
        (source_column("_int4", kind="json"), "json"),
        (source_column("public.mood", kind="enum"), "string"),
        (source_column("public.int4"), "string"),
        (source_column("uuid"), "string"),
    ],
)
def test_words(column: SourceColumn, word: str) -> None:
    assert column_type(column) == word


@pytest.mark.parametrize(
    ("word", "raw", "rendered"),
    [
        ("int64", "-9223372036854775808", "-9223372036854775808"),
        ("int64", "9223372036854775808", '{"number":"9223372036854775808"}'),
        ("int64", "1.0", '{"number":"1.0"}'),
        ("int64", '"x"', '{"text":"x"}'),
        ("int64", "true", '{"boolean":true}'),
        ("float64", "1", "1.0"),
        ("float64", "-0", "-0.0"),
        ("float64", "1e+23", "1e+23"),
        ("float64", "0.1", "0.1"),
        ("float64", '"-Infinity"', '"-Infinity"'),
        ("float64", '"x"', '{"text":"x"}'),
        (
            "decimal",
            "1000000000000000000000000000000000000000.50",
            '"1000000000000000000000000000000000000000.50"',
        ),
        ("decimal", '"NaN"', '"NaN"'),
        ("decimal", "1e5", '{"number":"1e5"}'),
        ("decimal(5,2)", "-1.50", '"-1.50"'),
        ("decimal(5,2)", '"NaN"', '{"text":"NaN"}'),
        ("boolean", "true", "true"),
        ("boolean", "1", '{"integer":1}'),
        ("binary", '"\\\\x"', '""'),
        ("binary", '"\\\\x00ff"', '"AP8="'),
        ("binary", '"\\\\x0"', '{"text":"\\\\x0"}'),
        ("binary", '"abc"', '{"text":"abc"}'),
        ("string", '"a\\"b"', '"a\\"b"'),
        ("string", "[1]", '{"json":[1]}'),
        ("date", '"0044-03-15 BC"', '"0044-03-15 BC"'),
        ("date", '"5874897-12-31"', '"5874897-12-31"'),
        ("date", '"-infinity"', '"-infinity"'),
        ("date", '"15.03.2026"', '{"text":"15.03.2026"}'),
        ("time", '"24:00:00"', '"24:00:00"'),
        ("timestamp", '"2026-01-01T00:00:00.5+00:00"', '"2026-01-01T00:00:00.5+00:00"'),
        ("timestamp", '"0001-01-01T00:00:00+00:00 BC"', '"0001-01-01T00:00:00+00:00 BC"'),
        ("timestamp", '"2026-01-01T00:00:00+02:00"', '{"text":"2026-01-01T00:00:00+02:00"}'),
        ("timestamp-ntz", '"infinity"', '"infinity"'),
        ("timestamp-ntz", '"2026-01-01T00:00:00+00:00"', '{"text":"2026-01-01T00:00:00+00:00"}'),
        ("json", '{"json":1}', '{"json":{"json":1}}'),
        ("json", '{ "\\u006ason" : 1}', '{"json":{ "\\u006ason" : 1}}'),
        ("json", '{"text":1}', '{"json":{"text":1}}'),
        ("json", '{"json":1,"json":2}', '{"json":{"json":1,"json":2}}'),
        ("json", '{"json":1,"b":2}', '{"json":1,"b":2}'),
        ("json", '"\\ud83d\\ude00"', '"\\ud83d\\ude00"'),
        ("json", '"\\\\ud83d"', '"\\\\ud83d"'),
        ("json", '"\\ud83d"', '{"text":"\\"\\\\ud83d\\""}'),
        ("json", "1e999", "1e999"),
    ],
)
def test_values(word: str, raw: str, rendered: str) -> None:
    assert fit_of(word)(raw.encode()).decode() == rendered


@given(st.binary(max_size=200))
def test_binary_reads_back(data: bytes) -> None:
    rendered = fit_of("binary")(json.dumps(f"\\x{data.hex()}").encode())
    assert b64decode(json.loads(rendered)) == data


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_read_back_and_look_like_floats(value: float) -> None:
    written = repr(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    rendered = fit_of("float64")(written.encode())
    assert isinstance(json.loads(rendered), float)
    assert math.isclose(json.loads(rendered), value, rel_tol=0)


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 1, 5_000])
def test_deep_values(depth: int) -> None:
    text = "[" * depth + "]" * depth
    rendered = fit_of("json")(text.encode())
    wanted = text if depth <= DEPTH_MAX else json.dumps({"text": text}, separators=(",", ":"))
    assert rendered.decode() == wanted


names = st.text(max_size=8)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(names, children, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(names, documents, max_size=6), st.booleans())
def test_members_are_split_as_a_decoder_does(row: dict[str, Any], ascii_only: bool) -> None:
    text = json.dumps(row, ensure_ascii=ascii_only).encode()
    assert {name: json.loads(raw) for name, raw in split_members(text).items()} == row


@given(documents)
def test_documents_can_be_told_from_null_and_from_each_other(document: Any) -> None:
    renderer = make_renderer(("id", "int64"), ("doc", "json"))
    row: dict[str, Any] = {"id": 1, "doc": document}
    if document is None:
        row[JSON_NULLS] = ["doc"]
    rendered = json.loads(renderer.render("put", json.dumps(row)).changes)["doc"]
    assert rendered is not None
    unwrapped = rendered["json"] if isinstance(rendered, dict) and list(rendered) == ["json"] else rendered
    assert unwrapped == document


def make_renderer(
    *columns: tuple[str, str], before: bool = False, masked: tuple[str, ...] = ()
) -> RowRenderer:
    schema = TableSchema(
        "public", "t", 1, tuple(Column(name, word, "", True) for name, word in columns), (columns[0][0],)
    )
    catalogue = tuple(
        source_column("jsonb" if word == "json" else "text", name=name) for name, word in columns
    )
    return RowRenderer(Spec(schema, AttachRequest(feed="f", before=before), catalogue, masked))


def test_rows_of_another_shape_than_the_schema() -> None:
    renderer = make_renderer(("id", "int64"), ("a", "string"), ("b", "float64"), before=True)
    row = renderer.render("put", '{"new":1,"b":2,"id":7}', '{"b":2,"id":7,"a":null,"new":3}')
    assert row.key == '["public","t",7]'
    assert row.changes == b'{"id":7,"a":null,"b":2.0}'
    assert row.before == b'{"id":7,"a":null,"b":2.0}'
    assert renderer.render("delete", '{"id":7}', None).changed is None


def test_masked_values_tell_only_that_they_changed() -> None:
    renderer = make_renderer(("id", "int64"), ("a", "string"), masked=("a",))
    same = renderer.render("put", '{"id":1,"a":"***"}', '{"id":1,"a":"***"}')
    other = renderer.render("put", '{"id":1,"a":"**"}', '{"id":1,"a":"***"}')
    gone = renderer.render("put", '{"id":1,"a":null}', '{"id":1,"a":"***"}')
    assert [row.changed for row in (same, other, gone)] == [(), ("a",), ("a",)]
    assert [row.changes for row in (same, other, gone)] == [
        b'{"id":1,"a":"***"}', b'{"id":1,"a":"***"}', b'{"id":1,"a":null}',
    ]  # fmt: skip


def test_row_that_no_decoder_takes_is_rendered_all_the_same() -> None:
    renderer = make_renderer(("id", "int64"), ("doc", "json"))
    deep = "[" * 3_000 + "]" * 3_000
    row = renderer.render("put", f'{{"id":1,"doc":{deep}}}', '{"id":1,"doc":"\\ud800"}')
    assert row.changed == ("doc",)
    assert msgspec.json.decode(row.changes) == {"id": 1, "doc": {"text": deep}}
