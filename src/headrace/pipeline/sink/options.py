"""What users tell the sink, checked on the driver before anything runs, and carried to the tasks as values. Pure.

``docs/howto/spark-sink.md`` lists the options. Defaults of the environment are the driver's, not the workers'.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
)

from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import InvalidRequest
from headrace.pipeline.addresses import absolute_file
from headrace.pipeline.connection import RETRY_S
from headrace.pipeline.sink.position import UNSETTLED, Settlement

FORMAT: Final = "headrace"
DEFAULT_SERVER: Final = "http://127.0.0.1:8470"
DEFAULT_GRPC: Final = "127.0.0.1:8471"

_NAMES: Final = {
    "endpoint", "grpc", "token-file", "ca-file", "feed", "feed-column", "agent-id", "shared", "order-by", "incarnation",
    "retry-seconds", "kept-in", "replaces", "keep-batch", "repeat-batch", "batch-id",
}  # fmt: skip
_SPARKS_OWN: Final = {"checkpointlocation", "queryname", "path"}
"""Options of ``writeStream`` itself, which Spark hands on in lower case."""
_COLUMNS: Final = "key (string or binary), value (string or binary), op (string), table (array of string), ordinal (integer)"
_TEXT: Final = (StringType, BinaryType)
_INTEGERS: Final = (ShortType, IntegerType, LongType)


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A column by which a batch's rows are put in order; nulls come last."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class SinkTarget:
    """Where appends go, and as whom. The files are read where the connection is made. ``retry_s``: how long to try."""

    server: str
    grpc: str
    agent_id: str
    token_file: str = ""
    ca_file: str = ""
    shared: bool = False
    incarnation: str = ""
    retry_s: float = RETRY_S


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """All that a task has to know. One of ``feed`` and ``feed_column`` is empty. ``batch_id``: batch writes only.

    ``kept_in``: the driver's folder for what the query appended last, if it is not to be the checkpoint.
    """

    target: SinkTarget
    order: tuple[OrderKey, ...]
    feed: str = ""
    feed_column: str = ""
    settled: Settlement = UNSETTLED
    batch_id: int | None = None
    kept_in: str = ""


def read_options(given: MutableMapping[str, str], schema: StructType, *, streaming: bool) -> SinkOptions:
    """Return the options of a query that writes rows of ``schema``; InvalidRequest names the option or column at fault."""
    named = {name.lower(): value for name, value in given.items() if name.lower() not in _SPARKS_OWN}
    unknown = sorted(name for name in named if name not in _NAMES)
    if unknown:
        raise _wrong(
            f"the sink has no option {unknown[0]!r}", f"The options are: {', '.join(sorted(_NAMES))}."
        )
    feed, feed_column = named.get("feed", ""), named.get("feed-column", "")
    if bool(feed) == bool(feed_column):
        raise _wrong("the sink needs one of the options feed and feed-column", "Add .option('feed', NAME).")
    if not named.get("agent-id"):
        raise _wrong(
            "the sink needs the option agent-id",
            "Name the query for good: .option('agent-id', NAME). The feed knows its batches by this name.",
        )
    batch_id, retry_s = _number(named, "batch-id"), _number(named, "retry-seconds")
    if streaming == (batch_id is not None):
        raise _wrong(
            "a stream has batch ids of its own: leave batch-id out"
            if streaming
            else "a batch write needs the option batch-id, or a repeated one would be written twice",
            "Give each write of this agent-id a greater number; the same number again is the same write.",
        )
    target = SinkTarget(
        server=named.get("endpoint") or os.environ.get("HEADRACE_SERVER") or DEFAULT_SERVER,
        grpc=named.get("grpc") or os.environ.get("HEADRACE_GRPC") or DEFAULT_GRPC,
        agent_id=check_agent_id(named["agent-id"]),
        token_file=absolute_file(named.get("token-file", "")),
        ca_file=absolute_file(named.get("ca-file", "")),
        shared=_flag(named, "shared"),
        incarnation=named.get("incarnation", ""),
        retry_s=RETRY_S if retry_s is None else float(retry_s),
    )
    settled = Settlement(named.get("replaces"), _number(named, "keep-batch"), _number(named, "repeat-batch"))
    options = SinkOptions(
        target=target,
        order=_order(named.get("order-by", ""), schema),
        feed=check_feed_id(feed) if feed else "",
        feed_column=feed_column,
        settled=settled,
        batch_id=batch_id,
        kept_in=named.get("kept-in", ""),
    )
    _check_columns(schema, options)
    return options


def _order(text: str, schema: StructType) -> tuple[OrderKey, ...]:
    if not text.strip():
        if "ordinal" in schema.fieldNames():
            return (OrderKey("ordinal"),)
        raise _wrong(
            "the sink needs the order of a batch's rows: the option order-by, or a column ordinal",
            "Add .option('order-by', 'COLUMN, COLUMN desc').",
        )
    keys = []
    for part in text.split(","):
        words = part.split()
        if len(words) not in {1, 2} or words[1:] not in ([], ["asc"], ["desc"]):
            raise _wrong(f"order-by: {part.strip()!r} is not COLUMN, COLUMN asc or COLUMN desc", "")
        keys.append(OrderKey(words[0], descending=words[1:] == ["desc"]))
    return tuple(keys)


def _check_columns(schema: StructType, options: SinkOptions) -> None:
    kinds: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if len(kinds) != len(schema.fields):
        raise _wrong("the sink was given two columns of one name", "")
    ordered = {key.column for key in options.order}
    used = {"key", "value", "op", "table", "ordinal", options.feed_column} | ordered
    for name in ("key", "value", *sorted(ordered), *([options.feed_column] if options.feed_column else [])):
        if name not in kinds:
            raise _wrong(f"the sink misses the column {name!r}", f"The columns are: {_COLUMNS}.")
    for name, kind in kinds.items():
        fits = {
            "key": isinstance(kind, _TEXT),
            "value": isinstance(kind, _TEXT),
            "op": isinstance(kind, StringType),
            "table": isinstance(kind, ArrayType) and isinstance(kind.elementType, StringType),
            "ordinal": isinstance(kind, _INTEGERS),
            options.feed_column: isinstance(kind, StringType),
        }.get(name, isinstance(kind, AtomicType))
        if name not in used or not fits:
            what = "does not know the column" if name not in used else "can't take the column"
            raise _wrong(
                f"the sink {what} {name!r} ({kind.simpleString()})",
                f"The columns are: {_COLUMNS}, and those that order-by and feed-column name.",
            )


def _number(named: dict[str, str], name: str) -> int | None:
    """Return a number from 0 up; None if the option is not given."""
    text = named.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise _wrong(f"{name} must be a number from 0 up, not {text[:80]!r}", "")
    return int(text)


def _flag(named: dict[str, str], name: str) -> bool:
    text = named.get(name, "false").lower()
    if text not in {"true", "false"}:
        raise _wrong(f"{name} must be true or false, not {text[:80]!r}", "")
    return text == "true"


def _wrong(what: str, hint: str) -> InvalidRequest:
    return InvalidRequest(f"{FORMAT}: {what}", hint=hint or InvalidRequest.hint)
