"""Small archives for tests of bases: the feed of a told story, cut into segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal import Sealed
from tests.kwal import TS, Stamped, sealed, stamped, write_folder

Values = dict[tuple[str, bytes], bytes]
ORDERS = ("main", "orders")


def put(key: str, value: str, *, op: Op = Op.PUT, table: tuple[str, str] = ORDERS) -> Change:
    return Change(value.encode(), key=key.encode(), op=op, table=table)


def batch_of(*mutations: tuple[str, str | None]) -> Change:
    """An OP_BATCH: each key gets a value, or goes."""
    several = wal_pb2.BatchWrite()
    for key, value in mutations:
        kind = wal_pb2.OP_DELETE if value is None else wal_pb2.OP_PUT
        several.mutations.add(op=kind, key=key.encode(), value=(value or "").encode())
    return Change(several.SerializeToString(), key=b"", op=Op.BATCH)


def truncate(table: tuple[str, str], number: int) -> Change:
    value = f'{{"database":"{table[0]}","table":"{table[1]}","version":{number}}}'.encode()
    return Change(value, key=f"\0truncate/{table[0]}/{table[1]}/{number}".encode(), control="truncate")


class Story:
    """Appends to several feeds, one a millisecond; a feed's ids begin at 1."""

    def __init__(self) -> None:
        self.appends: list[Stamped] = []
        self.next: dict[str, int] = {}
        self.ts = TS
        self.told: list[tuple[str, Sequence[Change]]] = []

    def append(self, feed: str, *changes: Change) -> Lsn:
        """Append, and return the last entry's LSN."""
        first = self.next.setdefault(feed, 1)
        self.ts += 1 << 18
        region = 7 + sorted(self.next, key=list(self.next).index).index(feed)
        append = stamped(list(changes), first, ts=self.ts, region=region, feed=feed)
        self.next[feed] = first + len(changes)
        self.appends.append(append)
        self.told.append((feed, changes))
        return append.last

    def write(self, folder: Path, *, appends_each: int = 4) -> list[Sealed]:
        """Write the archive, with so many appends in a segment."""
        segments = [
            sealed(self.appends[at : at + appends_each]) for at in range(0, len(self.appends), appends_each)
        ]
        write_folder(folder, segments)
        return segments

    def values(self, last: Lsn | None = None) -> Values:
        """The state after the append that ends with ``last``: a plain dictionary, told of everything."""
        state: dict[tuple[str, bytes], tuple[bytes, tuple[str, ...]]] = {}
        for append, (feed, changes) in zip(self.appends, self.told, strict=True):
            if last is not None and append.last > last:
                break
            for change in changes:
                state = _told(state, feed, change)
        return {key: value for key, (value, _) in state.items()}


def _told(state: dict[Any, Any], feed: str, change: Change) -> dict[Any, Any]:
    key = feed, change.key
    if change.control == "truncate":
        return {one: row for one, row in state.items() if one[0] != feed or row[1] != ORDERS}
    if change.op is Op.BATCH:
        for one in wal_pb2.BatchWrite.FromString(change.value).mutations:
            state.pop((feed, one.key), None)
            if one.op == wal_pb2.OP_PUT:
                state[feed, one.key] = (one.value, ())
    elif change.op is Op.DELETE:
        state.pop(key, None)
    elif not change.control:
        state[key] = (change.value, change.table)
    return state


def values_of(frame: Any) -> Values:
    """The state that rows of an archive come to, which has no patches and is told by itself."""
    state: dict[tuple[str, bytes], tuple[bytes, tuple[str, ...]]] = {}
    for row in sorted(frame.collect(), key=lambda row: str(row["lsn"])):
        change = Change(
            bytes(row["value"]),
            key=bytes(row["key"]),
            op=Op(row["op"]),
            control=row["control"] or "",
            table=tuple(row["table"] or ()),
        )
        state = _told(state, row["feed"], change)
    return {key: value for key, (value, _) in state.items()}


def segments_frame(spark: SparkSession, folder: Path, above: Lsn) -> Any:
    """The entries of an archive above an LSN."""
    return spark.read.format("headrace.wal").load(str(folder)).where(f"lsn > '{above}'")
