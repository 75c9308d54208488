"""How the rows of one table are written, at one version of its schema: messages and keys as bytes. Pure, made for speed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from headrace.capture.position import RawKey
from headrace.entries.entry import Change
from headrace.errors import SimpleInvalid, TableStopped
from headrace.simple import json_codec
from headrace.simple.message import Dml, MessageType, RawRow, Timestamp
from headrace.simple.schema import TableSchema
from headrace.wire.keyed import rest_of

RawValues = Sequence[str | Timestamp | None]
"""A row's raw values (UTF-8 text, timestamps, None), in the order of its schema's columns."""

_ROW_KINDS: Final = (MessageType.INSERT, MessageType.UPDATE, MessageType.DELETE)
_ENCODE: Final = msgspec.json.Encoder().encode


class RowForm:
    """How the rows of one table are written at one version of its schema. Immutable; make it once a version."""

    def __init__(
        self,
        schema: TableSchema,
        delivered: Sequence[int] | None = None,
        masks: Sequence[str | None] | None = None,
    ) -> None:
        """Prepare what all rows have in common.

        ``delivered``: places in ``schema.columns`` whose values go out (None: all). ``masks``: for each of these, the text
        that takes the place of its values, or None; NULL stays NULL. Keys have the handle key's values, delivered or not.

        TableStopped if nothing tells the rows apart, or none of their columns goes out.
        """
        self.schema = schema
        self.table = (schema.schema, schema.table)
        self.table_rest = rest_of(Change(b"", table=self.table))
        places = range(len(schema.columns)) if delivered is None else delivered
        given = [None] * len(places) if masks is None else masks
        named = [(schema.columns[at].name, at, mask) for at, mask in zip(places, given, strict=True)]
        named.sort(key=lambda column: column[0].encode())
        if not schema.handle_key:
            raise TableStopped(
                f"{schema.schema}.{schema.table} has neither a primary key nor a UNIQUE key of NOT NULL columns: nothing "
                "tells its rows apart",
                hint="Give the table a primary key, then run headrace capture copy for it.",
                database=schema.schema,
                table=schema.table,
            )
        if not named:
            raise TableStopped(
                f"no column of {schema.schema}.{schema.table} goes out",
                database=schema.schema,
                table=schema.table,
            )
        self._names = tuple(name for name, _, _ in named)
        self._pick = _picker([at for _, at, _ in named])
        self._masks = tuple((at, mask) for at, (_, _, mask) in enumerate(named) if mask is not None)
        self._row = _row_maker(self._names)
        at_of = {column.name: at for at, column in enumerate(schema.columns)}
        self._pick_key = _picker([at_of[name] for name in schema.handle_key])
        self._key_opening = _ENCODE(self.table)[:-1] + b","
        self._inserting, self._updating, self._deleting = (_opening_of(kind, schema) for kind in _ROW_KINDS)

    def key_values(self, values: RawValues) -> RawKey:
        """Return the handle key's raw values, in its order."""
        return tuple(self._pick_key(values))

    def key_of(self, values: RawValues) -> bytes:
        """Return the entry's key: ``[database, table, handle-key values…]`` as compact JSON; a timestamp is its text."""
        picked = self._pick_key(values)
        for value in picked:
            if type(value) is Timestamp:
                picked = [one.value if isinstance(one, Timestamp) else one for one in picked]
                break
        return self._key_opening + _ENCODE(picked)[1:]

    def moves(self, before: RawValues, after: RawValues) -> bool:
        """Tell whether an UPDATE changes the handle key, so that it goes out as a DELETE and an INSERT."""
        return self._pick_key(before) != self._pick_key(after)

    def insert(self, times: bytes, after: RawValues) -> bytes:
        """Return the INSERT message; ``times`` is :attr:`TransactionEntries.times`."""
        opening, closing = self._inserting
        return b"".join((opening, times, closing, self._row_json(after), b"}"))

    def update(self, times: bytes, before: RawValues, after: RawValues) -> bytes:
        """Return the UPDATE message."""
        opening, closing = self._updating
        return b"".join(
            (opening, times, closing, self._row_json(after), b',"old":', self._row_json(before), b"}")
        )

    def delete(self, times: bytes, before: RawValues) -> bytes:
        """Return the DELETE message."""
        opening, closing = self._deleting
        return b"".join((opening, times, closing, self._row_json(before), b"}"))

    def _row_json(self, values: RawValues) -> bytes:
        picked = self._pick(values)
        if self._masks:
            masked = list(picked)
            for at, mask in self._masks:
                if masked[at] is not None:
                    masked[at] = mask
            picked = masked
        return json_codec.escape(_ENCODE(self._row(*picked)))

    def fault_of(self, *images: RawValues | None) -> TableStopped:
        """Return the error for a row whose text is no Unicode, such as half a surrogate pair: it names the column."""
        detail = f"a key of {'.'.join(self.table)} is no Unicode text"
        for values in images:
            if values is not None:
                row = dict(zip(self._names, self._pick(values), strict=True))
                try:
                    json_codec.encode(_message(MessageType.INSERT, self.schema, 0, 0, row))
                except SimpleInvalid as error:
                    detail = error.detail
        return TableStopped(detail, database=self.table[0], table=self.table[1])


def _picker(places: Sequence[int]) -> Callable[[RawValues], Sequence[str | Timestamp | None]]:
    """Return what takes the values at ``places`` out of a row."""
    if len(places) == 1:
        (only,) = places
        return lambda values: (values[only],)
    return itemgetter(*places)


def _row_maker(names: tuple[str, ...]) -> Callable[..., Any]:
    """Return what makes a value of a row's picked values that is encoded as an object with these names, in this order.

    A Struct's names are encoded once and not at each row; a name that would need escapes can't be one of a Struct.
    """
    fields = [f"c{at}" for at in range(len(names))]
    try:
        return msgspec.defstruct(
            "Row", [(field, Any) for field in fields], rename=dict(zip(fields, names, strict=True)), gc=False
        )
    except ValueError:
        return lambda *picked: dict(zip(names, picked, strict=True))


def _message(kind: MessageType, schema: TableSchema, commit_ts: int, build_ts: int, row: RawRow) -> Dml:
    return Dml(
        kind,
        schema.schema,
        schema.table,
        schema.table_id,
        commit_ts,
        build_ts,
        schema.version,
        None if kind is MessageType.DELETE else row,
        None if kind is MessageType.INSERT else row,
    )


def _opening_of(kind: MessageType, schema: TableSchema) -> tuple[bytes, bytes]:
    """Return what stands before and behind the times in a row's message, up to its first row."""
    whole = json_codec.encode(_message(kind, schema, 0, 0, {"c": None}))
    opening, _, rest = whole.partition(b'"commitTs":0,"buildTs":0')
    return opening, rest[: rest.index(b'{"c":null}')]
