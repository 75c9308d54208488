"""Base snapshots in memory, for tests: the fold of a feed's entries as workers do it, without Spark and without files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import lsn_of
from headrace.pipeline.bases.controls import needed_controls
from headrace.pipeline.bases.folding import kept_batches
from headrace.pipeline.bases.generations import ControlEntry, generations_of
from headrace.pipeline.bases.keys import HELD_BYTES_MAX
from headrace.pipeline.bases.mutations import taken_apart
from headrace.pipeline.bases.naming import OtherKeys
from headrace.pipeline.restore.clearing import cleared_of
from headrace.pipeline.restore.surveying import CONTROLS, Control
from headrace.wire.kwal_columns import SCHEMA
from tests.kwal import TS
from tests.unit.pipeline.tables.simple.steps_folded import Entry


def based(
    entries: Sequence[Entry], *, feed: str = "shop", rows_max: int = 7, held_bytes_max: int = HELD_BYTES_MAX
) -> list[Entry]:
    """Return what a base keeps of a feed's entries, in the feed's order. ``rows_max``: rows of a record batch."""
    last = entries[-1].sequence_id if entries else 0
    controls = [
        ControlEntry(at, one.control, one.table, one.value or b"") for at, one in entries if one.control
    ]
    rows = [row_of(entry, feed) for entry in entries if not entry.change.control]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    apart = [taken_apart(batch, "a test") for batch in table.to_batches()]
    ordered = pa.Table.from_batches(apart, schema=SCHEMA).sort_by(
        [("feed", "ascending"), ("key", "ascending"), ("sequence_id", "ascending")]
    )
    keys = OtherKeys()
    for batch in table.to_batches():
        keys.look(batch)
    feeds = {feed: generations_of(controls, last, {one.table for one in keys.found})}
    kept = [
        Entry(row["sequence_id"], change_of(row))
        for batch in kept_batches(iter(_batches(ordered, rows_max)), feeds, held_bytes_max=held_bytes_max)
        for row in batch.to_pylist()
    ]
    needed = needed_controls(controls, last)
    kept += [entry for entry in entries if (entry.sequence_id, entry.change.control) in needed]
    return sorted(kept, key=lambda entry: entry.sequence_id)


def _batches(table: pa.Table, rows_max: int) -> Iterator[Any]:
    for start in range(0, table.num_rows, rows_max):
        yield from table.slice(start, rows_max).combine_chunks().to_batches()


def row_of(entry: Entry, feed: str = "shop") -> dict[str, Any]:
    """Return an entry as a row of an archive."""
    at, change = entry
    ts = TS + at
    return {
        "feed": feed,
        "sequence_id": at,
        "lsn": str(lsn_of(ts, 7, at, 0)),
        "commit_ts": ts,
        "committed_at": (ts >> 18) * 1000,
        "tenant_id": "acme",
        "op": str(change.op),
        "key": change.key,
        "value": change.value,
        "control": change.control or None,
        "table": list(change.table) or None,
        "source_tx": change.source_tx or None,
        "tx_last": change.tx_last,
        "append_end": True,
        "copy": change.copy,
        "source_time": change.source_time_ms * 1000 or None,
        "incarnation": "one",
    }


def change_of(row: dict[str, Any]) -> Change:
    """Return a row of an archive as the change that it is."""
    return Change(
        row["value"],
        key=row["key"],
        op=Op(row["op"]),
        source_tx=row["source_tx"] or b"",
        tx_last=row["tx_last"],
        copy=row["copy"],
        control=row["control"] or "",
        table=tuple(row["table"] or ()),
    )


def captured_keys(entries: Sequence[Entry]) -> tuple[dict[bytes, int], dict[tuple[str, ...], str]]:
    """Keys, with the entry that each is from, as a restore of keys folds them; and the tables that are refused, with why."""
    controls = (
        Control("shop", "one", at, change.control, change.table, change.value or b"")
        for at, change in entries
        if change.control in CONTROLS
    )
    cleared, odd = cleared_of(controls)
    state: dict[bytes, int] = {}
    for at, change in entries:
        if change.control or at < cleared.get(change.table, 0):
            continue
        state.pop(change.key or b"", None)
        if change.op is not Op.DELETE:
            state[change.key or b""] = at
    return ({} if odd else state), odd


def schemas(entries: Sequence[Entry]) -> list[Entry]:
    return [one for one in entries if one.change.control == "schema"]
