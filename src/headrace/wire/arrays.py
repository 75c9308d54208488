"""Python values -> Arrow arrays, NumPy arrays -> Arrow's, and back. Called wherever entries and rows become columns.

Arrow's own ways (``pa.array``, ``pa.scalar``, ``to_numpy``, ``from_pylist``, a plain value among what ``pyarrow.compute`` is
given) would do the same, and import pandas at their first call: half a second and 30 MB of each agent, client and worker.
A house rule keeps them out. Needs numpy and pyarrow, which the core does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.wire.walk import Flags, Ints

_DAY_ONE: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # of times without a zone
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_TEXT: Final = pa.string()
_EXACT: Final = Context(prec=80)  # Decimal's own context would round to 28 digits


def array_of(values: Sequence[Any], kind: Any) -> Any:
    """Return an Arrow array of the type ``kind``: one of those that columns of tables have.

    Values are of the type's own Python kind: int, float, bool, str, bytes, date, datetime (with a zone exactly where the
    type has one), Decimal with the type's scale, or a sequence of texts for a list of them. Dates and datetimes may also be
    the number that the type holds, days or microseconds. UnicodeEncodeError for text that has no UTF-8 form.
    """
    if pa.types.is_list(kind):
        return _lists(values, kind)
    if pa.types.is_string(kind):
        return _sized([None if value is None else value.encode() for value in values], kind)
    if pa.types.is_binary(kind):
        return _sized(values, kind)
    if pa.types.is_boolean(kind):
        return _fixed(
            values, kind, lambda present: np.packbits(np.array(present, np.bool_), bitorder="little")
        )
    if pa.types.is_decimal(kind):
        return _fixed(values, kind, lambda present: _decimals(present, kind.scale), Decimal(0))
    if pa.types.is_timestamp(kind):
        return _fixed(values, kind, _microseconds)
    if pa.types.is_date32(kind):
        return _fixed(values, kind, _days)
    return _fixed(values, kind, lambda present: np.array(present, kind.to_pandas_dtype()))


def scalar_of(value: Any, kind: Any = _TEXT) -> Any:
    """Return what ``pyarrow.compute`` takes as one value, of text unless another kind is given."""
    return array_of([value], kind)[0]


def batch_of_rows(rows: Sequence[Mapping[str, Any]], schema: Any) -> Any:
    """Return a record batch of rows, each of which has a value, or None, for every column of ``schema``."""
    columns = [array_of([row[field.name] for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def arrow_ints(values: Ints, valid: Flags | None = None) -> Any:
    """Return an Arrow int64 array over ``values``, null where ``valid`` is false; nothing is copied."""
    values = np.ascontiguousarray(values, np.int64)
    nulls = 0 if valid is None else int(len(values) - valid.sum())
    return pa.Array.from_buffers(
        pa.int64(), len(values), [None if valid is None else bits(valid), pa.py_buffer(values)], nulls
    )


def arrow_flags(values: Flags) -> Any:
    """Return an Arrow boolean array of ``values``."""
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits(values)])


def numpy_ints(column: Any) -> Ints:
    """Return an Arrow array of int64 as NumPy has it, nulls as whatever stands there; nothing is copied."""
    return np.frombuffer(column.buffers()[1], np.int64)[column.offset : column.offset + len(column)]


def numpy_flags(column: Any) -> Flags:
    """Return an Arrow array of booleans, which has no nulls, as NumPy has it."""
    bits = np.unpackbits(np.frombuffer(column.buffers()[1], np.uint8), bitorder="little")
    return bits[column.offset : column.offset + len(column)].view(np.bool_)


def bits(values: Flags) -> Any:
    """Return flags as the bits of an Arrow buffer."""
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _lists(values: Sequence[Sequence[str] | None], kind: Any) -> Any:
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value or ()) for value in values], out=offsets[1:])
    texts = array_of([text for value in values for text in value or ()], kind.value_type)
    return pa.Array.from_buffers(
        kind, len(values), [_validity(values), pa.py_buffer(offsets)], children=[texts]
    )


def _sized(values: Sequence[bytes | None], kind: Any) -> Any:
    sizes = np.fromiter((len(value) if value is not None else 0 for value in values), np.int64, len(values))
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    data = b"".join([value for value in values if value is not None])
    buffers = [_validity(values), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, len(values), buffers)


def _fixed(values: Sequence[Any], kind: Any, encode: Callable[[list[Any]], Any], filler: Any = 0) -> Any:
    present = [filler if value is None else value for value in values]
    return pa.Array.from_buffers(kind, len(values), [_validity(values), pa.py_buffer(encode(present))])


def _validity(values: Sequence[Any]) -> Any:
    if None not in values:
        return None
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return pa.py_buffer(np.packbits(present, bitorder="little"))


def _days(values: list[date | int]) -> NDArray[np.int32]:
    days = (value if isinstance(value, int) else value.toordinal() - _DAY_ONE for value in values)
    return np.fromiter(days, np.int32, len(values))


def _microseconds(values: list[datetime | int]) -> NDArray[np.int64]:
    micros = (
        value
        if isinstance(value, int)
        # A time difference, unlike a datetime, has room for the first and last hours of the calendar in other zones.
        else (value - (_EPOCH if value.tzinfo is None else _EPOCH_UTC)) // _MICROSECOND
        for value in values
    )
    return np.fromiter(micros, np.int64, len(values))


def _decimals(values: list[Decimal], scale: int) -> bytes:
    return b"".join(int(value.scaleb(scale, _EXACT)).to_bytes(16, "little", signed=True) for value in values)
