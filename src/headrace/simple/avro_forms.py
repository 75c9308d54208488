"""What bytes are that are no message in Avro, where their beginning tells: framed, compressed, or in JSON."""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import SimpleInvalid, SimpleUnsupported
from headrace.simple.faults import Shown, invalid, unsupported

_WHOLE: Final = "the whole message"
_COMPRESSED: Final = "it is compressed: large-message-handle-compression"

# A block of Snappy begins with the length of what it holds, then a literal: here one that begins as a message does.
_SNAPPY: Final = re.compile(
    rb"[\x80-\xff]{0,4}[\x01-\x7f](?:[\x04-\xec]|\xf0.|\xf4..)\x16[\x00-\x06]", re.DOTALL
)

_BEGINNINGS: Final = (
    (b"\x00", "it looks like Confluent's framing (magic byte 0, a schema's id): messages carry none"),
    (b"Obj\x01", "it is an Avro file (object container), not a message"),
    (b"\xc3\x01", "it is framed as a single object of Avro: messages are not"),
    (b"\x04\x22\x4d\x18", f"{_COMPRESSED} (LZ4)"),
    (b"\x28\xb5\x2f\xfd", "it is compressed (Zstandard)"),
    (b"\x1f\x8b", "it is compressed (gzip)"),
)


def other_form(data: bytes) -> SimpleInvalid | SimpleUnsupported | None:
    """Return the error that says what ``data`` looks like, None if that can't be told."""
    name = f"a Simple message of {len(data)} bytes"
    for beginning, why in _BEGINNINGS:
        if data.startswith(beginning):
            return unsupported(name, _WHOLE, "a bare message in Avro", why)
    if _SNAPPY.match(data):
        return unsupported(name, _WHOLE, "a bare message in Avro", f"{_COMPRESSED} (Snappy)")
    if data.startswith(b"{"):
        return invalid(name, _WHOLE, "Avro", Shown("what begins as a message in JSON does"))
    return None
