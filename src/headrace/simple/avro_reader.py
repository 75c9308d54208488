"""Reads Avro's primitives from the bytes of one message, and says which field of which message is not what it must be.

Whatever the bytes are, the cost is bounded by their number: a length or a count that goes past the end is refused before
anything is made of it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from headrace.errors import SimpleInvalid
from headrace.simple.bounds import I32_MAX, I32_MIN, U64_MAX
from headrace.simple.faults import Shown, invalid

_VARINT_BYTES_MAX: Final = 10


class Reader:
    """A place ``at`` in ``data``, and the ``name`` that errors give to the message."""

    __slots__ = ("at", "data", "name")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.name = f"a Simple message of {len(data)} bytes"

    def fault(self, field: str, expected: str, found: object) -> SimpleInvalid:
        """Return the error for ``field``; ``found`` as :func:`headrace.simple.faults.invalid` takes it."""
        return invalid(self.name, field, expected, found)

    def _end(self, field: str, expected: str) -> SimpleInvalid:
        return self.fault(field, expected, Shown(f"cut off at byte {len(self.data)}, the end of the message"))

    def long(self, field: str, expected: str = "a long") -> int:
        """Read a ``long``."""
        start = self.at
        zigzag = shift = 0
        for byte in self.data[start : start + _VARINT_BYTES_MAX]:
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                if zigzag > U64_MAX:
                    break
                self.at = start + shift // 7
                return (zigzag >> 1) ^ -(zigzag & 1)
        if len(self.data) - start < _VARINT_BYTES_MAX and zigzag <= U64_MAX:
            raise self._end(field, expected)
        raise self.fault(field, expected, Shown(f"a number of more than 64 bits at byte {start}"))

    def u64(self, field: str) -> int:
        """Read a ``long`` whose bits are a number without a sign."""
        return self.long(field, "a long with the bits of an unsigned number") & U64_MAX

    def int32(self, field: str) -> int:
        """Read an ``int``."""
        value = self.long(field, "an int")
        if not I32_MIN <= value <= I32_MAX:
            raise self.fault(field, "an int of 32 bits", value)
        return value

    def boolean(self, field: str) -> bool:
        """Read a ``boolean``."""
        if self.at >= len(self.data):
            raise self._end(field, "a boolean")
        byte = self.data[self.at]
        if byte > 1:
            raise self.fault(field, "a boolean (0 or 1)", Shown(f"the byte {byte:#04x}"))
        self.at += 1
        return byte == 1

    def choice(self, field: str, options: Sequence[str]) -> int:
        """Read the index of an enum's symbol or of a union's branch."""
        expected = f"one of {', '.join(options)}"
        index = self.long(field, expected)
        if not 0 <= index < len(options):
            raise self.fault(field, expected, Shown(f"number {index} of {len(options)}, counted from 0"))
        return index

    def present(self, field: str, kind: str) -> bool:
        """Read the branch of a union of null and ``kind``: whether it is the latter."""
        return self.choice(field, ("null", kind)) == 1

    def floating(self, field: str, form: struct.Struct, kind: str) -> float:
        """Read a ``float`` or ``double``, as ``form`` unpacks it."""
        if len(self.data) - self.at < form.size:
            raise self._end(field, f"a {kind} of {form.size} bytes")
        value: float
        (value,) = form.unpack_from(self.data, self.at)
        self.at += form.size
        return value

    def raw(self, field: str, kind: str = "bytes") -> bytes:
        """Read ``bytes``, or a ``string`` as it stands."""
        length = self.long(field, f"the length of {kind}")
        if length < 0:
            raise self.fault(field, f"{kind} of a length from 0", Shown(f"of the length {length}"))
        left = len(self.data) - self.at
        if length > left:
            raise self.fault(
                field, f"{kind} within the message", Shown(f"{length} bytes where {left} are left")
            )
        self.at += length
        return self.data[self.at - length : self.at]

    def text(self, field: str) -> str:
        """Read a ``string``."""
        raw = self.raw(field, "a string")
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            found = Shown(f"with the byte {raw[error.start]:#04x} at place {error.start}")
            raise self.fault(field, "a string in UTF-8", found) from None

    def items(self, field: str, what: str, item_bytes_min: int) -> Iterator[int]:
        """Yield 0, 1, 2… for each item of an array or map, which the caller reads before it asks for the next one.

        All blocks, those with a negative count and a size too. ``item_bytes_min`` is what the smallest item takes.
        """
        done = 0
        while count := self.long(field, f"the number of {what}"):
            end = None
            if count < 0:
                count = -count
                end = self._block_end(field)
            left = len(self.data) - self.at
            if count * item_bytes_min > left:
                found = Shown(f"{count} of them where {left} bytes are left")
                raise self.fault(field, f"a number of {what} that the message holds", found)
            yield from range(done, done + count)
            done += count
            if end is not None and self.at != end:
                found = Shown(f"one that ends at byte {end}, its {what} at byte {self.at}")
                raise self.fault(field, "a block of the size that it gives", found)

    def _block_end(self, field: str) -> int:
        size = self.long(field, "the size of a block")
        left = len(self.data) - self.at
        if not 0 <= size <= left:
            found = Shown(f"{size} bytes where {left} are left")
            raise self.fault(field, "a block within the message", found)
        return self.at + size
