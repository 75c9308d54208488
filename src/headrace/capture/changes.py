"""Rows, DDL and other events as entries of a feed: the bytes that an append carries. Pure, and made for speed.

A :class:`~headrace.capture.row_form.RowForm` knows how one table's rows are written, :class:`TransactionEntries` gathers
what one source transaction becomes: it numbers the entries, and holds the last ones back until it is known whether others
follow.

::

    form = RowForm(schema, choice.delivered, choice.masks)
    entries = TransactionEntries(str(begin.gtid), commit_ts, build_ts, source_time_ms)
    entries.add_part(form, decoder.rows(event))
    append = Append(entries.end(), position)

The general path (:func:`headrace.simple.json_codec.encode`, :func:`headrace.wire.entry.encode_half`) gives the same bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from headrace.capture.control import ENTRY_BYTES_MAX, MESSAGE_BYTES_SURE, ControlEntry
from headrace.capture.position import SourcePosition
from headrace.capture.row_form import RawValues, RowForm
from headrace.entries.entry import Change, WireOp
from headrace.errors import TableStopped
from headrace.wire.keyed import (
    keyed_field,
    last_of_transaction,
    rest_of,
    source_time_part,
    source_tx_part,
    tx_index_part,
)

APPEND_ENTRIES_MAX: Final = 5_000
"""Entries after which an append is full."""

APPEND_BYTES_MAX: Final = 4 << 20
"""Bytes of entries after which an append is full: one entry more still fits well into the 16 MiB that a server takes."""

PIECES_AN_APPEND: Final = 4
"""A rows event may become more than an append holds: it is taken in pieces, so many of which fill one."""

RowPair = tuple[RawValues | None, RawValues | None]
"""A row before and after it was changed; None before an INSERT and after a DELETE."""


class Append(NamedTuple):
    """``entries`` fields that go into the feed in one step, at least one, and where in the source it stands then."""

    fields: list[bytes]
    position: SourcePosition


class Mark(NamedTuple):
    """How far a transaction was: where :meth:`TransactionEntries.roll_back` goes back to."""

    entries: int
    held: int
    behind_last: bytes
    before_held: tuple[int, int]


class TransactionEntries:
    """What one source transaction becomes: its entries in order, numbered, the last one marked.

    A transaction comes in *parts*, such as the rows of one binlog event, and a large part in pieces. :meth:`take` may cut
    between two pieces; ``parts_taken``, ``rows_taken`` (of the part after those) and ``entries_taken`` then belong into the
    append's position. ``bytes``: of the entries that wait.
    """

    def __init__(
        self,
        gtid: str,
        commit_ts: int,
        build_ts: int,
        source_time_ms: int,
        *,
        copy: bool = False,
        parts: int = 0,
        entries: int = 0,
    ) -> None:
        """Begin a transaction. ``build_ts`` and ``source_time_ms``: UTC milliseconds.

        ``gtid`` ``""``: the entries are of no transaction. ``copy``: rows that are copied. ``parts`` and ``entries``: so
        many are in the feed already, from before a restart; those parts are not given again.
        """
        self.gtid = gtid
        self.commit_ts = commit_ts
        self.build_ts = build_ts
        self.times = b'"commitTs":%d,"buildTs":%d' % (commit_ts, build_ts)
        self.parts = self.parts_taken = parts
        self.entries_taken = entries
        self.rows_taken = 0
        self.bytes = 0
        self._source_tx = source_tx_part(gtid.encode())
        self._when = source_time_part(source_time_ms) + (_COPY if copy else b"")
        self._fields: list[bytes] = []
        self._next = entries
        self._rows = 0
        self._held = 0
        self._behind_last = b""
        self._before_held = (parts, 0)
        self._controls: list[tuple[int, ControlEntry]] = []

    @property
    def count(self) -> int:
        """Entries that are waiting to be taken."""
        return len(self._fields)

    def is_full(self, bytes_max: int) -> bool:
        """Tell whether so much waits that it should be taken.

        Right behind a control entry that is put off, within reason: the entry would be held back, and the position that goes
        with what was taken would tell already of what it says.
        """
        size = max(self.bytes / bytes_max, self.count / APPEND_ENTRIES_MAX)
        ends_in_control = bool(self._controls) and self._controls[-1][0] == self._next - 1
        return size >= (2 if ends_in_control else 1)

    def add_part(self, form: RowForm, rows: Sequence[RowPair]) -> None:
        """Add a part: rows as they follow one another. All of them or, with TableStopped, none (then :meth:`skip_part`).

        An UPDATE that changes the handle key is a DELETE and an INSERT, and so is one that is too large for one entry.
        """
        self.add_piece(form, rows, 0, sys.maxsize)

    def add_piece(self, form: RowForm, rows: Sequence[RowPair], first: int, bytes_max: int) -> int:
        """Add a part's rows from the place ``first`` on until they have ``bytes_max``, and return the place of the next one.

        With TableStopped none of the piece is added. The part is counted with its last piece.
        """
        behind = self._when + form.table_rest
        added: list[bytes] = []
        size = 0
        place = first
        for before, after in islice(rows, first, None):
            try:
                self._add_row(form, behind, before, after, added)
            except UnicodeEncodeError:
                raise form.fault_of(before, after) from None
            place += 1
            size += len(added[-1])
            if size >= bytes_max:
                break
        if added:
            self._extend(added, behind)
        if place < len(rows):
            self._rows = place
        else:
            self.skip_part()
        return place

    def skip_part(self) -> None:
        """Count a part of which nothing more goes out."""
        self.parts += 1
        self._rows = 0

    def add_control(self, entry: ControlEntry) -> None:
        """Add a control entry; it is no part, goes with the one before it or alone, and is not rolled back."""
        behind = self._when + entry.rest
        index = tx_index_part(self._next) if self._source_tx else b""
        field = keyed_field(WireOp.PUT, entry.key, entry.value, self._source_tx + index + behind)
        self._controls.append((self._next, entry))
        self._extend([field], behind)

    def take(self) -> list[bytes]:
        """Return the entries so far but those of the last piece that has any: one of them may be the transaction's last."""
        end = len(self._fields) - self._held
        taken, self._fields = self._fields[:end], self._fields[end:]
        self.bytes = sum(map(len, self._fields))
        self.parts_taken, self.rows_taken = self._before_held if self._held else (self.parts, self._rows)
        self.entries_taken = self._next - self._held
        return taken

    def end(self) -> list[bytes]:
        """Return all entries that are left, the last one marked as the transaction's last; [] if there is none."""
        taken, self._fields = self._fields, []
        if taken and self._source_tx:
            taken[-1] = last_of_transaction(taken[-1], len(self._behind_last))
        self.bytes = self._held = 0
        self.parts_taken, self.rows_taken, self.entries_taken = self.parts, self._rows, self._next
        return taken

    def mark(self) -> Mark:
        """Return what takes back all that comes from here on."""
        return Mark(self._next, self._held, self._behind_last, self._before_held)

    def roll_back(self, mark: Mark | None) -> bool:
        """Take back the rows since ``mark`` (None: all of them); parts that were counted stay counted.

        What control entries say holds nevertheless: those go behind what is left.

        False if that can't be: some of them were taken, or all before them were, so that none is left to be the last.
        """
        if mark is None:
            mark = Mark(0, 0, b"", (self.parts, 0))
        kept = mark.entries - (self._next - len(self._fields))
        if kept < 0 or (kept == 0 and mark.entries > 0):
            return False
        del self._fields[kept:]
        self.bytes = sum(map(len, self._fields))
        self._next, self._held, self._behind_last, self._before_held = mark
        since = [entry for place, entry in self._controls if place >= mark.entries]
        del self._controls[len(self._controls) - len(since) :]
        for entry in since:
            self.add_control(entry)
        return True

    def _add_row(
        self,
        form: RowForm,
        behind: bytes,
        before: RawValues | None,
        after: RawValues | None,
        added: list[bytes],
    ) -> None:
        times = self.times
        if before is None:
            if after is None:
                raise ValueError("a row that was neither before its change nor is after it")
            added.append(
                _field(WireOp.PUT, form, form.insert(times, after), after, self._rest(added, behind))
            )
            return
        if after is not None and not form.moves(before, after):
            message = form.update(times, before, after)
            if len(message) <= MESSAGE_BYTES_SURE:
                added.append(_field(WireOp.PUT, form, message, after, self._rest(added, behind)))
                return
        added.append(
            _field(WireOp.DELETE, form, form.delete(times, before), before, self._rest(added, behind))
        )
        if after is not None:
            added.append(
                _field(WireOp.PUT, form, form.insert(times, after), after, self._rest(added, behind))
            )

    def _rest(self, added: list[bytes], behind: bytes) -> bytes:
        """What stands behind the checksum of the entry after ``added``."""
        if not self._source_tx:
            return behind
        return self._source_tx + tx_index_part(self._next + len(added)) + behind

    def _extend(self, added: list[bytes], behind: bytes) -> None:
        self._fields += added
        self._next += len(added)
        self._held, self._behind_last, self._before_held = len(added), behind, (self.parts, self._rows)
        self.bytes += sum(map(len, added))


_COPY: Final = rest_of(Change(b"", copy=True))
_KEY_SHOWN_CHARS: Final = 200
_HEAD_BYTES: Final = 4
"""Tag and size of the ``entries`` field of a half of about a MiB."""
_TX_LAST_BYTES: Final = 3
_FIELD_BYTES_MAX: Final = ENTRY_BYTES_MAX + _HEAD_BYTES - _TX_LAST_BYTES


def _field(op: WireOp, form: RowForm, message: bytes, values: RawValues, rest: bytes) -> bytes:
    key = form.key_of(values)
    field = keyed_field(op, key, message, rest)
    if len(field) > _FIELD_BYTES_MAX:
        _check_size(field, key.decode()[:_KEY_SHOWN_CHARS], form.table)
    return field


def _check_size(field: bytes, what: str, table: tuple[str, ...]) -> None:
    if len(field) > _FIELD_BYTES_MAX:
        raise TableStopped(
            f"{what} takes {len(field)} bytes as an entry; the most is {_FIELD_BYTES_MAX}",
            hint="Leave the large column out (exclude-columns), then run headrace capture copy for this table.",
            database=table[0] if table else None,
            table=table[1] if table else None,
        )
