"""Lists of Python values of one kind -> Arrow arrays, null where a value is None. Pure; called where rows are typed.

``pa.array`` would do the same, and import pandas at its first call: a second of each worker's start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_DAY_ONE: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # of times without a zone
_EPOCH_UTC: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_EXACT: Final = Context(prec=80)  # Decimal's own context would round to 28 digits


def array_of(values: Sequence[Any], kind: Any) -> Any:
    """Return an Arrow array of the type ``kind``: one of those that columns of tables have.

    Values are of the type's own Python kind: int, float, bool, str, bytes, date, datetime (with a zone exactly where the
    type has one), or Decimal with the type's scale. Dates and datetimes may also be the number that the type holds, days or
    microseconds. UnicodeEncodeError for text that has no UTF-8 form.
    """
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
