"""A base snapshot of any part of a feed, followed by the rest, comes to what the whole feed comes to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.entries.entry import Change, Op
from headrace.pipeline.bases.keys import HELD_BYTES_MAX
from headrace.pipeline.tables.folding import folded_batches
from headrace.pipeline.tables.schemas import PlacedSchema, read_cleared, read_schema
from headrace.simple import json_codec
from headrace.simple.message import Bootstrap, MessageType
from headrace.simple.schema import TableSchema
from headrace.wire.generated import wal_pb2
from tests.bases import based, captured_keys, schemas
from tests.property.test_spark_table_steps import History, histories
from tests.scale import sized
from tests.unit.pipeline.tables.simple.history import INT, WORD, Feed, schema_of
from tests.unit.pipeline.tables.simple.steps_folded import Entry, Tables

NAMES = ("main", "t"), ("main", "u")
KEYS = (b"a", b"b", b"c")
MEMBERS = ("x", "y", "z")
HELD = st.sampled_from([HELD_BYTES_MAX, 0])


# -- feeds of attached tables, and of plain JSON ---------------------------------------------------------------------------


def values(draw: st.DrawFn, *, nulls: bool) -> bytes:
    """A JSON object whose members are numbers, objects and, in a patch, nulls."""
    nested = st.dictionaries(st.sampled_from("pq"), st.integers(0, 2), max_size=2)
    inner = st.one_of(st.integers(0, 3), nested)
    if nulls:
        inner = st.one_of(inner, st.none(), st.dictionaries(st.sampled_from("pq"), st.none(), max_size=1))
    return json.dumps(draw(st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=3))).encode()


def control(name: str, table: tuple[str, ...], number: int, **members: Any) -> Change:
    value = json.dumps({"database": table[0], "table": table[1], "version": number, **members}).encode()
    return Change(value, key=f"\0{name}/{table[0]}/{table[1]}/{number}".encode(), control=name)


def schema_change(
    table: tuple[str, ...], number: int, names: Sequence[str], renamed: dict[str, str]
) -> Change:
    columns = [{"name": name, "type": "json", "renamed-from": renamed.get(name, "")} for name in names]
    return control("schema", table, number, columns=columns, key=["k"])


@st.composite
def attached(draw: st.DrawFn) -> list[Entry]:
    """A feed of two tables and of entries that name none."""
    changes: list[Change] = [schema_change(table, 1, MEMBERS, {}) for table in NAMES]
    for number in range(2, 2 + draw(st.integers(1, 40))):
        table: tuple[str, ...] = draw(st.sampled_from([*NAMES, ()]))
        key = draw(st.sampled_from(KEYS)) + b"".join(part.encode() for part in table)
        match draw(st.sampled_from(["put", "put", "patch", "patch", "patch", "delete", "batch", "control"])):
            case "put":
                changes.append(Change(values(draw, nulls=False), key=key, table=table))
            case "patch":
                changes.append(Change(values(draw, nulls=True), key=key, op=Op.PATCH, table=table))
            case "delete":
                changes.append(Change(b"{}", key=key, op=Op.DELETE, table=table))
            case "batch":
                changes.append(Change(mutations(draw), key=b"all", op=Op.BATCH))
            case "control" if table and number % 2:
                changes.append(control("truncate", table, number))
            case "control" if table:
                mixed = draw(st.permutations(MEMBERS))
                renamed = {new: old for old, new in zip(MEMBERS, mixed, strict=True) if old != new}
                changes.append(schema_change(table, number, mixed, renamed if number % 4 else {}))
            case _:
                changes.append(Change(b"{}", key=b"\0parked/%d" % number, control="parked"))
    return [Entry(at, change) for at, change in enumerate(changes, draw(st.sampled_from([1, 63])))]


def mutations(draw: st.DrawFn) -> bytes:
    batch = wal_pb2.BatchWrite()
    for _ in range(draw(st.integers(0, 4))):
        key = draw(st.sampled_from(KEYS))
        if draw(st.booleans()):
            batch.mutations.add(op=wal_pb2.OP_PUT, key=key, value=values(draw, nulls=False))
        else:
            batch.mutations.add(op=wal_pb2.OP_DELETE, key=key)
    return batch.SerializeToString()


def keys_and_values(entries: Sequence[Entry]) -> dict[bytes, tuple[bytes, int]]:
    """The plain model: a dictionary, told of every entry."""
    state: dict[bytes, tuple[Any, int, tuple[str, ...]]] = {}
    for at, change in entries:
        key = change.key or b""
        if change.control == "truncate":
            gone = read_cleared(change.value, feed="shop", sequence_id=at)
            state = {key: row for key, row in state.items() if row[2] != gone}
        elif change.control:
            continue
        elif change.op is Op.BATCH:
            for one in wal_pb2.BatchWrite.FromString(change.value).mutations:
                state.pop(one.key, None)
                if one.op == wal_pb2.OP_PUT:
                    state[one.key] = (json.loads(one.value), at, ())
        elif change.op is Op.DELETE:
            state.pop(key, None)
        elif change.op is Op.PATCH:
            before = state[key][0] if key in state else {}
            state[key] = (merged(before, json.loads(change.value)), at, change.table)
        else:
            state[key] = (json.loads(change.value), at, change.table)
    return {key: (json.dumps(value, sort_keys=True).encode(), at) for key, (value, at, _) in state.items()}


def merged(state: Any, patch: Any) -> Any:
    """RFC 7396, as it is written there."""
    if not isinstance(patch, dict):
        return patch
    found = dict(state) if isinstance(state, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def tables(entries: Sequence[Entry]) -> dict[tuple[str, ...], dict[bytes, tuple[int, bytes]]]:
    """The rows of attached tables, folded by what the tables job folds with."""
    versions: dict[tuple[str, ...], list[PlacedSchema]] = {}
    cleared: dict[tuple[str, ...], int] = {}
    changes: dict[tuple[str, ...], dict[bytes, list[dict[str, Any]]]] = {}
    for at, change in entries:
        if change.control == "schema":
            schema = read_schema(change.value, feed="shop", sequence_id=at)
            versions.setdefault(schema.name, []).append(PlacedSchema(sequence_id=at, schema=schema))
        elif change.control == "truncate":
            cleared[read_cleared(change.value, feed="shop", sequence_id=at)] = at
        elif not change.control and change.table:
            row = {"sequence_id": at, "op": str(change.op), "value": change.value}
            changes.setdefault(change.table, {}).setdefault(change.key or b"", []).append(row)
    found: dict[tuple[str, ...], dict[bytes, tuple[int, bytes]]] = {}
    for table, rows in changes.items():
        kept = {
            key: [one for one in ones if one["sequence_id"] > cleared.get(table, 0)]
            for key, ones in rows.items()
        }
        given = [{"key": key, "changes": ones} for key, ones in kept.items() if ones]
        if not given:
            continue
        fold = partial(folded_batches, versions=tuple(versions[table]), feed="shop", table=table)
        (out,) = fold(iter([pa.RecordBatch.from_pylist(given)]))
        found[table] = {
            row["key"]: (row["sequence_id"], row["value"]) for row in out.to_pylist() if row["op"] != "delete"
        }
    return {table: rows for table, rows in found.items() if rows}


@settings(max_examples=sized(30, soak=100), deadline=None)
@given(attached(), st.data())
def test_a_base_and_the_rest_are_the_whole(entries: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(entries)))
    again = data.draw(st.integers(cut, len(entries)))
    rows_max = data.draw(st.sampled_from([1, 2, 7, 100]))
    first = based(entries[:cut], rows_max=rows_max, held_bytes_max=data.draw(HELD))
    second = based([*first, *entries[cut:again]], rows_max=rows_max)
    for base, rest in ((first, entries[cut:]), (second, entries[again:])):
        assert keys_and_values([*base, *rest]) == keys_and_values(entries)
        assert tables(without_mutations([*base, *rest])) == tables(without_mutations(entries))
    assert len(based(second)) <= len(second)


def without_mutations(entries: Sequence[Entry]) -> list[Entry]:
    return [one for one in entries if one.change.op is not Op.BATCH]


# -- captured feeds --------------------------------------------------------------------------------------------------------


def keyed(entries: Sequence[Entry], others: Sequence[bytes | None] = (None,)) -> list[Entry]:
    """The entries with the keys that capture gives rows; ``others``: keys in place of those, in turn (None: capture's)."""
    found: list[Entry] = []
    schemas: dict[tuple[str, str, int], TableSchema] = {}
    for at, change in entries:
        if change.control == "schema":
            message = json_codec.decode(change.value)
            assert isinstance(message, Bootstrap)
            schema = message.table_schema
            schemas[schema.schema, schema.table, schema.version] = schema
        if change.control:
            found.append(Entry(at, change))
            continue
        said = json.loads(change.value)
        key = schemas[said["database"], said["table"], said["schemaVersion"]].handle_key
        row = said.get("data") or said["old"]
        own = [said["database"], said["table"], *(row[name] for name in key)]
        other = others[at % len(others)]
        named = json.dumps(own, separators=(",", ":")).encode() if other is None else other
        row = Change(change.value, key=named, op=change.op, table=change.table, copy=change.copy)
        found.append(Entry(at, row))
    return found


def held(entries: Sequence[Entry], sizes: Sequence[int]) -> dict[str, Any]:
    """What the tables are after batches of these sizes."""
    folded = Tables()
    at = turn = 0
    while at < len(entries):
        size = sizes[turn % len(sizes)]
        folded.take(entries[at : at + size])
        at, turn = at + size, turn + 1
    return {
        "tables": {
            name: (table.columns, sorted(map(repr, table.rows))) for name, table in folded.named().items()
        },
        "stopped": set(folded.stopped()),
        "copying": {state.name: state.copying for state in folded.states},
        "watermark": folded.watermark,
    }


@settings(max_examples=sized(20, soak=40), deadline=None)
@given(histories(), st.data())
def test_a_table_whose_columns_change_comes_to_the_same(history: History, data: st.DataObject) -> None:
    _compare(keyed(history.feed.entries), data)


def _compare(entries: list[Entry], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(entries)))
    again = data.draw(st.integers(cut, len(entries)))
    rows_max = data.draw(st.sampled_from([1, 3, 100]))
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    first = based(entries[:cut], rows_max=rows_max, held_bytes_max=data.draw(HELD))
    second = based([*first, *entries[cut:again]], rows_max=rows_max)
    whole, keys = held(entries, sizes), captured_keys(entries)
    for base, rest in ((first, entries[cut:]), (second, entries[again:])):
        assert held([*base, *rest], sizes) == whole
        assert captured_keys([*base, *rest]) == keys
        assert schemas([*base, *rest]) == schemas(entries), "a rebuilt server answers each of them"
    assert based(second) == second, "nothing more goes once it is folded"


