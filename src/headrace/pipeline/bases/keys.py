"""The entries of one key, in the order of the feed -> those that a base keeps of it. Pure.

However many they are, few are held at a time: of each generation of the key's table what its entries come to. Where that is
much, as with patches that no patch can join, what is settled goes out (:data:`HELD_BYTES_MAX`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from headrace.entries.entry import Op
from headrace.pipeline.bases.generations import FeedGenerations, TableGenerations, TableName
from headrace.pipeline.bases.patches import is_object, joined_patch
from headrace.wire.arrays import arrow_ints
from headrace.wire.merge_patch import apply_patch

HELD_BYTES_MAX: Final = 4 << 20
"""Bytes of one key's entries that are held from one batch to the next."""
_ENTRY_BYTES: Final = 4096
"""What an entry takes beside its value, about: it is held as a record batch of its own."""


class Kept:
    """An entry: a row of a record batch, and what a fold has made of its ``op`` and ``value``."""

    __slots__ = ("batch", "index", "is_changed", "op", "sequence_id", "value")

    def __init__(self, batch: Any, index: int, sequence_id: int, op: str, value: bytes) -> None:
        self.batch = batch
        self.index = index
        self.sequence_id = sequence_id
        self.op = op
        self.value = value
        self.is_changed = False

    @property
    def size(self) -> int:
        """Bytes that it takes in memory, about."""
        return len(self.value or b"") + _ENTRY_BYTES

    def became(self, op: str, value: bytes) -> Kept:
        """Return the same entry with another op and value."""
        other = Kept(self.batch, self.index, self.sequence_id, op, value)
        other.is_changed = True
        return other

    def detach(self) -> None:
        """Let the record batch go that it is a row of."""
        if self.batch.num_rows > 1:
            # A slice would hold all of it.
            self.batch, self.index = self.batch.take(_index(self.index)), 0


def _index(number: int) -> Any:
    import numpy as np

    return arrow_ints(np.asarray([number], np.int64))


class Key:
    """One key of one feed on its way. ``add`` its entries in ascending sequence ids, then take ``kept``.

    ``every``: it is none of capture's keys in a captured table (:mod:`~headrace.pipeline.bases.naming`): all entries count.
    """

    def __init__(self, feed: FeedGenerations, table: TableName, *, every: bool = False) -> None:
        self.table = table
        tables = feed.of(table)
        self._feed = feed
        self._entries: _Rows | _Every
        if every:
            self._entries = _Every(feed)
        elif feed.captured and table:
            self._entries = _CapturedRows(tables, feed.last)
        else:
            self._entries = _Rows(tables, feed.last)

    def add(self, entry: Kept, table: TableName) -> None:
        """Add the next entry; ``table``: the one that it names."""
        if isinstance(self._entries, _Rows):
            if table == self.table:
                self._entries.add(entry)
                return
            # Keys of two tables are never the same, but for a producer's mistake.
            self._entries = _Every(self._feed, {self.table: list(self._entries.kept())})
        self._entries.add(entry, table)

    def kept(self) -> list[Kept]:
        """Return what a base keeps of the key, in no order, but for what was ``settled``."""
        return list(self._entries.kept())

    def settled(self, held_bytes_max: int) -> list[Kept]:
        """Return entries that a base keeps whatever comes, and let them go; none while no more than that is held."""
        if sum(one.size for one in self._entries.held()) <= held_bytes_max:
            return []
        return self._entries.settled()

    def detach(self) -> None:
        """Let go of the record batch that was added from last."""
        for one in self._entries.held():
            one.detach()


class _Every:
    """A key of several tables, or one that tells no row of a captured table from another.

    A captured table goes by its messages, so all of them stay. In an attached one a put or a delete takes the place of all
    that was before it in the same table. Deletes stay: keys and values know no tables, and another one's put may be below.
    """

    def __init__(self, feed: FeedGenerations, kept: dict[TableName, list[Kept]] | None = None) -> None:
        self._feed = feed
        self._kept = kept if kept is not None else {}

    def add(self, entry: Kept, table: TableName) -> None:
        tables = self._feed.of(table)
        if tables.generations[tables.place_of(entry.sequence_id)].void:
            return
        if self._feed.captured or entry.op == Op.PATCH:
            self._kept.setdefault(table, []).append(entry)
        else:
            self._kept[table] = [entry]

    def kept(self) -> Iterator[Kept]:
        for entries in self._kept.values():
            yield from entries

    def held(self) -> Iterator[Kept]:
        """Yield every entry that is held."""
        yield from self.kept()

    def settled(self) -> list[Kept]:
        """Let all go: what is left out of them later is less, and no more than that."""
        out, self._kept = list(self.kept()), {}
        return out


