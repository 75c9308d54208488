"""Rows of a rows event -> raw values, by a decoder that is compiled for one shape of a table.

Of a shape it makes the source of two functions, one for rows without NULL: columns of fixed size that follow each other are
read at once, and each value by the cheapest expression. That is two to three times as fast as a call for each column.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NoReturn

from headrace.capture.binlog.columns import Conversion, RawValue, Shape, Unreadable, conversion_of, shape_of
from headrace.capture.binlog.event import RowsChanged, RowsKind, TableMap
from headrace.capture.binlog.fields import Malformed
from headrace.capture.binlog.network import Form
from headrace.errors import BinlogInvalid, BinlogUnsupported, TableStopped

Values = tuple[RawValue, ...]
"""One image of a row: a value for each of the table's columns, in their order; None for NULL and for one that is skipped."""

Row = tuple[Values | None, Values | None]
"""A row before and after its change; None where there is none."""

_Image = Callable[[bytes, int], tuple[Values, int]]
_FAULTS: Final = (ValueError, IndexError, Malformed, struct.error)
"""What reading bytes that are no rows of this table ends with; UnicodeDecodeError is a ValueError."""


class RowDecoder:
    """Reads the rows of tables of one shape.

    ``forms``: place of a column, from 0 -> what its bytes stand for (``inet4``, ``inet6``, ``uuid``). ``skip``: places of
    columns whose values nobody wants; they may be of a type that can't be read. TableStopped, naming table and column: its
    values can't be told.
    """

    def __init__(
        self, table: TableMap, forms: Mapping[int, str] | None = None, skip: Collection[int] = ()
    ) -> None:
        self.table = table
        self._count = len(table.columns)
        self._null_bytes = (self._count + 7) // 8
        self._all = (1 << self._count) - 1
        self._shapes: list[Shape] = []
        self._conversions: list[Conversion | None] = []
        for place, column in enumerate(table.columns):
            try:
                self._shapes.append(shape_of(column))
                form = Form(forms[place]) if forms and place in forms else None
                self._conversions.append(None if place in skip else conversion_of(column, form))
            except (Unreadable, ValueError) as error:
                raise self._stopped(column.name, str(error) or "its type makes no sense") from None
        never_null = sum(1 << place for place, column in enumerate(table.columns) if not column.nullable)
        self._image = _compiled(self._shapes, self._conversions, never_null)

    def rows(self, event: RowsChanged) -> list[Row]:
        """Return the rows of ``event``, in its order.

        BinlogInvalid: its bytes are no rows of this table. BinlogUnsupported: it has not all columns
        (``binlog_row_image``). TableStopped, naming the column: a value can't be told.
        """
        self._check(event)
        data, at, end, image = event.data, 0, len(event.data), self._image
        rows: list[Row] = []
        try:
            match event.kind:
                case RowsKind.INSERT:
                    while at < end:
                        values, at = image(data, at)
                        rows.append((None, values))
                case RowsKind.DELETE:
                    while at < end:
                        values, at = image(data, at)
                        rows.append((values, None))
                case RowsKind.UPDATE:
                    while at < end:
                        before, at = image(data, at)
                        after, at = image(data, at)
                        rows.append((before, after))
        except _FAULTS:
            self._explain(event)
        if at != end:
            self._explain(event)
        return rows

    def _check(self, event: RowsChanged) -> None:
        if event.column_count != self._count:
            raise BinlogInvalid(
                f"rows of {self.table.name} before offset {event.end} have {event.column_count} columns, not {self._count}"
            )
        for bits in (event.before, event.after):
            if bits is not None and int.from_bytes(bits, "little") & self._all != self._all:
                raise BinlogUnsupported(
                    f"rows of {self.table.name} before offset {event.end} have not all columns",
                    hint="SET GLOBAL binlog_row_image = FULL at the server (and in its configuration), then begin a new "
                    "feed with a new snapshot.",
                )

    def _explain(self, event: RowsChanged) -> NoReturn:
        """Go through the columns one by one until the one that can't be read, and raise what it is."""
        data, at, end = event.data, 0, len(event.data)
        where = f"rows of {self.table.name} before offset {event.end}"
        while at < end:
            nulls = int.from_bytes(data[at : at + self._null_bytes], "little")
            at += self._null_bytes
            for place, column in enumerate(self.table.columns):
                if nulls >> place & 1:
                    if not column.nullable:
                        raise BinlogInvalid(f"{where}: {column.name} is NULL, which it can't be")
                    continue
                try:
                    value, at = _one(self._shapes[place], data, at)
                except _FAULTS:
                    raise BinlogInvalid(f"{where}: {column.name} goes beyond the event's end") from None
                if at > end:
                    raise BinlogInvalid(f"{where}: {column.name} goes beyond the event's end")
                conversion = self._conversions[place]
                try:
                    if conversion is not None:
                        conversion.function(value)
                except _FAULTS as error:
                    raise self._stopped(column.name, f"a value in {where} can't be told: {error}") from None
        raise BinlogInvalid(f"{where}: they end within a row")

    def _stopped(self, column: str, why: str) -> TableStopped:
        return TableStopped(f"{self.table.name}, column {column}: {why}")


