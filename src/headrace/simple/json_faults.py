"""What is wrong with bytes that are no JSON message: which message, which field, what was expected there."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.faults import Shown, invalid, show, unsupported
from headrace.simple.message import MessageType

WHOLE: Final = "the whole message"
"""What errors name as the field where no field can be told."""

_LZ4_FRAME: Final = b"\x04\x22\x4d\x18"
_AVRO_START: Final = b"\x16"
_SNAPPY_LITERAL: Final = re.compile(rb"[^\s{\[].{1,7}\{\"version\":", re.DOTALL)
"""A raw Snappy block: its size, a tag, and the beginning of the message as it is."""
_GLIMPSE_BYTES_MAX: Final = 4096
_MEMBER: Final = re.compile(rb'"(type|database|table|commitTs)":(?:"([^"\\]{1,64})"|(\d{1,20})\b)')
_EXPECTED: Final = re.compile(r"Expected `(?P<expected>[^`]+)`, got `(?P<found>[^`]+)`")
_MISSING: Final = re.compile(r"Object missing required field `(?P<field>[^`]+)`")
_PLACE: Final = re.compile(r" - at `\$\.?(?P<place>[^`]*)`$")
_KINDS: Final = {
    "array": "an array",
    "array | null": "an array or null",
    "bool": "a boolean",
    "int": "an integer",
    "int | null": "an integer or null",
    "int | str | null": "a string, an integer or null",
    "object": "an object",
    "object | null": "an object or null",
    "str": "a string",
}
"""msgspec's words for types, as this room says them."""

RAW_EXPECTED: Final = "a string, null, or an object of the strings location and value"


def glimpse(data: bytes) -> str:
    """Return a name for the message in ``data`` from what can be read of its beginning, whole or not."""
    found: dict[bytes, str] = {}
    for member, text, number in _MEMBER.findall(data[:_GLIMPSE_BYTES_MAX]):
        found.setdefault(member, (text or number).decode("utf-8", "replace"))
    kind = found.get(b"type")
    if kind is None:
        return f"a Simple message of {len(data)} bytes"
    table = (
        f" of {found.get(b'database', '?')}.{found[b'table']}"
        if b"table" in found and b"database" in found
        else ""
    )
    at = f" at commitTs {found[b'commitTs']}" if b"commitTs" in found else ""
    return f"{kind}{table}{at}"


def fault_of(data: bytes, error: Exception, name: str = "") -> SimpleInvalid | SimpleUnsupported:
    """Return the error for ``data``, which the decoder refused with ``error``. ``name``: what it is, if no message."""
    name = name or glimpse(data)
    if (not_json := _other_form(data)) is not None:
        return not_json
    if isinstance(error, RecursionError):
        return invalid(name, WHOLE, "one JSON object, a few levels deep", Shown("one nested without end"))
    if isinstance(error, UnicodeDecodeError):
        return invalid(name, WHOLE, "UTF-8", Shown(f"the byte {error.object[error.start]:#04x}"))
    if isinstance(error, msgspec.ValidationError):
        return _misfit(name, data, str(error))
    why = str(error)
    return invalid(name, WHOLE, "one whole JSON object", Shown(f"{len(data)} bytes that are none: {why}"))


def _other_form(data: bytes) -> SimpleInvalid | SimpleUnsupported | None:
    """Messages that are none of JSON, but can be told by their first bytes."""
    name = f"a Simple message of {len(data)} bytes"
    if data.startswith(_LZ4_FRAME) or _SNAPPY_LITERAL.match(data):
        return unsupported(name, WHOLE, "JSON", "it is compressed: large-message-handle-compression")
    if data.startswith(_AVRO_START):
        return invalid(name, WHOLE, "JSON", Shown("what begins as a message in Avro does"))
    return None


def _misfit(name: str, data: bytes, said: str) -> SimpleInvalid:
    """JSON whose members have other types than a message's; ``said`` is msgspec's word for the first of them."""
    at = _PLACE.search(said)
    place = at["place"] if at else ""
    if place.startswith(("data[...]", "old[...]")):
        return _misfit_in_row(name, data, place.partition("[")[0])
    if missing := _MISSING.match(said):
        field = f"{place}.{missing['field']}" if place else missing["field"]
        return invalid(name, field, "present", Shown("absent"))
    if place == "type":
        return invalid(name, "type", f"one of {', '.join(MessageType)}", Shown(said.partition(" - ")[0]))
    if expected := _EXPECTED.match(said):
        kind = _KINDS.get(expected["expected"], expected["expected"])
        got = _KINDS.get(expected["found"], expected["found"])
        return invalid(name, place or WHOLE, kind, Shown(got))
    return invalid(name, place or WHOLE, "what the protocol says", Shown(said.partition(" - ")[0]))


def _misfit_in_row(name: str, data: bytes, field: str) -> SimpleInvalid:
    try:
        row: Any = msgspec.json.decode(data)[field]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        row = None
    # Of bytes that go on as no JSON, or name a member twice, the column can't be told.
    for column, value in row.items() if isinstance(row, dict) else ():
        if isinstance(value, dict):
            texts = (value.get("location"), value.get("value"))
            if all(isinstance(text, str) for text in texts):
                continue
        elif value is None or isinstance(value, str):
            continue
        shown = show(value) if not isinstance(value, dict | list) else f"an {_KIND_OF[type(value)]}"
        return invalid(name, f"{field}.{column}", RAW_EXPECTED, Shown(shown))
    return invalid(name, field, f"an object of columns, each {RAW_EXPECTED}", Shown("one with another value"))


_KIND_OF: Final[dict[type, str]] = {dict: "object of other members", list: "array"}
