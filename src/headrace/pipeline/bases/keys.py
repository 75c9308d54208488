"""The entries of one key, in the order of the feed -> those that a base keeps of it. Pure.

However many they are, few are held at a time: of each generation of the key's table what its entries come to.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from headrace.entries.entry import Op
from headrace.pipeline.bases.generations import FeedGenerations, TableGenerations, TableName
from headrace.pipeline.bases.patches import is_object, joined_patch
from headrace.wire.merge_patch import apply_patch


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

    from headrace.wire.columns import arrow_ints

    return arrow_ints(np.asarray([number], np.int64))


class Key:
    """One key of one feed on its way. ``add`` its entries in ascending sequence ids, then take ``kept``."""

    def __init__(self, feed: FeedGenerations, table: TableName) -> None:
        self.table = table
        tables = feed.of(table)
        self._feed = feed
        self._rows: _Rows | None = (
            _CapturedRows(tables, feed.last) if feed.captured and table else _Rows(tables, feed.last)
        )
        self._kept: list[Kept] = []

    def add(self, entry: Kept, table: TableName) -> None:
        """Add the next entry; ``table``: the one that it names."""
        if self._rows is not None and table != self.table:
            # Keys of two tables are never the same, but for a producer's mistake: then every entry counts.
            self._kept = list(self._rows.kept())
            self._rows = None
        if self._rows is not None:
            self._rows.add(entry)
        elif not _is_void(self._feed.of(table), entry):
            self._kept.append(entry)

    def kept(self) -> list[Kept]:
        """Return what a base keeps of the key, in no order."""
        return self._kept if self._rows is None else list(self._rows.kept())

    def detach(self) -> None:
        """Let go of the record batch that was added from last."""
        for one in self._kept if self._rows is None else self._rows.held():
            one.detach()


def _is_void(tables: TableGenerations, entry: Kept) -> bool:
    return tables.generations[tables.place_of(entry.sequence_id)].void


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

    def add(self, entry: Kept) -> None:
        place = self._tables.place_of(entry.sequence_id)
        if self._tables.generations[place].void:
            return
        if entry.op == Op.PATCH:
            self._patch(entry, place)
            return
        keeps = entry.op != Op.DELETE or entry.sequence_id == self._last
        self._kept, self._places = ([entry], [place]) if keeps else ([], [])

    def _patch(self, entry: Kept, place: int) -> None:
        below = self._kept[-1] if self._places[-1:] == [place] else None
        try:
            merged = _merged(below, entry, alone=len(self._kept) == 1) if below is not None else None
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


def _merged(below: Kept, entry: Kept, *, alone: bool) -> Kept | None:
    """Return a patch merged with the entry below it; None if they must stay two. ``alone``: nothing is below that one."""
    if below.op == Op.DELETE:
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