def _one(shape: Shape, data: bytes, at: int) -> tuple[Any, int]:
    if shape.layout:
        layout = struct.Struct(f"<{shape.layout}")
        return layout.unpack_from(data, at)[0], at + layout.size
    start = at + shape.prefix
    end = start + int.from_bytes(data[at:start], "little")
    if start > len(data):
        raise IndexError
    return data[start:end], end


def _compiled(shapes: list[Shape], conversions: list[Conversion | None], never_null: int) -> _Image:
    """Return the function that reads one image: (data, offset) -> (values, offset behind it).

    ``never_null``: bits of the columns that are NOT NULL.
    """
    names: dict[str, Any] = {}
    count = len(shapes)
    size = (count + 7) // 8
    bits = "data[at]" if size == 1 else f'int.from_bytes(data[at:at + {size}], "little")'
    full = "\n".join(f"    {line}" for line in _without_nulls(shapes, conversions, names))
    sparse = "\n".join(f"    {line}" for line in _with_nulls(shapes, conversions, names))
    source = (
        f"def sparse(data, at, nulls):\n"
        f"    if nulls & {never_null}:\n"
        f"        raise ValueError\n"
        f"{sparse}\n"
        f"def image(data, at):\n"
        f"    nulls = {bits} & {(1 << count) - 1}\n"
        f"    at += {size}\n"
        f"    if nulls:\n"
        f"        return sparse(data, at, nulls)\n"
        f"{full}\n"
    )
    exec(compile(source, "<rows of a table>", "exec"), names)  # noqa: S102 - made of numbers and of expressions above
    image: _Image = names["image"]
    return image


def _without_nulls(
    shapes: list[Shape], conversions: list[Conversion | None], names: dict[str, Any]
) -> list[str]:
    """Columns of fixed size that stand together are one read; what is skipped of them are pad bytes."""
    lines: list[str] = []
    place = 0
    while place < len(shapes):
        start = place
        while place < len(shapes) and shapes[place].layout:
            place += 1
        if place == start:
            lines += _prefixed(shapes[place].prefix, f"v{place}" if conversions[place] else "")
            place += 1
            continue
        lines += _fixed(range(start, place), shapes, conversions, names)
    return [*lines, f"return ({_values(shapes, conversions, names)},), at"]


def _with_nulls(
    shapes: list[Shape], conversions: list[Conversion | None], names: dict[str, Any]
) -> list[str]:
    lines: list[str] = []
    for place, (shape, conversion) in enumerate(zip(shapes, conversions, strict=True)):
        name = f"v{place}"
        if shape.layout:
            read = _fixed(range(place, place + 1), shapes, conversions, names)
        else:
            read = _prefixed(shape.prefix, name if conversion else "")
        value = [f"{name} = {_expression(place, conversion, names)}"] if conversion else []
        lines += [
            f"if nulls & {1 << place}:",
            f"    {name} = None",
            "else:",
            *(f"    {line}" for line in (*read, *value)),
        ]
    found = ", ".join(f"v{place}" if conversions[place] else "None" for place in range(len(shapes)))
    return [*lines, f"return ({found},), at"]


def _fixed(
    places: range, shapes: list[Shape], conversions: list[Conversion | None], names: dict[str, Any]
) -> list[str]:
    layout = struct.Struct("<" + "".join(_padded(shapes[place], conversions[place]) for place in places))
    wanted = [f"v{place}" for place in places if conversions[place]]
    lines = [f"at += {layout.size}"]
    if wanted:
        reader = f"read_{places.start}_{places.stop}"
        names[reader] = layout.unpack_from
        lines.insert(0, f"{', '.join(wanted)}, = {reader}(data, at)")
    return lines


def _padded(shape: Shape, conversion: Conversion | None) -> str:
    return shape.layout if conversion else f"{struct.calcsize(f'<{shape.layout}')}x"


def _prefixed(prefix: int, name: str) -> list[str]:
    length = " | ".join(f"data[at + {byte}] << {8 * byte}" if byte else "data[at]" for byte in range(prefix))
    lines = [f"end = at + {prefix} + ({length})"]
    if name:
        lines.append(f"{name} = data[at + {prefix}:end]")
    return [*lines, "at = end"]


def _values(shapes: list[Shape], conversions: list[Conversion | None], names: dict[str, Any]) -> str:
    return ", ".join(
        _expression(place, conversion, names) if conversion else "None"
        for place, conversion in enumerate(conversions)
    )


def _expression(place: int, conversion: Conversion, names: dict[str, Any]) -> str:
    if conversion.inline:
        return f"({conversion.inline.replace('$', f'v{place}')})"
    names[f"text_{place}"] = conversion.function
    return f"text_{place}(v{place})"
