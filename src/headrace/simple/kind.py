"""What a kind of column values can do: the four ways between what an encoding has and Python."""

from __future__ import annotations

from typing import Any, Final, Protocol

from headrace.simple.faults import Misfit
from headrace.simple.message import Raw
from headrace.simple.schema import DataType


class Kind(Protocol):
    """Conversions of one column's values, none of them null. Each raises Misfit for what does not fit."""

    expected: str
    """What a value has to be, in words: it stands in errors behind "must be"."""

    def read_json(self, raw: Raw) -> Any:
        """Return the Python value of a raw JSON value."""

    def write_json(self, value: Any) -> Raw:
        """Return the raw JSON value of a Python value."""

    def read_avro(self, raw: Raw) -> Any:
        """Return the Python value of a raw Avro value."""

    def write_avro(self, value: Any) -> Raw:
        """Return the raw Avro value of a Python value."""


class Unreadable:
    """The kind of columns of a type that no reader knows: nothing but null fits."""

    expected = "of a type that is read"

    def __init__(self, data_type: DataType) -> None:
        self.data_type = data_type

    def read_json(self, raw: Raw) -> Any:
        """Raise Misfit."""
        raise Misfit

    write_json = read_avro = write_avro = read_json


class AsText:
    """A kind whose raw values are the same text in both encodings: ``read`` and ``write`` make it a whole one."""

    def read(self, text: str) -> Any:
        """Return the Python value of the text."""
        raise NotImplementedError

    def write(self, value: Any) -> str:
        """Return the text of a Python value."""
        raise NotImplementedError

    def read_json(self, raw: Raw) -> Any:
        """Return the Python value of a raw JSON value."""
        if type(raw) is not str:
            raise Misfit
        return self.read(raw)

    read_avro = read_json

    def write_json(self, value: Any) -> Raw:
        """Return the raw JSON value of a Python value."""
        return self.write(value)

    write_avro = write_json


class AsNumber:
    """A kind whose raw values are a natural number or an integer: digits in JSON, a long in Avro."""

    least: int
    greatest: int

    def from_number(self, number: int) -> Any:
        """Return the Python value of a number within the bounds."""
        return number

    def to_number(self, value: Any) -> int:
        """Return the number of a Python value; its bounds are looked at afterwards."""
        if type(value) is not int:
            raise Misfit
        return value

    def read_json(self, raw: Raw) -> Any:
        """Return the Python value of a raw JSON value."""
        if type(raw) is not str:
            raise Misfit
        return self.from_number(self._bounded(digits(raw)))

    def write_json(self, value: Any) -> Raw:
        """Return the raw JSON value of a Python value."""
        return str(self._bounded(self.to_number(value)))

    def read_avro(self, raw: Raw) -> Any:
        """Return the Python value of a raw Avro value. One that needs 64 bits without a sign comes wrapped."""
        if type(raw) is not int:
            raise Misfit
        if raw < 0 and self.greatest > _I64_MAX:
            raw += 1 << 64
        return self.from_number(self._bounded(raw))

    def write_avro(self, value: Any) -> Raw:
        """Return the raw Avro value of a Python value."""
        number = self._bounded(self.to_number(value))
        return number if number <= _I64_MAX else number - (1 << 64)

    def _bounded(self, number: int) -> int:
        if not self.least <= number <= self.greatest:
            raise Misfit
        return number


_I64_MAX: Final = (1 << 63) - 1
_DIGITS_MAX: Final = 20
"""Digits of the greatest number that any column holds as an integer."""


def digits(text: str) -> int:
    """Return the integer that ``text`` writes in ASCII digits, perhaps behind a minus; Misfit for anything else."""
    unsigned = text.removeprefix("-")
    if not (unsigned.isascii() and unsigned.isdigit() and len(unsigned) <= _DIGITS_MAX):
        raise Misfit
    return int(text)
