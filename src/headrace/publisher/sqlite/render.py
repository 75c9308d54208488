"""A stored row of an attached table in its canonical form (docs/formats/attached-change.md). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.publisher.attach.rendered import RenderedRow
from headrace.publisher.sqlite.spec import DATABASE, Spec
from headrace.publisher.sqlite.triggers import changed_names
from headrace.publisher.sqlite.values import fit_of, key_fit_of


class RowRenderer:
    """Renders rows of one attachment: made once, called for each row."""

    def __init__(self, spec: Spec) -> None:
        columns = spec.schema.columns
        self.table = (DATABASE, spec.schema.table)
        self._names = [column.name for column in columns]
        # A masked value is a constant text, whatever the source's type: its column says "string".
        self._fits = [fit_of(column.type) for column in columns]
        self._key = [(place, key_fit_of(columns[place].type)) for place in spec.key_places]
        self._encoder = msgspec.json.Encoder()

    def render(self, values: Sequence[Any], masks: str | None) -> RenderedRow:
        """Return the canonical form of ``values`` (the columns; then, if kept, the columns before an update).

        ``masks`` is the outbox's ``changed``: None for an insert, a delete or a copy.
        """
        width = len(self._names)
        key = [fit(values[place]) for place, fit in self._key]
        keeps_before = len(values) > width and masks is not None
        return RenderedRow(
            key=self._encoder.encode([*self.table, *key]).decode(),
            changes=self._object(values[:width]),
            changed=None if masks is None else tuple(changed_names(masks, self._names)),
            before=self._object(values[width:]) if keeps_before else None,
        )

    def _object(self, values: Sequence[Any]) -> bytes:
        members = {
            name: None if value is None else fit(value)
            for name, fit, value in zip(self._names, self._fits, values, strict=True)
        }
        return self._encoder.encode(members)
