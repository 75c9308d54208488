"""A small history of two feeds, cut into segments, and a plain model of what it comes to at every entry."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn, lsn_of
from headrace.wire.generated import wal_pb2
from headrace.wire.kwal_manifest import RegisteredFeed
from tests.kwal import TS, Stamped, manifest_of, sealed, stamped, write, write_folder

VM, ORDERS = "vmapi::vm", "orders"
REGIONS = {VM: 7, ORDERS: 9}
T = ("main", "t")
State = dict[tuple[str, bytes], tuple[bytes, int]]
"""(feed, key) -> (value, sequence id)."""


REBUILT = "rebuilt"
"""The incarnation that feeds have on a server that was rebuilt."""


class Appended(NamedTuple):
    """One append: what it was made of, and where its entries are."""

    feed: str
    first_id: int
    changes: Sequence[Change]
    lsns: list[Lsn]
    stamped: Stamped


class History:
    """Appends in order; ``at`` gives the state behind an entry."""

    def __init__(self) -> None:
        self.appends: list[Appended] = []
        self._next = dict.fromkeys(REGIONS, 1)
        self._rebuilt = 0

    def append(self, feed: str, *changes: Change, ts: int) -> Appended:
        """Add an append at ``ts`` beyond the first moment (``ms << 18`` is a millisecond)."""
        first = self._next[feed]
        made = stamped(changes, first, ts=TS + ts, region=REGIONS[feed], feed=feed)
        lsns = [lsn_of(TS + ts, REGIONS[feed], first, index) for index in range(len(changes))]
        self._next[feed] = first + len(changes)
        self.appends.append(Appended(feed, first, changes, lsns, made))
        return self.appends[-1]

    def write(self, folder: Path, *cuts: int) -> None:
        """Write the segments: one up to each of ``cuts`` (numbers of appends), and the rest."""
        ends = [0, *cuts, len(self.appends)]
        parts = [self.appends[begin:end] for begin, end in pairwise(ends) if end > begin]
        segments = [sealed([one.stamped for one in part]) for part in parts]
        if not self._rebuilt:
            write_folder(folder, segments)
            return
        for before, segment, part in zip([None, *segments], segments, parts, strict=False):
            is_rebuilt = self.appends.index(part[0]) >= self._rebuilt
            known = dict.fromkeys(REGIONS.values(), REBUILT) if is_rebuilt else {}
            told = manifest_of(segment, before=before, incarnations=known)
            registry = tuple(_registered(feed) for feed in REGIONS) if is_rebuilt else ()
            write(folder, segment, msgspec.structs.replace(told, registry=registry))

    def rebuild(self) -> None:
        """The server is rebuilt: feeds go on at the next sequence id, under another history. A segment must end here."""
        self._rebuilt = len(self.appends)

    def at(self, lsn: Lsn) -> State:
        """Return what all entries up to ``lsn`` come to."""
        state: State = {}
        tables: dict[tuple[str, bytes], tuple[str, ...]] = {}
        for one in self.appends:
            for index, change in enumerate(one.changes):
                if one.lsns[index] <= lsn:
                    _apply(state, tables, one.feed, one.first_id + index, change)
        return state


def _registered(feed: str) -> RegisteredFeed:
    """What a rebuilt server's registry says of a feed: its history goes on from the first entry."""
    return RegisteredFeed(
        feed=feed,
        region_id=REGIONS[feed],
        tenant_id="acme",
        mode="owned",
        owner="agent-1",
        epoch=2,
        next_sequence_id=1,
        first_sequence_id=1,
        incarnation=REBUILT,
    )


