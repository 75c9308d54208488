"""The SQL of an attachment: the table of its row values, its triggers, and the statements that copy rows. Pure text.

A trigger stores a row's values as they are, in ``headrace_row_{id}``, so that nothing is converted inside the
application's transaction; the agent renders them. Two traps shape the text:

* SQLite fires the newest AFTER trigger first. If the application adds one that changes the row again, *its* change reaches
  the outbox before ours. So a put never stores ``NEW``: it reads the row back as it is now, and a delete is written only if
  no row has that key now. The outbox then ends with the truth whatever the order.
* The conflict clause of the application's statement (``INSERT OR IGNORE``) also rules the statements inside triggers. So no
  statement here can conflict: ids are handed out, nothing else is unique.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.publisher.attach.selection import MASK
from headrace.publisher.sqlite.connection import quote_name, quote_text
from headrace.publisher.sqlite.spec import Spec
from headrace.publisher.sqlite.values import InvalidText

MASK_BITS = 62
"""Columns told by one integer of ``changed``: SQLite's integers have 64 bits, with the sign."""


class AttachmentSql:
    """The statements of the attachment ``number`` with this ``spec``."""

    def __init__(self, number: int, spec: Spec) -> None:
        self.number = number
        self.spec = spec
        self.rows = row_table(number)
        self._table = quote_name(spec.schema.table)
        self._names = [column.name for column in spec.schema.columns]
        self._values = [f"c{place}" for place in range(len(self._names))]
        self._feed = quote_text(spec.request.feed)
        self._key = [quote_name(name) for name in spec.schema.key]
        self._given = " AND ".join(f"{name} IS NOT NULL" for name in self._key)

    def create_row_table(self) -> str:
        """The table of row values: no types, so that SQLite stores them as they are. ``b…``: before the update."""
        before = [f"b{place}" for place in range(len(self._names))] if self.spec.request.before else []
        return f"CREATE TABLE {self.rows} (id INTEGER PRIMARY KEY, {', '.join(self._values + before)})"

    def create_triggers(self) -> dict[str, str]:
        """The triggers by name, in the order in which they are to be made."""
        bodies = {
            "delete": ("DELETE", f" WHEN {self._key_is_gone()}", self._write_old()),
            "insert": ("INSERT", "", self._write_current(changed=False)),
            "update": ("UPDATE", self._when_delivered(), self._write_current(changed=True)),
            # Made last, so it fires first: the old key goes before the new one comes.
            "rekey": (
                "UPDATE",
                f" WHEN ({self._key_differs()}) AND {self._key_is_gone()}",
                self._write_old(),
            ),
        }
        return {
            name: f"CREATE TRIGGER {name} AFTER {event} ON {self._table}{when} BEGIN {body} END"
            for kind, (event, when, body) in bodies.items()
            for name in [trigger_name(self.number, kind)]
        }

    def copy_values(
        self, after: Sequence[object] | None, upto: Sequence[object] | None, condition: str | None
    ) -> str:
        """Store the values of the next ``:rows`` rows by key, from the id ``:last`` + 1 on, that meet ``condition``.

        ``after``: the key after which to go on, bound as ``:k0`` ... ``upto``: the last key that is looked at, bound as
        ``:u0`` ... Bound values, not a subquery: only with them does SQLite search all columns of a compound key in the
        index.
        """
        bounds = self._bound(">", "k", after) + self._bound("<=", "u", upto)
        met = "" if condition is None else f" AND (\n{condition}\n)"
        order = ", ".join(f"r.{name}" for name in self._key)
        return (
            f"INSERT INTO {self.rows} (id, {', '.join(self._values)}) "
            f"SELECT :last + row_number() OVER (ORDER BY {order}), {self._columns('r')} FROM "
            f"(SELECT * FROM {self._table} WHERE {self._given}{bounds}{met} "
            f"ORDER BY {', '.join(self._key)} LIMIT :rows) AS r"
        )

    def select_rows(self) -> str:
        """Read every row that a key names, its columns as a trigger would store them."""
        return f"SELECT {self._columns('r')} FROM {self._table} AS r WHERE {self._given}"

    def copy_row(self, key: Sequence[object]) -> str:
        """Store the values of the row with this key (bound as in :meth:`copy_values`) under the id ``:last`` + 1."""
        return (
            f"INSERT INTO {self.rows} (id, {', '.join(self._values)}) "
            f"SELECT :last + 1, {self._columns('r')} FROM {self._table} AS r WHERE true{self._bound('=', 'k', key)}"
        )

    def key_ahead(self, after: Sequence[object] | None) -> str:
        """Read the key that is ``:rows`` rows beyond ``after`` (bound as in :meth:`copy_values`)."""
        keys = ", ".join(self._key)
        return (
            f"SELECT {keys} FROM {self._table} WHERE {self._given}{self._bound('>', 'k', after)} "
            f"ORDER BY {keys} LIMIT 1 OFFSET :rows - 1"
        )

    def check_condition(self, condition: str) -> str:
        """Plan a statement with ``condition``; as a CASE it may not close parentheses that it has not opened."""
        return f"EXPLAIN SELECT CASE WHEN\n{condition}\nTHEN 1 END FROM {self._table} WHERE (\n{condition}\n)"

    def _bound(self, sign: str, letter: str, key: Sequence[object] | None) -> str:
        """Compare with a bound key (for a text that is no UTF-8 its bytes are bound); empty if there is none."""
        if key is None:
            return ""
        marks = [
            f"CAST(:{letter}{place} AS TEXT)" if isinstance(value, InvalidText) else f":{letter}{place}"
            for place, value in enumerate(key)
        ]
        return f" AND ({', '.join(self._key)}) {sign} ({', '.join(marks)})"

    def select_key(self) -> str:
        """Read the key's values of the row stored under an outbox id."""
        return (
            f"SELECT {', '.join(f'c{place}' for place in self.spec.key_places)} FROM {self.rows} WHERE id = ?"
        )

    def copy_written_since(self, older: Sequence[tuple[int, Spec]]) -> str:
        """Store the values of the rows whose keys the ``older`` attachments wrote above the id ``:since``."""
        key = [quote_name(name) for name in self.spec.schema.key]
        written = " UNION ".join(
            f"SELECT {', '.join(f'c{place}' for place in spec.key_places)} FROM {row_table(number)} WHERE id > :since"
            for number, spec in older
        )
        order = ", ".join(f"r.{name}" for name in key)
        return (
            f"INSERT INTO {self.rows} (id, {', '.join(self._values)}) "
            f"SELECT :last + row_number() OVER (ORDER BY {order}), {self._columns('r')} FROM {self._table} AS r "
            f"WHERE ({order}) IN ({written})"
        )

    def copy_rows(self) -> str:
        """Make outbox rows, marked as copies, of the values stored above the id ``:last``."""
        return (
            "INSERT INTO headrace_outbox (id, change_feed_id, op, attached, copy) "
            f"SELECT id, {self._feed}, 'put', {self.number}, 1 FROM {self.rows} WHERE id > :last ORDER BY id"
        )

    def count_null_keys(self) -> str:
        """Count the rows that no key names."""
        nulls = " OR ".join(f"{quote_name(name)} IS NULL" for name in self.spec.schema.key)
        return f"SELECT count(*) FROM {self._table} WHERE {nulls}"

    def select_values(self) -> str:
        """Read one row's values by its outbox id: the columns, then the columns before the update if they are kept."""
        before = [f"b{place}" for place in range(len(self._names))] if self.spec.request.before else []
        return f"SELECT {', '.join(self._values + before)} FROM {self.rows} WHERE id = ?"

    def _write_current(self, *, changed: bool) -> str:
        found = f"FROM {self._table} AS r WHERE {self._is_new_row()}"
        mask, mask_column = (f", {self._changed()}", ", changed") if changed else ("", "")
        before = changed and self.spec.request.before
        names = self._values + ([f"b{place}" for place in range(len(self._names))] if before else [])
        values = self._columns("r") + (f", {self._columns('OLD')}" if before else "")
        return (
            f"INSERT INTO headrace_outbox (change_feed_id, op, attached{mask_column}) "
            f"SELECT {self._feed}, {self._op('put', 'r')}, {self.number}{mask} {found}; "
            f"INSERT INTO {self.rows} (id, {', '.join(names)}) SELECT last_insert_rowid(), {values} {found};"
        )

    def _write_old(self) -> str:
        return (
            "INSERT INTO headrace_outbox (change_feed_id, op, attached) "
            f"VALUES ({self._feed}, {self._op('delete', 'OLD')}, {self.number}); "
            f"INSERT INTO {self.rows} (id, {', '.join(self._values)}) "
            f"VALUES (last_insert_rowid(), {self._columns('OLD')});"
        )

    def _columns(self, row: str) -> str:
        return ", ".join(self._value(row, name) for name in self._names)

    def _value(self, row: str, name: str) -> str:
        value = f"{row}.{quote_name(name)}"
        return (
            f"CASE WHEN {value} IS NULL THEN NULL ELSE {quote_text(MASK)} END"
            if name in self.spec.masked
            else value
        )

    def _op(self, op: str, row: str) -> str:
        if not self.spec.nullable_key:
            return quote_text(op)
        nulls = " OR ".join(f"{row}.{quote_name(name)} IS NULL" for name in self.spec.schema.key)
        return f"CASE WHEN {nulls} THEN 'nokey' ELSE {quote_text(op)} END"

    def _is_new_row(self) -> str:
        if self.spec.rowid is not None:
            rowid = quote_name(self.spec.rowid)
            return f"r.{rowid} = NEW.{rowid}"
        return " AND ".join(f"r.{name} = NEW.{name}" for name in map(quote_name, self.spec.schema.key))

    def _key_differs(self) -> str:
        names = map(quote_name, self.spec.schema.key)
        return " OR ".join(f"OLD.{name} IS NOT NEW.{name} COLLATE BINARY" for name in names)

    def _key_is_gone(self) -> str:
        # The first comparison uses the key's index, the second tells texts apart that the index takes for equal.
        same = " AND ".join(
            f"r.{name} = OLD.{name} AND r.{name} = OLD.{name} COLLATE BINARY"
            for name in map(quote_name, self.spec.schema.key)
        )
        return f"NOT EXISTS (SELECT 1 FROM {self._table} AS r WHERE {same})"

    def _differs(self, name: str) -> str:
        old, new = f"OLD.{quote_name(name)}", f"NEW.{quote_name(name)}"
        return f"({old} IS NOT {new} COLLATE BINARY OR typeof({old}) <> typeof({new}))"

    def _changed(self) -> str:
        groups = [self._names[start : start + MASK_BITS] for start in range(0, len(self._names), MASK_BITS)]
        masks = [
            " | ".join(f"({self._differs(name)} << {bit})" for bit, name in enumerate(group))
            for group in groups
        ]
        return " || ',' || ".join(f"({mask})" for mask in masks)

    def _when_delivered(self) -> str:
        """An update that changes only columns that are not delivered makes no row."""
        if not self.spec.filtered:
            return ""
        groups = [self._names[start : start + MASK_BITS] for start in range(0, len(self._names), MASK_BITS)]
        return " WHEN " + " OR ".join(f"({' OR '.join(map(self._differs, group))})" for group in groups)


def row_table(number: int) -> str:
    """Return the name of the table that holds the row values of the attachment ``number``."""
    return f"headrace_row_{number}"


def trigger_name(number: int, kind: str) -> str:
    """Return the name of a trigger of the attachment ``number``."""
    return f"headrace_{number}_{kind}"


def changed_names(masks: str, names: Sequence[str]) -> list[str]:
    """Return the columns that the outbox's ``changed`` tells of (the inverse of what the update trigger writes)."""
    changed = []
    for group, mask in enumerate(masks.split(",")):
        bits = int(mask)
        start = group * MASK_BITS
        changed += [name for bit, name in enumerate(names[start : start + MASK_BITS]) if bits >> bit & 1]
    return changed
