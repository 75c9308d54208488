"""Entries to topics, partitions and bytes, as workers do it; and rows of JSON as rows of Avro."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, MessageTooLarge, SimpleInvalid, SimpleSchemaMissing, TopicUnfit
from headrace.pipeline.kafka.avro import AvroRows
from headrace.pipeline.kafka.routing import ROUTED, Routing, TopicPlace, check_size, read_subject
from headrace.pipeline.kafka.sink import parse_sink
from headrace.simple import avro_codec, json_codec
from headrace.simple.message import Bootstrap, Dml, RawRow, Watermark
from headrace.simple.partition import PartitionRule, placer_of
from headrace.simple.schema import TableSchema
from headrace.simple.values import Encoding, RowTypes
from tests.scale import scaled
from tests.simple import SAMPLES, rows, schemas
from tests.simple_tables import change, column, insert, table

SCHEMA = table("shop.a", "id", column("name", "varchar"), version=7, key=("id",))
ROW = {"id": "1", "name": "Ada"}
ANY_TOPICS = {"t": TopicPlace(0, 4, 1_000_000), "shop": TopicPlace(4, 3, 1_000_000)}


class Known:
    """The schemas of a feed."""

    def __init__(self, *schemas: TableSchema) -> None:
        self.schemas = {schema.key: schema for schema in schemas}

    def find(self, database: str, table: str, version: int) -> TableSchema:
        found = self.schemas.get((database, table, version))
        if found is None:
            raise SimpleSchemaMissing(f"no {table} {version}")
        return found


def routed(
    messages: Iterable[Any], config: str = "", *, topics: Any = None, known: Any = None, **more: Any
) -> list[dict[str, Any]]:
    """What becomes of entries whose values are these messages (or bytes)."""
    values = [one if isinstance(one, bytes) else json_codec.encode(one) for one in messages]
    count = len(values)
    columns = {
        "sequence_id": pa.array(range(11, 11 + count), pa.int64()),
        "lsn": ["an-lsn"] * count,
        "op": [more.get("op", "put")] * count,
        "value": pa.array(values, pa.binary()),
        "control": pa.array([more.get("control")] * count, pa.string()),
        "table": pa.array([["shop", "a"]] * count, pa.list_(pa.string())),
    }
    sink = parse_sink("kafka://h:1/t", config)
    routing = Routing("f", sink.changefeed, sink.topic, topics or ANY_TOPICS, known or Known(SCHEMA))
    batch = pa.RecordBatch.from_pydict(columns)
    found = list(routing.route(iter([batch])))
    assert all(one.schema == ROUTED for one in found)
    return [row | placed(row, routing.topics) for one in found for row in one.to_pylist()]


def placed(row: dict[str, Any], places: dict[str, TopicPlace]) -> dict[str, Any]:
    """The topic and the partition of a slot."""
    if row["slot"] is None:
        return {}
    names = [(topic, at) for topic, place in places.items() for at in range(place.partitions)]
    topic, partition = names[row["slot"]]
    return {"topic": topic, "partition": partition}


def config(rule: str) -> str:
    return f"[sink]\ndispatchers = [{{matcher = ['*.*'], {rule}}}]"


def test_a_row_goes_out_as_it_stands() -> None:
    (row,) = routed([insert(SCHEMA, 5, **ROW)])
    assert row["value"] == json_codec.encode(insert(SCHEMA, 5, **ROW))
    assert (row["topic"], read_subject(row["subject"])) == ("t", ("shop", "a", 7))
    assert row["partition"] == placer_of(SCHEMA, PartitionRule.TABLE).partition_of(
        insert(SCHEMA, 5, **ROW), 4
    )
    assert (row["sequence_id"], row["control"]) == (11, None)


@pytest.mark.parametrize(
    ("rule", "kind", "columns"),
    [
        ('partition = "index-value"', PartitionRule.INDEX_VALUE, ()),
        ('partition = "ts"', PartitionRule.TS, ()),
        ('partition = "columns", columns = ["name"]', PartitionRule.COLUMNS, ("name",)),
        ('partition = "table"', PartitionRule.TABLE, ()),
    ],
)
def test_the_dispatch_rules(rule: str, kind: PartitionRule, columns: tuple[str, ...]) -> None:
    given_rows = [insert(SCHEMA, number, id=str(number), name=f"n{number % 3}") for number in range(1, 30)]
    placer = placer_of(SCHEMA, kind, columns=columns)
    found = routed(given_rows, config(rule))
    assert [one["partition"] for one in found] == [placer.partition_of(row, 4) for row in given_rows]
    assert [one["slot"] for one in found] == [one["partition"] for one in found]


def test_a_topic_expression_and_its_slots() -> None:
    (row,) = routed([insert(SCHEMA, 5, **ROW)], config('topic = "{schema}"'))
    assert row["topic"] == "shop"
    assert row["slot"] == 4 + row["partition"]


def test_the_filter_leaves_tables_out() -> None:
    assert routed([insert(SCHEMA, 5, **ROW)], "[filter]\nrules = ['*.*', '!shop.a']") == []


def test_column_selectors_leave_columns_out() -> None:
    text = "[sink]\ncolumn-selectors = [{matcher = ['shop.a'], columns = ['*', '!name']}]"
    (row,) = routed([change("UPDATE", SCHEMA, 5, ROW, ROW | {"name": "x"})], text)
    message = json_codec.decode(row["value"])
    assert isinstance(message, Dml)
    assert (message.data, message.old) == ({"id": "1"}, {"id": "1"})


def test_avro() -> None:
    text = "[sink.kafka-config.codec-config]\nencoding-format = 'avro'"
    row = insert(SCHEMA, 5, **ROW)
    (found,) = routed([row], text)
    wanted = msgspec.structs.replace(row, data={"id": 1, "name": "Ada"})
    assert avro_codec.decode(found["value"]) == wanted


def test_statements_and_watermarks_are_handed_on_and_nothing_else_is() -> None:
    (row,) = routed([Watermark(5, 6)], control="watermark")
    assert (row["control"], row["slot"]) == ("watermark", None)
    assert row["value"] == json_codec.encode(Watermark(5, 6))
    (row,) = routed([b"{}"], control="ddl")
    assert (row["control"], read_subject(row["subject"])[:2]) == ("ddl", ("shop", "a"))
    for control in ("schema", "copy-begin", "copy-end", "stopped", "truncate"):
        assert routed([b"{}"], control=control) == []


@pytest.mark.parametrize(
    ("message", "error", "more"),
    [
        (b"no JSON", SimpleInvalid, {}),
        (b'{"a":1}', SimpleInvalid, {}),
        (Watermark(5, 6), SimpleInvalid, {}),
        (Bootstrap(5, SCHEMA), SimpleInvalid, {}),
        (insert(SCHEMA, 5, **ROW), SimpleInvalid, {"op": "patch"}),
        (insert(SCHEMA, 5, **ROW), SimpleSchemaMissing, {"known": Known()}),
        (insert(SCHEMA, 5, **ROW), TopicUnfit, {"topics": {"other": TopicPlace(0, 1, 1)}}),
        (
            insert(SCHEMA, 5, id="1", name="x" * 100),
            MessageTooLarge,
            {"topics": {"t": TopicPlace(0, 1, 200)}},
        ),
    ],
)
def test_what_can_not_go_out_is_named(message: Any, error: type[HeadraceError], more: dict[str, Any]) -> None:
    with pytest.raises(error) as caught:
        routed([message], **more)
    assert caught.value.detail.startswith("feed f, sequence id 11, LSN an-lsn, table shop.a: ")


def test_a_size_is_counted_as_ticdc_counts_it() -> None:
    check_size(b"x" * 64, "t", TopicPlace(0, 1, 100))
    with pytest.raises(MessageTooLarge, match="101 bytes"):
        check_size(b"x" * 65, "t", TopicPlace(0, 1, 100))


@settings(max_examples=scaled(150), deadline=None)
@given(data=st.data())
def test_avro_values_are_those_of_the_columns_types(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    row = data.draw(rows(schema))
    in_json = _row_of(schema, RowTypes(schema).write(row, "a row"))
    in_avro = _row_of(schema, RowTypes(schema, Encoding.AVRO).write(row, "a row"))
    assert AvroRows(schema).converted(in_json) == in_avro


def _row_of(schema: TableSchema, raw: RawRow) -> Dml:
    return change("INSERT", schema, 5, raw)


def test_a_value_of_another_type_is_no_avro() -> None:
    with pytest.raises(SimpleInvalid, match=r"data\.id"):
        AvroRows(SCHEMA).converted(insert(SCHEMA, 5, id="x", name="Ada"))
    with pytest.raises(SimpleInvalid, match=r"data\.other"):
        AvroRows(SCHEMA).converted(insert(SCHEMA, 5, other="x"))


@pytest.mark.parametrize(
    "name", [name for name in SAMPLES if "insert" in name.lower() or "update" in name.lower()]
)
def test_messages_of_ticdc_keep_their_bytes(name: str) -> None:
    message = json_codec.decode(SAMPLES[name])
    assert isinstance(message, Dml)
    keyed = table(f"{message.database}.{message.table}", "id", version=message.schema_version, key=())
    (row,) = routed([SAMPLES[name]], known=Known(keyed))
    assert row["value"] == SAMPLES[name]
