"""A column's value as it stands in an entry -> the JSON value that wal2json has for it. Pure.

wal2json writes numbers and booleans as such, bytes in hexadecimal, and everything else as PostgreSQL's text in a string; a
number that JSON has no form for is null. Each function takes the value's own JSON text and returns JSON text. What values
look like in entries: docs/formats/attached-change.md, docs/formats/simple.md.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from headrace.simple.schema import DataType

Convert = Callable[[bytes], bytes]

_encode = msgspec.json.Encoder().encode
_text = msgspec.json.Decoder(str).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
NULL: Final = b"null"
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BARE: Final = frozenset(b'-0123456789tfn"')
"""How scalars begin."""


def attached_converter(type_name: str, source_type: str) -> Convert:
    """Return what converts the values of an attached table's column of this ``type`` and ``source-type``."""
    name = type_name.partition("(")[0]
    if name == "json":
        return _document if source_type.lower() in {"json", "jsonb"} else _json_scalar
    return _BY_TYPE.get(name, _plain)


def simple_converter(data_type: DataType) -> Convert:
    """Return what converts the values of a captured table's column: raw values of the Simple Protocol, which are strings."""
    name = data_type.mysql_type
    if name in _NUMBERS:
        return _number
    if "blob" in name or name in {"binary", "varbinary"}:
        return _bytes
    if name == "timestamp":
        return _zoned
    if name == "enum":
        return _labels(data_type.elements, _label)
    if name == "set":
        return _labels(data_type.elements, _label_set)
    return _plain


def _plain(raw: bytes) -> bytes:
    return raw if raw[0] in _BARE else _unfit(raw)


def _number(raw: bytes) -> bytes:
    """Digits, in a string or not. What is no number that JSON has is null, as wal2json has it; a mask stays."""
    if raw[:1] == b"{":
        return _unfit(raw)
    digits = raw.strip(b'"')
    if _NUMBER.fullmatch(digits):
        return digits
    return NULL if digits in _NO_NUMBERS else raw


def _bytes(raw: bytes) -> bytes:
    """Base64 to hexadecimal; text that is no base64, such as a mask, stays."""
    if raw[:1] != b'"':
        return _plain(raw)
    try:
        return b'"%b"' % base64.b64decode(_text(raw), validate=True).hex().encode()
    except binascii.Error:
        return raw


def _moment(raw: bytes) -> bytes:
    """ISO 8601 to PostgreSQL's form: a blank for the T, and the offset without its minutes, which are 0."""
    if raw[:1] != b'"':
        return _plain(raw)
    return raw.replace(b"T", b" ", 1).replace(b"+00:00", b"+00", 1)


def _document(raw: bytes) -> bytes:
    """A document of a json column: its text; what stands in the place of SQL's NULL and the wrapped ones are told apart."""
    if raw == NULL:
        return NULL
    if raw[:1] == b"{":
        members = _members(raw)
        if len(members) == 1 and "json" in members:
            return _encode(bytes(members["json"]).decode())
        if len(members) == 1 and "text" in members:
            return bytes(members["text"])
    return _encode(raw.decode())


def _json_scalar(raw: bytes) -> bytes:
    """A value of a column without a type: scalars as they are, lists and objects as text."""
    if raw[0] in _BARE:
        return raw
    members = _members(raw) if raw[:1] == b"{" else {}
    return _unfit(raw) if len(members) == 1 and members.keys() <= _WRAPPED.keys() else _encode(raw.decode())


def _unfit(raw: bytes) -> bytes:
    """A value that does not fit its column's type, or is in an object that names its kind: what is in it."""
    members = _members(raw) if raw[:1] == b"{" else {}
    if len(members) == 1:
        ((kind, inner),) = members.items()
        if kind in _WRAPPED:
            return _WRAPPED[kind](bytes(inner))
    return _encode(raw.decode())


def _zoned(raw: bytes) -> bytes:
    """A TIMESTAMP's wall time, in the zone that its message names."""
    if raw[:1] != b"{":
        return raw
    return bytes(_members(raw).get("value", msgspec.Raw(NULL)))


def _labels(labels: tuple[str, ...], of: Callable[[int, tuple[str, ...]], str]) -> Convert:
    def convert(raw: bytes) -> bytes:
        digits = raw.strip(b'"')
        return _encode(of(int(digits), labels)) if digits.isdigit() else raw

    return convert


def _label(number: int, labels: tuple[str, ...]) -> str:
    return labels[number - 1] if 0 < number <= len(labels) else ""


def _label_set(mask: int, labels: tuple[str, ...]) -> str:
    return ",".join(label for place, label in enumerate(labels) if mask >> place & 1)


_NO_NUMBERS: Final = frozenset({b"NaN", b"Infinity", b"-Infinity", NULL})
_NUMBERS: Final = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "bigint", "year", "bit", "float", "double", "decimal"}
)
_BY_TYPE: Final[dict[str, Convert]] = {
    "int64": _plain,
    "float64": _number,
    "decimal": _number,
    "binary": _bytes,
    "timestamp": _moment,
    "timestamp-ntz": _moment,
}
_WRAPPED: Final[dict[str, Convert]] = {
    "integer": _plain,
    "real": _number,
    "number": _number,
    "boolean": _plain,
    "text": lambda raw: NULL if raw == b'"NaN"' else raw,
    "blob": _bytes,
    "invalid-utf8": _bytes,
    "json": lambda raw: _encode(raw.decode()),
}
"""The kinds that an object with one member names (docs/formats/attached-change.md)."""


def untyped(value: Any) -> bytes:
    """Return a member of a row of which no schema is known: scalars as they are, lists and objects as text."""
    return _json_scalar(bytes(value))
