"""Dates and times of rows -> the text that MySQL prints, all digits of the fraction included.

Each function makes a reader of one column's bytes. IndexError or ValueError: the bytes are no date or time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Final

from headrace.simple.message import Timestamp

_TWO_DIGITS: Final = tuple(f"{number:02}" for number in range(100))
_MONTHS, _DAYS, _HOURS, _SIXTY = _TWO_DIGITS[:13], _TWO_DIGITS[:32], _TWO_DIGITS[:24], _TWO_DIGITS[:60]
_YEAR_MAX: Final = 9999
_DATETIME_ZERO: Final = 0x8000000000
_TIME_ZERO: Final = 0x800000
_DAY_S: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DATES_MAX: Final = 8192


def date_text(data: bytes) -> str:
    """Return ``YYYY-MM-DD`` of the three bytes of a DATE; parts of it may be zero."""
    number = int.from_bytes(data, "little")
    return _date(number >> 9, number >> 5 & 15, number & 31)


def fraction_bytes(digits: int) -> int:
    """Return how many bytes so many digits (0 to 6) of a second's fraction take."""
    return (digits + 1) >> 1


def datetime_reader(digits: int) -> Callable[[bytes], str]:
    """Return what reads DATETIME(``digits``)."""
    size = fraction_bytes(digits)
    bits, mask = 8 * size, (1 << 8 * size) - 1

    def read(data: bytes) -> str:
        number = int.from_bytes(data, "big")
        whole = (number >> bits) - _DATETIME_ZERO
        if whole < 0:
            raise ValueError
        time = whole & 0x1FFFF
        clock = (
            f"{_packed_date(whole >> 17)} {_HOURS[time >> 12]}:{_SIXTY[time >> 6 & 63]}:{_SIXTY[time & 63]}"
        )
        return clock + _fraction(number & mask, digits) if digits else clock

    return read


def timestamp_reader(digits: int) -> Callable[[bytes], Timestamp]:
    """Return what reads TIMESTAMP(``digits``), in UTC; second 0 stands for the zero date."""
    size = fraction_bytes(digits)
    bits, mask = 8 * size, (1 << 8 * size) - 1
    zero = Timestamp("UTC", "0000-00-00 00:00:00" + (f".{'0' * digits}" if digits else ""))

    def read(data: bytes) -> Timestamp:
        number = int.from_bytes(data, "big")
        if not number:
            return zero
        days, second = divmod(number >> bits, _DAY_S)
        minutes, seconds = divmod(second, 60)
        clock = f"{_calendar_date(days)} {_TWO_DIGITS[minutes // 60]}:{_TWO_DIGITS[minutes % 60]}:{_TWO_DIGITS[seconds]}"
        return Timestamp("UTC", clock + _fraction(number & mask, digits) if digits else clock)

    return read


def time_reader(digits: int) -> Callable[[bytes], str]:
    """Return what reads TIME(``digits``)."""
    size = fraction_bytes(digits)
    bits, mask = 8 * size, (1 << 8 * size) - 1
    zero = _TIME_ZERO << bits

    def read(data: bytes) -> str:
        number = int.from_bytes(data, "big") - zero
        sign = ""
        if number < 0:
            number, sign = -number, "-"
        whole = number >> bits
        clock = f"{sign}{whole >> 12 & 1023:02}:{_SIXTY[whole >> 6 & 63]}:{_SIXTY[whole & 63]}"
        return clock + _fraction(number & mask, digits) if digits else clock

    return read


def _fraction(number: int, digits: int) -> str:
    """The point and the digits. The number counts hundredths, ten-thousandths or millionths, whatever has room."""
    text = f"{number:0{digits + (digits & 1)}}"
    if len(text) > digits + (digits & 1):
        raise ValueError
    return f".{text[:digits]}"


@lru_cache(maxsize=_DATES_MAX)
def _packed_date(number: int) -> str:
    months, day = number >> 5, number & 31
    year, month = divmod(months, 13)
    return _date(year, month, day)


@lru_cache(maxsize=_DATES_MAX)
def _calendar_date(days: int) -> str:
    return date.fromordinal(_EPOCH + days).isoformat()


def _date(year: int, month: int, day: int) -> str:
    if year > _YEAR_MAX:
        raise ValueError
    return f"{year:04}-{_MONTHS[month]}-{_DAYS[day]}"
