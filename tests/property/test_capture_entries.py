"""Capture's fast way of making entries gives, byte for byte, what the general one does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.capture.changes import RowPair, TransactionEntries
from headrace.capture.control import schema_entry
from headrace.capture.row_form import RawValues, RowForm
from headrace.entries.entry import Change, Op
from headrace.simple import json_codec
from headrace.simple.message import Raw, Timestamp
from headrace.simple.schema import TableSchema
from headrace.wire.entry import encode_half
from headrace.wire.halves import join_halves
from headrace.wire.keyed import join_fields
from tests.scale import scaled, sized
from tests.simple_tables import change, column, table

NAMES = st.text('abAé<"\\\n\u2028 .', min_size=1, max_size=4)
VALUES = (
    st.none()
    | st.text(max_size=8)
    | st.sampled_from(["<&>", "\u2028", "x" * 200])
    | st.builds(Timestamp, st.just("UTC"), st.sampled_from(["2020-02-20 02:20:20", "0000-00-00 00:00:00"]))
)
NUMBERS = st.integers(0, (1 << 64) - 1)
TIMES = st.integers(0, 1 << 45)


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    key = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    return table(
        draw(st.sampled_from(["shop.orders", 's&p.ö/<"'])),
        *map(column, names),
        version=draw(NUMBERS),
        table_id=draw(st.integers(0, 1 << 40)),
        key=tuple(key),
    )


@st.composite
def pairs(draw: st.DrawFn, schema: TableSchema) -> RowPair:
    row = st.tuples(*(VALUES for _ in schema.columns))
    before, after = draw(row), draw(row)
    if draw(st.booleans()):
        after = tuple(old if draw(st.booleans()) else new for old, new in zip(before, after, strict=True))
    pair: RowPair = draw(st.sampled_from([(None, after), (before, None), (before, after)]))
    return pair


Shown = Sequence[tuple[int, str | None]]
"""Places of the columns that go out, each with its mask."""


@st.composite
def choices(draw: st.DrawFn, schema: TableSchema) -> Shown:
    places = draw(st.lists(st.sampled_from(range(len(schema.columns))), min_size=1, unique=True).map(sorted))
    return [(place, draw(st.sampled_from([None, None, "***"]))) for place in places]


def key_of(schema: TableSchema, values: RawValues) -> bytes:
    by_name = {one.name: value for one, value in zip(schema.columns, values, strict=True)}
    raw = [by_name[name] for name in schema.handle_key]
    texts = [value.value if isinstance(value, Timestamp) else value for value in raw]
    return msgspec.json.encode([schema.schema, schema.table, *texts])


def delivered(schema: TableSchema, shown: Shown, values: RawValues | None) -> dict[str, Raw] | None:
    if values is None:
        return None
    return {
        schema.columns[at].name: values[at] if mask is None or values[at] is None else mask
        for at, mask in shown
    }


def row_changes(
    schema: TableSchema, shown: Shown, commit_ts: int, build_ts: int, pair: RowPair
) -> Iterator[Change]:
    """What one source row becomes, by way of messages."""
    before, after = pair
    if before is not None and after is not None and key_of(schema, before) != key_of(schema, after):
        yield from row_changes(schema, shown, commit_ts, build_ts, (before, None))
        yield from row_changes(schema, shown, commit_ts, build_ts, (None, after))
        return
    kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
    data, old = delivered(schema, shown, after), delivered(schema, shown, before)
    message = msgspec.structs.replace(change(kind, schema, commit_ts, data, old), build_ts=build_ts)
    yield Change(
        json_codec.encode(message),
        key=key_of(schema, after or before or ()),
        op=Op.DELETE if kind == "DELETE" else Op.PUT,
        table=(schema.schema, schema.table),
    )


@settings(max_examples=sized(scaled(45), soak=scaled(150)), deadline=None)
@given(data=st.data())
def test_entries_are_what_messages_become(data: st.DataObject) -> None:
    draw = data.draw
    gtid, copy = draw(st.sampled_from(["", "0-1-100"])), draw(st.booleans())
    commit_ts, build_ts, time_ms = draw(NUMBERS), draw(TIMES), draw(TIMES)
    parts, entries = draw(st.integers(0, 9)), draw(st.integers(0, 20_000))
    made = TransactionEntries(gtid, commit_ts, build_ts, time_ms, copy=copy, parts=parts, entries=entries)
    fields: list[bytes] = []
    units: list[list[Change]] = []
    parts_at = []
    for _ in range(draw(st.integers(1, 4))):
        schema = draw(schemas())
        shown = draw(choices(schema))
        if draw(st.booleans()):
            entry = schema_entry(schema, build_ts)
            made.add_control(entry)
            units.append([Change(entry.value, key=entry.key, control=entry.control, table=entry.table)])
            parts_at.append(parts)
        given_rows = draw(st.lists(pairs(schema), max_size=4))
        form = RowForm(schema, [at for at, _ in shown], [mask for _, mask in shown])
        made.add_part(form, given_rows)
        if given_rows:
            units.append(
                [one for pair in given_rows for one in row_changes(schema, shown, commit_ts, build_ts, pair)]
            )
            parts_at.append(parts)
        parts += 1
        if draw(st.booleans()):
            made.skip_part()
            parts += 1
        if draw(st.booleans()):
            fields += made.take()
            assert len(fields) == sum(map(len, units[:-1]))
            assert made.parts_taken == (parts_at[-1] if units else parts), "the last part is held back"
            assert made.entries_taken == entries + len(fields)
    fields += made.end()
    assert (made.parts_taken, made.entries_taken) == (parts, entries + len(fields))
    common = [
        msgspec.structs.replace(one, source_time_ms=time_ms, copy=copy, source_tx=gtid.encode())
        for unit in units
        for one in unit
    ]
    if gtid:
        common = [msgspec.structs.replace(one, tx_index=entries + at) for at, one in enumerate(common)]
        common[-1:] = [msgspec.structs.replace(one, tx_last=True) for one in common[-1:]]
    assert join_fields(fields) == join_halves(map(encode_half, common))
