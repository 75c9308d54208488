"""JSON into typed values, from any thread.

msgspec works out how to read a type when it is first asked for it. Two threads that ask for one type at once can end the
whole process (a segmentation fault, seen where a pool of threads read manifests): so here one thread at a time asks.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")

_building: Final = Lock()
_decoders: Final[dict[Any, msgspec.json.Decoder[Any]]] = {}


def decode_json(data: bytes | bytearray | memoryview | str, kind: type[T]) -> T:
    """Return the value of JSON text; msgspec.MsgspecError if it is none, or none of this type."""
    decoder = _decoders.get(kind)
    if decoder is None:
        with _building:
            decoder = _decoders.get(kind) or msgspec.json.Decoder(kind)
            _decoders[kind] = decoder
    value: T = decoder.decode(data)
    return value