def _apply(
    state: State, tables: dict[tuple[str, bytes], tuple[str, ...]], feed: str, number: int, change: Change
) -> None:
    if change.control == "truncate":
        said = json.loads(change.value)
        for name in [name for name, table in tables.items() if table == (said["database"], said["table"])]:
            if name[0] == feed:
                state.pop(name, None)
        return
    if change.control:
        return
    if change.op is Op.BATCH:
        for one in wal_pb2.BatchWrite.FromString(change.value).mutations:
            if one.op == wal_pb2.OP_DELETE:
                state.pop((feed, one.key), None)
            else:
                state[feed, one.key] = (one.value, number)
        return
    name = (feed, change.key or b"")
    tables[name] = change.table
    if change.op is Op.DELETE:
        state.pop(name, None)
    elif change.op is Op.PATCH:
        known = json.loads(state[name][0]) if name in state else None
        merged = _merged(known, json.loads(change.value))
        state[name] = (json.dumps(merged, separators=(",", ":")).encode(), number)
    else:
        state[name] = (change.value, number)


def _merged(known: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    found = dict(known) if isinstance(known, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = _merged(found.get(name), value)
    return found


def put(key: str, number: int, **more: Any) -> Change:
    """A row of JSON."""
    return Change(b'{"n":%d}' % number, key=key.encode(), **more)


def patch(key: str, text: str, **more: Any) -> Change:
    """A merge patch."""
    return Change(text.encode(), key=key.encode(), op=Op.PATCH, **more)


def delete(key: str, **more: Any) -> Change:
    """A deletion that keeps the old state, as feeds of JSON do."""
    return Change(b'{"old":true}', key=key.encode(), op=Op.DELETE, **more)


def truncate(database: str, table: str) -> Change:
    """A TRUNCATE of an attached table."""
    value = json.dumps({"database": database, "table": table}).encode()
    return Change(value, key=b"\0truncate", control="truncate", table=(database, table))


def batch(*mutations: tuple[str, bytes | None]) -> Change:
    """An OP_BATCH: (key, value), None for a deletion."""
    made = [
        wal_pb2.Mutation(
            op=wal_pb2.OP_DELETE if value is None else wal_pb2.OP_PUT, key=key.encode(), value=value or b""
        )
        for key, value in mutations
    ]
    value = wal_pb2.BatchWrite(mutations=made).SerializeToString()
    return Change(value, key=b"b", op=Op.BATCH)


MS = 1 << 18
"""A millisecond of the log's clock."""
JUMP_MS = 3_600_000
JUMPED = JUMP_MS * MS
"""Where the clock of the small history stands after a jump."""


def small_history() -> History:
    """Eleven appends in three milliseconds and one an hour later, to which the clock jumped: every op, a TRUNCATE, a
    transaction over two appends, equal times. The clock was set back then, so what follows the jump is of its millisecond.
    """
    made = History()
    made.append(VM, put("a", 1), put("b", 2), put("c", 3), ts=1)
    made.append(ORDERS, put("o1", 1, table=T), put("o2", 2, table=T), put("x", 9, table=("main", "u")), ts=2)
    made.append(VM, patch("a", '{"m":[1],"n":null}'), delete("b"), ts=MS)
    made.append(VM, batch(("c", b"first"), ("d", b"{}"), ("c", None), ("e", b"E")), ts=MS + 1)
    made.append(ORDERS, truncate(*T), put("o2", 22, table=T), ts=MS + 1)
    made.append(VM, put("tx", 1, source_tx=b"t1"), ts=2 * MS)
    made.append(ORDERS, put("o3", 3, table=T), ts=2 * MS + 1)
    made.append(
        VM, put("tx", 2, source_tx=b"t1"), put("tx2", 2, source_tx=b"t1", tx_last=True), ts=2 * MS + 2
    )
    made.append(VM, patch("e2", '{"only":{"a":null,"b":1}}'), delete("never"), ts=JUMPED)
    made.append(VM, batch(("d", None), ("a", b"not json \xff")), ts=JUMPED + 1)
    made.append(ORDERS, delete("o2", table=T), put("o4", 4, table=T), ts=JUMPED + 2)
    return made
