"""SQLite's declared types as the schema entry's words, and its values as JSON (docs/formats/attached-change.md). Pure."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

Fit = Callable[[Any], Any]


class InvalidText:
    """A TEXT value whose bytes are no UTF-8: carried as they are."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def decode_text(data: bytes) -> str | InvalidText:
    """Return a TEXT value as text; SQLite does not check what applications store."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return InvalidText(data)


def column_type(declared: str) -> str:
    """Return the word for a column declared ``declared``, by SQLite's own affinity rules.

    What may hold anything (no type, ANY, and all of NUMERIC affinity: DECIMAL, DATE, DATETIME ...) is ``json``: a declared
    decimal or date that nothing enforces is no type to rely on.
    """
    text = declared.upper()
    if text in ("BOOL", "BOOLEAN"):
        return "boolean"
    if "INT" in text:
        # FLOATING POINT has INTEGER affinity by the letters of "POINT", and holds fractions.
        return "json" if "POINT" in text else "int64"
    if any(part in text for part in ("CHAR", "CLOB", "TEXT")):
        return "string"
    if "BLOB" in text:
        return "binary"
    if any(part in text for part in ("REAL", "FLOA", "DOUB")):
        return "float64"
    return "json"


def unfit(value: Any) -> Any:
    """Return ``value`` as an object naming its storage class: how a value that its column's type does not fit is carried."""
    if isinstance(value, bytes):
        return {"blob": b64encode(value).decode()}
    if isinstance(value, InvalidText):
        return {"invalid-utf8": b64encode(value.data).decode()}
    if isinstance(value, float):
        return {"real": _real(value)}
    return {"text": value} if isinstance(value, str) else {"integer": value}


def _real(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "Infinity" if value > 0 else "-Infinity"  # SQLite stores NaN as NULL


def _int64(value: Any) -> Any:
    return value if isinstance(value, int) else unfit(value)


def _float64(value: Any) -> Any:
    return _real(value) if isinstance(value, float) else unfit(value)


def _boolean(value: Any) -> Any:
    return value == 1 if isinstance(value, int) and value in (0, 1) else unfit(value)


def _string(value: Any) -> Any:
    return value if isinstance(value, str) else unfit(value)


def _binary(value: Any) -> Any:
    return b64encode(value).decode() if isinstance(value, bytes) else unfit(value)


def _json(value: Any) -> Any:
    if isinstance(value, int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return unfit(value)


_FITS: Final[dict[str, Fit]] = {
    "int64": _int64,
    "float64": _float64,
    "boolean": _boolean,
    "string": _string,
    "binary": _binary,
    "json": _json,
}


def fit_of(column_type: str) -> Fit:
    """Return the function from a value that is not NULL to what stands in JSON for a column of this type."""
    return _FITS[column_type]


def key_fit_of(column_type: str) -> Fit:
    """Return the same for a key column, where values that SQLite takes for equal must become equal text.

    ``json`` and ``binary`` columns may store both 1 and 1.0, which are one key to SQLite: an integral REAL within 64 bits is
    taken as an integer there. (All other columns store the two alike, by their affinity.)
    """
    fit = _FITS[column_type]
    if column_type not in ("json", "binary"):
        return fit
    return lambda value: fit(int(value) if _is_integral(value) else value)


def _is_integral(value: Any) -> bool:
    return isinstance(value, float) and value.is_integer() and -(2.0**63) <= value < 2.0**63
