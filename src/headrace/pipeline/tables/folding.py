"""All changes of each key -> its one net change, as record batches; and rows of feeds without tables.

Called on workers by the tables job, where a batch holds patches: then the entries of a key have to be merged one after
another, starting from the row that the table holds. Pure: Arrow and Python, no JVM.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from headrace.entries.entry import Op
from headrace.pipeline.tables.moments import MOMENTS, value_text
from headrace.pipeline.tables.patches import KeyChange, fold
from headrace.pipeline.tables.rows import GONE, KEY, SEQUENCE_ID, spark_columns, wrapped
from headrace.pipeline.tables.schemas import PlacedSchema, TableName, later_names, unfit
from headrace.wire.arrays import array_of, scalar_of

SEED: Final = "seed"
"""The op of a row as the table holds it, standing before the batch's entries of its key: dates and timestamps as numbers,
``json`` columns as the text they hold."""

CHANGES_DDL: Final = "key BINARY, changes ARRAY<STRUCT<sequence_id: BIGINT, op: STRING, value: BINARY>>"
"""What is folded: each key with its changes in ascending sequence ids."""

CHANGE_SCHEMA: Final = pa.schema(
    [("key", pa.binary()), ("sequence_id", pa.int64()), ("op", pa.string()), ("value", pa.binary())]
)

PLAIN_DDL: Final = (
    f"{KEY} BINARY, {SEQUENCE_ID} BIGINT, {GONE} BOOLEAN, key STRING, value STRING, value_binary BINARY"
)
"""The table of entries that name no table: ``value`` is the JSON text; bytes that are no text are in ``value_binary``."""

PLAIN_SCHEMA: Final = pa.schema(
    [
        (KEY, pa.binary()),
        (SEQUENCE_ID, pa.int64()),
        (GONE, pa.bool_()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("value_binary", pa.binary()),
    ]
)

_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str | None)
_NUMBER: Final = msgspec.json.Decoder(int | None)


def folded_batches(
    batches: Iterator[Any], versions: Sequence[PlacedSchema], *, feed: str, table: TableName
) -> Iterator[Any]:
    """Turn keys with their changes (:data:`CHANGES_DDL`) into net changes (:data:`CHANGE_SCHEMA`; puts and deletes).

    ``versions``: the schemas of a typed table, in feed order, or none for JSON of any form. The members of older versions'
    rows are renamed and dropped as the later versions say, so the results stand under the newest one's names. Raises
    ValueUnfit where a value is no JSON that a patch can be merged with.
    """
    lift = _Lift(versions)
    for batch in batches:
        results: list[KeyChange] = []
        for changes in batch.column("changes").to_pylist():
            place = 0
            try:
                lifted = []
                for change in changes:
                    place = change["sequence_id"]
                    lifted.append(lift.change(KeyChange(place, change["op"], change["value"])))
                results.append(fold(lifted))
            except (ValueError, RecursionError) as error:
                raise unfit(feed, place, table, "", f"a patch of this key can't be merged: {error}") from None
        columns = zip(*results, strict=True) if results else ((), (), ())
        ids, ops, values = (list(column) for column in columns)
        arrays = [
            batch.column("key"),
            array_of(ids, pa.int64()),
            array_of(ops, pa.string()),
            array_of(values, pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA)


class _Lift:
    """Puts rows of older schema versions, and rows as the table holds them, under the newest version's names."""

    def __init__(self, versions: Sequence[PlacedSchema]) -> None:
        self._versions = versions
        newest = versions[-1].schema if versions else None
        self._json = [column.name for column in newest.columns if column.type == "json"] if newest else []
        kinds = spark_columns(newest) if newest else {}
        self._moments = {name: kind for name, kind in kinds.items() if kind in MOMENTS}
        self._names = [
            dict(zip(placed.schema.column_names(), later_names(placed.schema, rest), strict=True))
            for index, placed in enumerate(versions)
            for rest in [[later.schema for later in versions[index + 1 :]]]
        ]

    def change(self, change: KeyChange) -> KeyChange:
        if change.op == SEED:
            return KeyChange(change.sequence_id, Op.PUT, self._as_sent(change.value))
        if change.op == Op.DELETE or not self._versions:
            return change
        below = [i for i, placed in enumerate(self._versions) if placed.sequence_id < change.sequence_id]
        if not below or below[-1] == len(self._versions) - 1:
            return change  # what no schema precedes is refused when it is typed
        names = self._names[below[-1]]
        if all(old == new for old, new in names.items()):
            return change
        kept = {
            names.get(name, name): raw
            for name, raw in _MEMBERS.decode(change.value).items()
            if names.get(name, name) is not None
        }
        return change._replace(value=msgspec.json.encode(kept))

    def _as_sent(self, value: bytes) -> bytes:
        """Write a table's row as the feed would: times as text, what is JSON as itself."""
        if not self._json and not self._moments:
            return value
        members = _MEMBERS.decode(value)
        for name in self._json:
            text = _TEXT.decode(bytes(members[name])) if name in members else None
            if text is not None:
                members[name] = msgspec.Raw(wrapped(text.encode()))
        for name, kind in self._moments.items():
            number = _NUMBER.decode(bytes(members[name])) if name in members else None
            if number is not None:
                members[name] = msgspec.Raw(msgspec.json.encode(value_text(number, kind)))
        return msgspec.json.encode(members)


def plain_batches(batches: Iterator[Any]) -> Iterator[Any]:
    """Turn record batches of net changes into rows of the table without types (:data:`PLAIN_SCHEMA`)."""
    for batch in batches:
        gone = pc.equal(batch.column("op"), scalar_of(Op.DELETE.value))
        key, _ = _texts(batch.column("key"))
        value, binary = _texts(pc.if_else(gone, scalar_of(None, pa.binary()), batch.column("value")))
        arrays = [batch.column("key"), batch.column("sequence_id"), gone, key, value, binary]
        yield pa.RecordBatch.from_arrays(arrays, schema=PLAIN_SCHEMA)


def _texts(column: Any) -> tuple[Any, Any]:
    """Return (the values that are UTF-8 as text, the others as bytes), null in the other one."""
    try:
        return column.cast(pa.string()), pa.nulls(len(column), pa.binary())
    except pa.ArrowInvalid:
        texts: list[str | None] = []
        rest: list[bytes | None] = []
        for value in column.to_pylist():
            try:
                texts.append(None if value is None else value.decode())
                rest.append(None)
            except UnicodeDecodeError:
                texts.append(None)
                rest.append(value)
        return array_of(texts, pa.string()), array_of(rest, pa.binary())