class _Rows:
    """A key of an attached table, or of no table: a put or a delete takes the place of all that was before it.

    A patch is merged with what is below it in its own generation: below a change of columns the same name may mean another
    column.
    """

    def __init__(self, tables: TableGenerations, last: int) -> None:
        self._tables = tables
        self._last = last
        self._kept: list[Kept] = []
        self._places: list[int] = []
        self._is_out = False
        """Whether older entries have gone out: then what is here is not all that there is below the next one."""

    def add(self, entry: Kept) -> None:
        place = self._tables.place_of(entry.sequence_id)
        if self._tables.generations[place].void:
            return
        if entry.op == Op.PATCH:
            self._patch(entry, place)
            return
        keeps = entry.op != Op.DELETE or entry.sequence_id == self._last or self._is_out
        self._kept, self._places = ([entry], [place]) if keeps else ([], [])

    def _patch(self, entry: Kept, place: int) -> None:
        below = self._kept[-1] if self._places[-1:] == [place] else None
        try:
            alone = len(self._kept) == 1 and not self._is_out
            merged = _merged(below, entry, alone=alone) if below is not None else None
        except ValueError:
            merged = None  # who folds it says what is wrong with it
        if merged is None:
            self._join_put(place)
            self._kept.append(entry)
            self._places.append(place)
        else:
            self._kept[-1] = merged

    def _join_put(self, place: int) -> None:
        """A put and the patch above it become one put, so that few entries are held, however many patches there are."""
        if self._places != [place, place] or self._kept[0].op != Op.PUT:
            return
        put, patch = self._kept
        with suppress(ValueError):
            self._kept, self._places = [patch.became(Op.PUT, apply_patch(put.value, patch.value))], [place]

    def kept(self) -> Iterator[Kept]:
        yield from self._kept

    def held(self) -> Iterator[Kept]:
        """Yield every entry that is held."""
        yield from self._kept

    def settled(self) -> list[Kept]:
        """Let all go but the newest one, which the next patch may be merged with."""
        out, self._kept, self._places = self._kept[:-1], self._kept[-1:], self._places[-1:]
        self._is_out = self._is_out or bool(out)
        return out


def _merged(below: Kept, entry: Kept, *, alone: bool) -> Kept | None:
    """Return a patch merged with the entry below it; None if they must stay two. ``alone``: nothing is below that one."""
    if below.op == Op.DELETE or (below.op == Op.PUT and not alone):
        return None
    if below.op == Op.PUT or not is_object(below.value):
        value = apply_patch(below.value, entry.value)
        if alone and is_object(value):
            # Tables read a put strictly, and not what patches went into. As a patch it is the same, unless members are null.
            return entry.became(Op.PATCH, value) if apply_patch(None, value) == value else None
        return entry.became(Op.PUT, value)
    if not is_object(entry.value):
        apply_patch(None, entry.value)
        return entry
    if alone:
        # It stays a patch: as a put it would have to have every column of its table.
        return entry.became(Op.PATCH, apply_patch(apply_patch(None, below.value), entry.value))
    both = joined_patch(below.value, entry.value)
    return None if both is None else entry.became(Op.PATCH, both)


_RawRow = dict[str, msgspec.Raw]


class _Message(msgspec.Struct, gc=False, rename={"commit_ts": "commitTs"}):
    """What a row's message says of its time, and of its key before and after."""

    commit_ts: int = -1
    data: _RawRow | None = None
    old: _RawRow | None = None


_DECODE: Final = msgspec.json.Decoder(_Message).decode


class _CapturedRows(_Rows):
    """A key of a captured table: of each generation the entry that tables take, the greatest (commitTs, sequence id).

    And the last one, which is what keys and values take. Beside them all those that are more than a state of this key: an
    UPDATE of the handle key, which is a deletion of another key too, and what is no message.
    """

    def __init__(self, tables: TableGenerations, last: int) -> None:
        super().__init__(tables, last)
        self._place = -1
        self._newest: Kept | None = None
        self._top: tuple[tuple[int, int], Kept] | None = None
        self._is_open = False
        """Whether messages of this generation are read: one entry alone needs no comparing."""

    def add(self, entry: Kept) -> None:
        place = self._tables.place_of(entry.sequence_id)
        generation = self._tables.generations[place]
        if generation.void:
            return
        if place != self._place:
            self._end()
            self._place = place
        if generation.handle_key is None:
            self._kept.append(entry)
            return
        if self._newest is None:
            self._newest = entry
            return
        if not self._is_open:
            self._is_open = True
            self._compare(self._newest)
        self._newest = entry
        self._compare(entry)

    def kept(self) -> Iterator[Kept]:
        self._end()
        yield from self._kept

    def held(self) -> Iterator[Kept]:
        there = [*self._kept, self._newest, self._top[1] if self._top is not None else None]
        yield from {id(one): one for one in there if one is not None}.values()

    def settled(self) -> list[Kept]:
        """Let go what stays by itself; not the newest one and the one with the greatest commitTs, which are told later."""
        open_ones = (self._newest, self._top[1] if self._top is not None else None)
        out = [one for one in self._kept if all(one is not other for other in open_ones)]
        self._kept = [one for one in self._kept if any(one is other for other in open_ones)]
        self._is_out = self._is_out or bool(out)
        return out

    def _compare(self, entry: Kept) -> None:
        """Look at an entry's message; one that can't be left out for its key's sake, or not be read, is kept."""
        try:
            message = _DECODE(entry.value)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._kept.append(entry)
            return
        key = self._tables.generations[self._place].handle_key or ()
        data, old = message.data, message.old
        if data is not None and old is not None and any(_raw(old, name) != _raw(data, name) for name in key):
            self._kept.append(entry)
        rank = message.commit_ts, entry.sequence_id
        if self._top is None or rank > self._top[0]:
            self._top = rank, entry

    def _end(self) -> None:
        """Keep what the generation came to."""
        newest, top = self._newest, self._top
        self._newest, self._top, self._is_open = None, None, False
        if newest is None:
            return
        winners = {id(newest): newest}
        if top is not None:
            winners[id(top[1])] = top[1]
        left = [one for one in winners.values() if all(one is not other for other in self._kept)]
        generation = self._tables.generations[self._place]
        is_gone = (
            not self._kept
            and not self._is_out
            and len(left) == 1
            and newest.op == Op.DELETE
            and not generation.tells_deletes
            and newest.sequence_id != self._last
        )
        if not is_gone:
            self._kept += left


def _raw(row: _RawRow, name: str) -> bytes | None:
    raw = row.get(name)
    return None if raw is None else bytes(raw)
