"""Options and columns are checked before anything runs; the error says which one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from headrace.errors import InvalidRequest
from headrace.pipeline.sink.options import OrderKey, SinkOptions, read_options
from headrace.pipeline.sink.position import Settlement

TYPES: dict[str, DataType] = {
    "STRING": StringType(),
    "BINARY": BinaryType(),
    "BIGINT": LongType(),
    "INT": IntegerType(),
    "ARRAY<INT>": ArrayType(IntegerType()),
    "MAP<STRING;INT>": MapType(StringType(), IntegerType()),
}
COLUMNS = "key STRING, value STRING, id BIGINT"
GIVEN = {"feed": "f", "agent-id": "a", "order-by": "id"}


def read(columns: str = COLUMNS, streaming: bool = True, without: str = "", **more: Any) -> SinkOptions:
    named = GIVEN | {name.replace("_", "-"): value for name, value in more.items()}
    named.pop(without, None)
    fields = [StructField(name, TYPES[kind]) for name, kind in map(str.split, columns.split(","))]
    return read_options(named, StructType(fields), streaming=streaming)


def test_what_is_given_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SERVER", "http://env:1")
    found = read(
        grpc="there:2",
        token_file="/t",
        ca_file="/c",
        shared="true",
        incarnation="i",
        retry_seconds="5",
        order_by="id desc, key",
        replaces="q",
        keep_batch="0",
        checkpointLocation="/cp",
    )
    assert (found.target.server, found.target.grpc, found.target.agent_id) == ("http://env:1", "there:2", "a")
    assert (found.target.token_file, found.target.ca_file, found.target.incarnation) == ("/t", "/c", "i")
    assert (found.target.shared, found.target.retry_s) == (True, 5.0)
    assert found.order == (OrderKey("id", descending=True), OrderKey("key"))
    assert (found.feed, found.settled) == ("f", Settlement("q", keep_batch=0))


def test_files_are_those_of_the_drivers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers run elsewhere."""
    monkeypatch.chdir(tmp_path)
    found = read(token_file="token", ca_file="/etc/ca.pem", kept_in="kept")
    assert found.target.token_file == str(tmp_path / "token")
    assert found.target.ca_file == "/etc/ca.pem"
    assert found.kept_in == "kept"  # the driver's alone


def test_an_ordinal_is_the_order_where_none_is_given() -> None:
    columns = "key BINARY, value BINARY, ordinal INT"
    assert read(columns, without="order-by").order == (OrderKey("ordinal"),)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"retry_seconds": ""}, "retry-seconds must be a number"),
        ({"nonsense": "1"}, "no option 'nonsense'"),
        ({"feed": ""}, "one of the options feed and feed-column"),
        ({"feed_column": "to"}, "one of the options feed and feed-column"),
        ({"feed": "a b"}, "not a valid name"),
        ({"agent_id": ""}, "needs the option agent-id"),
        ({"agent_id": "a b"}, "not a valid name"),
        ({"batch_id": "1"}, "leave batch-id out"),
        ({"order_by": ""}, "needs the order of a batch's rows"),
        ({"order_by": "id down"}, "order-by: 'id down' is not"),
        ({"order_by": "id,,key"}, "order-by: '' is not"),
        ({"order_by": "gone"}, "misses the column 'gone'"),
        ({"shared": "maybe"}, "shared must be true or false"),
        ({"retry_seconds": "-1"}, "retry-seconds must be a number"),
        ({"keep_batch": "x"}, "keep-batch must be a number from 0"),
        ({"columns": "value STRING, id BIGINT"}, "misses the column 'key'"),
        ({"columns": "key STRING, id BIGINT"}, "misses the column 'value'"),
        ({"columns": COLUMNS + ", key STRING"}, "two columns of one name"),
        ({"columns": COLUMNS + ", more INT"}, r"does not know the column 'more' \(int\)"),
        ({"columns": "key INT, value STRING, id BIGINT"}, r"can't take the column 'key' \(int\)"),
        ({"columns": "key STRING, value MAP<STRING;INT>, id BIGINT"}, "can't take the column 'value'"),
        ({"columns": COLUMNS + ", op INT"}, "can't take the column 'op'"),
        ({"columns": COLUMNS + ", table STRING"}, "can't take the column 'table'"),
        ({"columns": COLUMNS + ", ordinal STRING"}, "can't take the column 'ordinal'"),
        ({"columns": "key STRING, value STRING, id ARRAY<INT>"}, "can't take the column 'id'"),
    ],
)
def test_what_is_wrong_is_named(more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        read(**more)


def test_a_server_that_is_away_need_not_be_waited_for() -> None:
    assert read(retry_seconds="0").target.retry_s == 0
    assert read().target.retry_s == 120


def test_a_batch_write_has_a_number() -> None:
    assert read(streaming=False, batch_id="20261122").batch_id == 20261122
    with pytest.raises(InvalidRequest, match="needs the option batch-id"):
        read(streaming=False)
