"""A row of a JSON message -> the same row of an Avro message, column by column. Pure; workers call it for each row.

Most kinds of values are the same text in both forms and go through untouched.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.simple.faults import Misfit, Shown, invalid
from headrace.simple.kind import AsText, Kind
from headrace.simple.message import Dml, Raw, RawRow, name_of
from headrace.simple.schema import TableSchema
from headrace.simple.temporal import ZonedMoment
from headrace.simple.values import kind_of

_Column = tuple[Callable[[Raw], Raw] | None, Kind]


class AvroRows:
    """Makes the rows of one table schema into those of Avro. Make it once a schema."""

    def __init__(self, schema: TableSchema) -> None:
        self._columns: dict[str, _Column] = {
            column.name: _conversion(kind_of(column.data_type)) for column in schema.columns
        }

    def converted(self, message: Dml) -> Dml:
        """Return ``message``, read from JSON, with the raw values of Avro.

        SimpleInvalid, naming message and column, for a value that is none of its column's type, or an unknown column.
        """
        data = None if message.data is None else self._row(message, "data", message.data)
        old = None if message.old is None else self._row(message, "old", message.old)
        return msgspec.structs.replace(message, data=data, old=old, start_ts=None)

    def _row(self, message: Dml, image: str, row: RawRow) -> dict[str, Raw]:
        found: dict[str, Raw] = {}
        for name, raw in row.items():
            if raw is None:
                found[name] = None
                continue
            if name not in self._columns:
                expected = f"a column of {message.database}.{message.table} version {message.schema_version}"
                raise invalid(name_of(message), f"{image}.{name}", expected, Shown("an unknown one"))
            convert, kind = self._columns[name]
            if convert is None:
                found[name] = raw
                continue
            try:
                found[name] = convert(raw)
            except Misfit:
                raise invalid(name_of(message), f"{image}.{name}", kind.expected, raw) from None
        return found


def _conversion(kind: Kind) -> _Column:
    """Return what makes Avro's raw value of JSON's; None where they are the same."""
    if isinstance(kind, AsText | ZonedMoment):
        return None, kind
    return (lambda raw: kind.write_avro(kind.read_json(raw))), kind