def misfit(entry: Entry) -> Entry:
    """A row that no table can take: a column's value is no text."""
    at, change = entry
    said = json.loads(change.value or b"")
    for image in ("data", "old"):
        if said.get(image):
            said[image]["word"] = {"no": "text"}
    value = json.dumps(said).encode()
    return Entry(at, Change(value, key=change.key, op=change.op, table=change.table, copy=change.copy))


class Shop:
    """Tables of a database that are made, dropped, renamed, truncated and copied while rows come."""

    def __init__(self) -> None:
        self.feed = Feed()
        self.schemas: dict[str, TableSchema] = {}
        self.rows: dict[str, dict[int, str]] = {}
        self.versions = 0

    def schema(self, name: str, *, wide: bool = False) -> TableSchema:
        self.versions += 1
        columns = {"id": INT, "word": WORD} | ({"more": INT} if wide else {})
        return schema_of(columns, version=self.versions, name=("shop", name))

    def create(self, name: str) -> None:
        self.schemas[name] = self.schema(name)
        self.rows[name] = {}
        self.feed.ddl(MessageType.CREATE, f"CREATE TABLE {name}", self.schemas[name], of=("shop", name))

    def row(self, name: str, number: int, word: str | None, *, copy: bool = False) -> None:
        before = self.rows[name].get(number)
        if word is None and before is None:
            return
        data = None if word is None else {"id": number, "word": word} | self.more(name)
        old = None if before is None else {"id": number, "word": before} | self.more(name)
        at = self.feed.row(self.schemas[name], data, old if not copy else None)
        if copy:
            entry = self.feed.entries[at - 1]
            made = Change(entry.change.value, key=entry.change.key, table=entry.change.table, copy=True)
            self.feed.entries[at - 1] = Entry(at, made)
        if word is None:
            del self.rows[name][number]
        else:
            self.rows[name][number] = word

    def more(self, name: str) -> dict[str, int]:
        return {"more": 1} if len(self.schemas[name].columns) == 3 else {}

    def late(self, name: str, number: int) -> None:
        """A row of a copy that is older than what the feed has of it."""
        self.feed.ticks -= 3
        word, self.rows[name][number] = self.rows[name][number], "old"
        self.row(name, number, "old", copy=True)
        self.feed.ticks += 3
        self.rows[name][number] = word


