"""PostgreSQL's types as the schema entry's words, and their JSON as the canonical one (docs/formats/attached-change.md).
Pure.

``row_to_json`` writes most values as the format wants them. A *fit* gets one value's JSON as bytes and returns what stands
in the entry: mostly the same bytes. None is ever given ``null``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import Error, unhexlify
from collections.abc import Callable
from typing import Final

import msgspec

from headrace.publisher.postgres.catalogue import SourceColumn
from headrace.runtime.typed_json import decode_json

Fit = Callable[[bytes], bytes]

DEPTH_MAX: Final = 500
"""Most lists and objects inside one another in a value: decoders end with the stack, and the server's with an error."""

_WORDS: Final = {
    "int2": "int64",
    "int4": "int64",
    "int8": "int64",
    "float4": "float64",
    "float8": "float64",
    "bool": "boolean",
    "bytea": "binary",
    "date": "date",
    "time": "time",
    "timestamp": "timestamp-ntz",
    "timestamptz": "timestamp",
    "json": "json",
    "jsonb": "json",
}
_NUMERIC_HEADER: Final = 4
"""A numeric's modifier is (precision << 16 | scale) + 4; the scale has 11 bits and a sign."""

_INTEGER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_DIGITS: Final = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_DATE: Final = re.compile(rb'"(?:[0-9]{4,}-[0-9]{2}-[0-9]{2}(?: BC)?|-?infinity)"')
_TIME: Final = re.compile(rb'"[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"')
_MOMENT: Final = rb"[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?"
_TIMESTAMP: Final = re.compile(rb'"(?:' + _MOMENT + rb'\+00:00(?: BC)?|-?infinity)"')
_TIMESTAMP_NTZ: Final = re.compile(rb'"(?:' + _MOMENT + rb'(?: BC)?|-?infinity)"')
_NO_NUMBERS: Final = frozenset([b'"NaN"', b'"Infinity"', b'"-Infinity"'])
_ONE_MEMBER: Final = re.compile(rb'\{\s*"(?:json|text|[^"]*\\u[^"]*)"\s*:')
_SURROGATE_PAIR: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}:,]|[^\s"\[\]{}:,]+')
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


def column_type(column: SourceColumn) -> str:
    """Return the word for a column's type: what JSON writes as text, and no other word means, is ``string``."""
    if column.kind != "base":
        return "json" if column.kind == "json" else "string"
    if column.base == "numeric":
        return _numeric_word(column.typmod)
    return _WORDS.get(column.base, "string")


def _numeric_word(typmod: int) -> str:
    if typmod < _NUMERIC_HEADER:
        return "decimal"
    precision, scale = (typmod - _NUMERIC_HEADER) >> 16 & 0xFFFF, (typmod - _NUMERIC_HEADER) & 0x7FF
    return f"decimal({precision},{scale})" if 1 <= precision <= 38 and scale <= precision else "decimal"


def fit_of(word: str) -> Fit:
    """Return the function from a value's JSON to what stands in an entry for a column of this type."""
    return _fixed_decimal if word.startswith("decimal(") else _FITS[word]


def unfit(raw: bytes) -> bytes:
    """Return a value as an object naming its kind: how a value that its column's type does not fit is carried."""
    if raw[:1] == b'"':
        kind = b"text"
    elif raw in (b"true", b"false"):
        kind = b"boolean"
    elif _INTEGER.fullmatch(raw) and _is_int64(raw):
        kind = b"integer"
    elif raw[:1] in b"{[":
        return b'{"json":' + _json(raw) + b"}"
    else:
        kind, raw = b"number", b'"' + raw + b'"'
    return b'{"' + kind + b'":' + raw + b"}"


def split_members(text: bytes) -> dict[str, bytes]:
    """Return the members of a row's JSON, whatever stands in them: for rows that no decoder takes."""
    members: dict[str, bytes] = {}
    depth, name, start = 0, None, 0
    for found in _TOKEN.finditer(text):
        token = found[0]
        if depth == 1 and name is None and token[:1] == b'"':
            name = decode_json(token, str)
        elif depth == 1 and token == b":":
            start = found.end()
        elif depth == 1 and token in (b",", b"}") and name is not None:
            members[name] = text[start : found.start()].strip()
            name = None
        depth += (token in (b"{", b"[")) - (token in (b"}", b"]"))
    return members


def _is_int64(raw: bytes) -> bool:
    return len(raw) <= 18 or -(1 << 63) <= int(raw) < 1 << 63


def _int64(raw: bytes) -> bytes:
    if raw.isdigit() and len(raw) <= 18:
        return raw
    return raw if _INTEGER.fullmatch(raw) and _is_int64(raw) else unfit(raw)


def _float64(raw: bytes) -> bytes:
    if raw[:1] in b'"{[tf':
        return raw if raw in _NO_NUMBERS else unfit(raw)
    return raw if b"." in raw or b"e" in raw else raw + b".0"


def _boolean(raw: bytes) -> bytes:
    return raw if raw in (b"true", b"false") else unfit(raw)


def _string(raw: bytes) -> bytes:
    return raw if raw[:1] == b'"' else unfit(raw)


def _decimal(raw: bytes) -> bytes:
    if _DIGITS.fullmatch(raw):
        return b'"' + raw + b'"'
    return raw if raw in _NO_NUMBERS else unfit(raw)


def _fixed_decimal(raw: bytes) -> bytes:
    return b'"' + raw + b'"' if _DIGITS.fullmatch(raw) else unfit(raw)


def _binary(raw: bytes) -> bytes:
    if raw[:4] != b'"\\\\x':
        return unfit(raw)
    try:
        return b'"' + b64encode(unhexlify(raw[4:-1])) + b'"'
    except Error:
        return unfit(raw)


def _matching(form: re.Pattern[bytes]) -> Fit:
    return lambda raw: raw if form.fullmatch(raw) else unfit(raw)


def _json(raw: bytes) -> bytes:
    """A JSON value as it is; wrapped where it could be taken for a wrapped one, as text where no feed can carry it."""
    if not _is_carried(raw):
        return b'{"text":' + msgspec.json.encode(raw.decode()) + b"}"
    if raw[:1] == b"{" and _ONE_MEMBER.match(raw):
        members = _MEMBERS.decode(raw)
        if len(members) == 1 and not members.keys().isdisjoint(("json", "text")):
            return b'{"json":' + raw + b"}"
    return raw


def _is_carried(raw: bytes) -> bool:
    if b"\\u" in raw and _SURROGATE.search(_SURROGATE_PAIR.sub(b" ", raw.replace(b"\\\\", b" "))):
        return False
    if raw.count(b"[") + raw.count(b"{") <= DEPTH_MAX:
        return True
    depth = 0
    for found in _TOKEN.finditer(raw):
        depth += (found[0] in (b"{", b"[")) - (found[0] in (b"}", b"]"))
        if depth > DEPTH_MAX:
            return False
    return True


_FITS: Final[dict[str, Fit]] = {
    "int64": _int64,
    "float64": _float64,
    "boolean": _boolean,
    "string": _string,
    "binary": _binary,
    "json": _json,
    "decimal": _decimal,
    "date": _matching(_DATE),
    "time": _matching(_TIME),
    "timestamp": _matching(_TIMESTAMP),
    "timestamp-ntz": _matching(_TIMESTAMP_NTZ),
}
