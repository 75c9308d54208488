"""A captured row of an attached table in its canonical form (docs/formats/attached-change.md). Pure, and called for each
row.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from headrace.publisher.attach.rendered import RenderedRow
from headrace.publisher.attach.selection import MASK
from headrace.publisher.postgres.spec import Spec
from headrace.publisher.postgres.triggers import JSON_NULLS
from headrace.publisher.postgres.values import Fit, fit_of, split_members
from headrace.runtime.typed_json import decode_json

_MASK: Final = msgspec.json.encode(MASK)
_NULL: Final = b"null"
_JSON_NULL: Final = msgspec.Raw(b"\0")
"""Stands for a JSON null until it is rendered: no JSON is like it."""

Members = Mapping[str, msgspec.Raw]


class RowRenderer:
    """Renders rows of one attachment: made once, called for each row.

    Its schema decides what comes out, whatever the row has: a member that is missing is null, one too many is left out, and
    a value of another type than its column's is an object that names its kind.
    """

    def __init__(self, spec: Spec) -> None:
        columns = spec.schema.columns
        self.table = (spec.schema.database, spec.schema.table)
        self._names = [column.name for column in columns]
        self._before = spec.request.before
        self._has_json = bool(spec.json_columns)
        fits = {column.name: fit_of(column.type) for column in columns}
        fits |= {name: _fit_json(fits[name]) for name in spec.json_columns}
        fits |= dict.fromkeys(spec.masked, _fit_masked)
        self._columns = [
            (name, ("," if place else "{").encode() + msgspec.json.encode(name) + b":", fits[name])
            for place, name in enumerate(self._names)
        ]
        self._key = [(name, fits[name]) for name in spec.schema.key]
        self._key_start = msgspec.json.encode(self.table)[:-1]
        self._decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

    def render(self, op: str, changes: str, before: str | None = None) -> RenderedRow:
        """Return the canonical form of a row, given the JSON that the trigger wrote of it, and of the row before an
        UPDATE.
        """
        row = self._read(changes)
        key = [self._key_start]
        for name, fit in self._key:
            raw = bytes(row.get(name, _NULL))
            key.append(raw if raw == _NULL else fit(raw))
        rendered = (b",".join(key) + b"]").decode()
        if before is None or op == "delete":
            return RenderedRow(rendered, self._object(row), None, None)
        old = self._read(before)
        changed = tuple([name for name in self._names if row.get(name) != old.get(name)])
        return RenderedRow(rendered, self._object(row), changed, self._object(old) if self._before else None)

    def key_of(self, changes: str) -> str:
        """Return the JSON object of the key's columns alone, as the trigger wrote them, of the JSON that it wrote of a row.

        PostgreSQL itself can't take that apart: it refuses the member in which JSON nulls are listed. KeyError if one is not
        in it.
        """
        row = self._read(changes)
        return msgspec.json.encode({name: row[name] for name, _ in self._key}).decode()

    def _read(self, text: str) -> Members:
        try:
            members = self._decode(text)
        except (msgspec.DecodeError, RecursionError):  # a json column takes what decoders don't
            members = {name: msgspec.Raw(raw) for name, raw in split_members(text.encode()).items()}
        if self._has_json and JSON_NULLS in members:
            names = decode_json(members.pop(JSON_NULLS), list[str])
            members |= dict.fromkeys(names, _JSON_NULL)
        return members

    def _object(self, members: Members) -> bytes:
        parts = []
        for name, start, fit in self._columns:
            raw = bytes(members.get(name, _NULL))
            parts += [start, raw if raw == _NULL else fit(raw)]
        return b"".join(parts) + b"}"


def _fit_json(fit: Fit) -> Fit:
    return lambda raw: b'{"json":null}' if raw == b"\0" else fit(raw)


def _fit_masked(raw: bytes) -> bytes:
    # The trigger writes another text where an update changed the value, so that ``changed`` can tell.
    return _MASK
