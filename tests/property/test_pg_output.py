"""Output plugins, whatever the entries: a line is JSON and what HTTP says; folded wal2json records are the table."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change, Op
from headrace.server.pg.output.numerals import lsn_texts
from headrace.wire.frame import HEADER_SIZE
from tests.pg_pieces import FEED, GLOBAL_TS, Place, documents, frame_of, http_lines, rendered

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
VALUES = st.one_of(
    JSON.map(lambda value: json.dumps(value, ensure_ascii=False).encode()),
    JSON.map(lambda value: json.dumps(value, indent=1).replace("\n", "\r\n").encode()),
    st.dictionaries(TEXTS, JSON, min_size=1).map(lambda value: json.dumps(value).encode() + b" " * 200),
    st.binary(max_size=300),
)
KEYS = st.one_of(st.none(), TEXTS.map(str.encode), st.binary(max_size=40), st.just(b"k" * 140))
U64 = st.integers(0, (1 << 63) - 1)


@st.composite
def changes(draw: st.DrawFn) -> Change:
    """Draw what a producer may send, on any face."""
    fields: dict[str, Any] = {}
    if draw(st.booleans()):
        fields = {
            "op": draw(st.sampled_from([Op.PUT, Op.PUT, Op.DELETE, Op.PATCH, Op.BATCH])),
            "source_tx": draw(st.binary(max_size=20) | st.just(b"t" * 130)),
            "tx_index": draw(st.integers(0, 300) | U64),
            "tx_last": draw(st.booleans()),
            "source_time_ms": draw(st.just(0) | st.integers(1, 1 << 42) | U64),
            "copy": draw(st.booleans()),
            "control": draw(st.just("") | TEXTS),
            "changed": tuple(draw(st.lists(TEXTS, max_size=3))),
            "before": draw(st.none() | VALUES),
            "table": tuple(draw(st.lists(TEXTS, max_size=2))),
        }
    return Change(draw(VALUES), key=draw(KEYS), **fields)


PLACES = st.builds(
    Place,
    global_ts=st.just(GLOBAL_TS),
    first=st.integers(1, 5_000) | st.just((1 << 32) - 2) | st.integers(1 << 32, 1 << 50),
    position=st.integers(0x100, 1 << 20) | st.just((1 << 32) - 200) | st.integers(1 << 32, 1 << 50),
)


@given(st.lists(changes(), min_size=1, max_size=12), PLACES, st.data())
def test_a_line_is_json_and_what_http_says(entries: list[Change], place: Place, data: st.DataObject) -> None:
    chosen = sorted(data.draw(st.sets(st.integers(0, len(entries) - 1))))
    told = http_lines(frame_of(entries, place))
    found = rendered("headrace", entries, place=place)
    assert not any(b"\n" in line or b"\r" in line for line in found.payloads)
    assert (documents(found.payloads), found.entries) == (told, list(range(len(entries))))
    some = rendered("headrace", entries, place=place, wanted=chosen)
    assert some.payloads == [found.payloads[index] for index in chosen]
    assert some.entries == chosen


@given(st.lists(changes(), min_size=1, max_size=6), PLACES)
def test_wal2json_takes_any_entry_or_names_it(entries: list[Change], place: Place) -> None:
    """Without schemas there are no types, but no entry ends a stream unless it is of a table and no object."""
    entries = [change for change in entries if len(change.table) != 2]
    if entries:
        assert rendered("wal2json", entries, place=place).payloads == []


@given(st.lists(st.integers(1, (1 << 64) - 1), max_size=20, unique=True).map(sorted))
def test_positions_are_written_as_postgresql_does(positions: list[int]) -> None:
    head, texts = lsn_texts(positions)
    assert [head + text for text in texts] == [b"%X/%X" % divmod(one, 1 << 32) for one in positions]


ROWS = st.lists(
    st.tuples(st.sampled_from(["I", "U", "D", "T"]), st.integers(1, 4), st.none() | TEXTS), max_size=30
)
SCHEMA = json.dumps(
    {
        "database": "public",
        "table": "t",
        "version": 1,
        "columns": [
            {"name": "id", "type": "int64", "source-type": "integer", "nullable": False},
            {"name": "note", "type": "string", "source-type": "text", "nullable": True},
        ],
        "key": ["id"],
    }
).encode()
TABLE: dict[str, Any] = {"table": ("public", "t")}


@given(ROWS)
def test_folded_records_are_the_table(steps: list[tuple[str, int, str | None]]) -> None:
    """A table that is written and emptied, as attached tables tell it; a consumer folds what wal2json says."""
    table: dict[int, str | None] = {}
    entries = [Change(SCHEMA, key=b"\0schema/public/t/1", control="schema", **TABLE)]
    for number, (step, key, note) in enumerate(steps):
        row = json.dumps({"id": key, "note": note}).encode()
        name = json.dumps(["public", "t", key]).encode()
        if step == "T":
            table.clear()
            control: dict[str, Any] = {"key": b"\0truncate/public/t/%d" % number, "control": "truncate"}
            entries.append(Change(b'{"database":"public","table":"t","version":1}', **control, **TABLE))
        elif step == "D":
            table.pop(key, None)
            entries.append(Change(row, key=name, op=Op.DELETE, **TABLE))
        else:
            table[key] = note
            changed = ("note",) if step == "U" else ()
            entries.append(Change(row, key=name, changed=changed, **TABLE))
    folded: dict[int, str | None] = {}
    for record in documents(rendered("wal2json", entries).payloads):
        columns = {one["name"]: one["value"] for one in record.get("columns", ())}
        identity = {one["name"]: one["value"] for one in record.get("identity", ())}
        match record["action"]:
            case "T":
                folded.clear()
            case "D":
                folded.pop(identity["id"], None)
            case "I" | "U":
                folded[columns["id"]] = columns["note"]
    assert folded == table


def test_a_position_is_where_the_entry_stands() -> None:
    """The first entry of a frame at 0x100 stands behind its header."""
    (line,) = documents(rendered("headrace", [Change(b"{}", key=b"k")]).payloads)
    assert (line["feed"], line["local-lsn"]) == (FEED, f"0/{0x100 + HEADER_SIZE:X}")