@st.composite
def shops(draw: st.DrawFn, others: st.SearchStrategy[list[bytes | None]] | None = None) -> list[Entry]:
    shop = Shop()
    shop.create("a")
    for _ in range(draw(st.integers(2, 30))):
        name = draw(st.sampled_from(sorted(shop.schemas) or ["a"]))
        number = draw(st.integers(1, 3))
        match draw(
            st.sampled_from(["row"] * 8 + ["gone", "gone", "watermark", "late", "copy", "ddl", "ddl"])
        ):
            case "row" if name in shop.schemas:
                shop.row(name, number, draw(st.sampled_from(["x", "y", "z"])))
            case "gone" if name in shop.schemas:
                shop.row(name, number, None)
            case "late" if name in shop.schemas and number in shop.rows[name] and shop.feed.ticks > 4:
                shop.late(name, number)
            case "watermark":
                shop.feed.watermark()
            case "copy" if name in shop.schemas:
                shop.feed.copy(shop.schemas[name], ends=draw(st.booleans()))
            case "ddl":
                _statement(shop, name, draw)
            case _:
                shop.feed.watermark()
    return keyed(shop.feed.entries, (None,) if others is None else draw(others))


def _statement(shop: Shop, name: str, draw: st.DrawFn) -> None:
    free = [other for other in ("a", "b", "c") if other not in shop.schemas]
    kind = draw(st.sampled_from(["truncate", "drop", "create", "rename", "alter", "stop"]))
    if kind == "create" and free:
        shop.create(draw(st.sampled_from(free)))
    elif name not in shop.schemas:
        return
    elif kind == "truncate":
        shop.rows[name] = {}
        if draw(st.booleans()):  # as capture does: rows from here on have a version of their own
            wide = len(shop.schemas[name].columns) == 3
            shop.schemas[name] = shop.schema(name, wide=wide)
            shop.feed.ddl(MessageType.TRUNCATE, f"TRUNCATE {name}", shop.schemas[name], of=("shop", name))
        else:
            shop.feed.ddl(MessageType.TRUNCATE, f"TRUNCATE {name}", None, of=("shop", name))
    elif kind == "drop":
        shop.feed.ddl(MessageType.ERASE, f"DROP TABLE {name}", None, of=("shop", name))
        del shop.schemas[name], shop.rows[name]
    elif kind == "rename" and free:
        other = draw(st.sampled_from(free))
        wide = len(shop.schemas[name].columns) == 3
        told = draw(st.integers(0, 9)) > 0
        shop.schemas[other], shop.rows[other] = shop.schema(other, wide=wide), shop.rows.pop(name)
        del shop.schemas[name]
        shop.feed.ddl(
            MessageType.RENAME, f"RENAME {name} TO {other}", shop.schemas[other], of=("shop", name), told=told
        )
        if not told:
            shop.feed.watermark()
            shop.feed.schema(shop.schemas[other])
    elif kind == "alter" and len(shop.schemas[name].columns) == 2:
        shop.schemas[name] = shop.schema(name, wide=True)
        shop.feed.alter("ADD COLUMN more INT", shop.schemas[name])
    elif kind == "stop":
        shop.feed.stopped("no key", ("shop", name))


@settings(max_examples=sized(60, soak=200), deadline=None)
@given(shops(), st.data())
def test_tables_that_come_and_go_come_to_the_same(entries: list[Entry], data: st.DataObject) -> None:
    _compare(entries, data)


OTHERS = st.lists(st.sampled_from([None, b"all", b"x", b'["shop","aa",1]', b""]), min_size=1, max_size=5)


@settings(max_examples=sized(30, soak=60), deadline=None)
@given(shops(OTHERS), st.data())
def test_keys_that_are_none_of_captures_come_to_the_same(entries: list[Entry], data: st.DataObject) -> None:
    _compare(entries, data)


@settings(max_examples=sized(30, soak=100), deadline=None)
@given(shops(), st.data())
def test_what_a_row_said_that_was_overwritten_does_not_matter(
    entries: list[Entry], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(entries)))
    sizes = data.draw(st.lists(st.integers(1, 12), min_size=1, max_size=4))
    base = based(entries[:cut])
    kept = {at for at, _ in base}
    odd = [
        misfit(one) if not one.change.control and one.sequence_id not in kept else one
        for one in entries[:cut]
    ]
    assert based(odd) == base
    assert held([*based(odd), *entries[cut:]], sizes) == held(entries, sizes)
