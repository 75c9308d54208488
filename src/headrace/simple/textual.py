"""Kinds of text and bytes, and of what stands for text: labels by their number, JSON, vectors."""

from __future__ import annotations

import binascii
from typing import Any, Final

import msgspec

from headrace.simple.faults import Misfit
from headrace.simple.kind import AsNumber, AsText
from headrace.simple.message import Raw
from headrace.simple.numeric import Single
from headrace.simple.schema import DataType

_JSON: Final = msgspec.json.Decoder(msgspec.Raw)
_SINGLE: Final = Single()
_SET_LABELS_MAX: Final = 64


class Text(AsText):
    """CHAR, VARCHAR and the TEXTs: str, whatever character set the column has at its source."""

    expected = "text"

    def read(self, text: str) -> Any:
        """Return the text itself."""
        return text

    def write(self, value: Any) -> str:
        """Return the text itself."""
        if type(value) is not str:
            raise Misfit
        return value


class Binary:
    """BINARY, VARBINARY and the BLOBs: bytes; base64 with its padding in JSON."""

    expected = "bytes (in JSON: base64 with padding)"

    def read_json(self, raw: Raw) -> Any:
        """Return the bytes."""
        if type(raw) is not str:
            raise Misfit
        try:
            return binascii.a2b_base64(raw, strict_mode=True)
        except ValueError:
            raise Misfit from None

    def write_json(self, value: Any) -> Raw:
        """Return the base64."""
        return binascii.b2a_base64(self.write_avro(value), newline=False).decode("ascii")

    def read_avro(self, raw: Raw) -> Any:
        """Return the bytes."""
        return self.write_avro(raw)

    def write_avro(self, value: Any) -> bytes:
        """Return the bytes."""
        if type(value) is not bytes:
            raise Misfit
        return value


class Document(Text):
    """JSON: its text. It is not parsed into values, since numbers in it may have more digits than a float."""

    expected = "JSON text"

    def read(self, text: str) -> Any:
        """Return the text."""
        return self.write(text)

    def write(self, value: Any) -> str:
        """Return the text."""
        text = super().write(value)
        try:
            _JSON.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise Misfit from None
        return text


class InvalidLabel(str):
    """The value ``''`` that MySQL stores in an ENUM for a label it does not have: number 0, unlike a label ``''``."""

    __slots__ = ()


INVALID_LABEL: Final = InvalidLabel()


class Label(AsNumber):
    """ENUM: its label; in messages the label's number, from 1."""

    least = 0

    def __init__(self, data_type: DataType) -> None:
        self.labels = data_type.elements
        self.greatest = len(self.labels)
        self.numbers = {label: number for number, label in reversed(list(enumerate(self.labels, 1)))}
        self.expected = f"the number of one of {len(self.labels)} labels, or 0"

    def from_number(self, number: int) -> Any:
        """Return the label."""
        return self.labels[number - 1] if number else INVALID_LABEL

    def to_number(self, value: Any) -> int:
        """Return the label's number; 0 for INVALID_LABEL, and for ``''`` where it is no label."""
        if not isinstance(value, str) or (value and value not in self.numbers):
            raise Misfit
        return 0 if isinstance(value, InvalidLabel) else self.numbers.get(value, 0)


class LabelSet(AsNumber):
    """SET: a frozenset of labels; in messages a mask, in which bit 0 is the first label."""

    least = 0

    def __init__(self, data_type: DataType) -> None:
        self.labels = data_type.elements[:_SET_LABELS_MAX]
        self.greatest = (1 << len(self.labels)) - 1
        self.expected = f"the mask of a set of {len(self.labels)} labels"

    def from_number(self, number: int) -> Any:
        """Return the labels."""
        return frozenset(label for place, label in enumerate(self.labels) if number >> place & 1)

    def to_number(self, value: Any) -> int:
        """Return the mask."""
        if not isinstance(value, frozenset | set) or not value.issubset(self.labels):
            raise Misfit
        return sum(1 << place for place, label in enumerate(self.labels) if label in value)


class Vector(AsText):
    """VECTOR: a tuple of floats that single precision holds exactly."""

    def __init__(self, data_type: DataType) -> None:
        self.size = data_type.length if data_type.length > 0 else None
        self.expected = f"a vector of {self.size or 'some'} numbers, [1,2.5]"

    def read(self, text: str) -> Any:
        """Return the numbers."""
        if not (text.startswith("[") and text.endswith("]")):
            raise Misfit
        inner = text[1:-1]
        return self._sized(
            tuple(_SINGLE.read_json(part.strip(" ")) for part in inner.split(",")) if inner else ()
        )

    def write(self, value: Any) -> str:
        """Return the text."""
        if type(value) is not tuple:
            raise Misfit
        return f"[{','.join(str(_SINGLE.write_json(number)) for number in self._sized(value))}]"

    def _sized(self, numbers: tuple[float, ...]) -> tuple[float, ...]:
        if self.size is not None and len(numbers) != self.size:
            raise Misfit
        return numbers
