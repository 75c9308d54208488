"""Dates and timestamps as the whole numbers that tables hold, also where Python's datetime ends: years BC and above 9999.

A timestamp column is an int64 of microseconds, a date column an int32 of days, since 1970-01-01 in the proleptic Gregorian
calendar; infinity is the greatest of them, -infinity the least. Texts are PostgreSQL's in JSON (docs/formats/tables.md).
Pure; called where rows are typed, folded and read back.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Final

INFINITY: Final = "infinity"
TIMESTAMP: Final = "timestamp"
TIMESTAMP_NTZ: Final = "timestamp_ntz"
DATE: Final = "date"
MOMENTS: Final = (TIMESTAMP, TIMESTAMP_NTZ, DATE)
"""The Spark types that hold such numbers."""

_INT64: Final = (1 << 63) - 1
_INT32: Final = (1 << 31) - 1
_DAY: Final = 86_400_000_000
_MICROSECOND: Final = timedelta(microseconds=1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # of texts whose zone is reckoned apart
_DAY_ONE: Final = _EPOCH.toordinal()
# The calendar repeats after as many years and days: any year is taken to one that Python knows.
_CYCLE_YEARS: Final = 400
_CYCLE_DAYS: Final = 146_097

_DATE: Final = r"([0-9]{4}|[1-9][0-9]{4,6})-([0-9]{2})-([0-9]{2})"
_CLOCK: Final = r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6})0*)?"
_DATE_TEXT: Final = re.compile(rf"{_DATE}( BC)?")
_PLAIN_TEXT: Final = re.compile(rf"{_DATE}[Tt ]{_CLOCK}( BC)?")
_ZONED_TEXT: Final = re.compile(rf"{_DATE}[Tt ]{_CLOCK}(?:[Zz]|([+-])([0-9]{{2}}):?([0-9]{{2}}))( BC)?")


def days_of(text: str) -> int:
    """Return the number of a date: ``2024-02-29``, ``5874897-12-31``, ``0044-03-15 BC``, ``infinity``, ``-infinity``.

    ValueError for anything else, and for a date that a column of dates can't hold.
    """
    if text in (INFINITY, f"-{INFINITY}"):
        return _INT32 if text == INFINITY else -_INT32 - 1
    match = _DATE_TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is no date")
    day, cycles = _near(text, match[1], match[4])
    return _within(text, _number(text, day, match[2], match[3]).days + cycles * _CYCLE_DAYS, _INT32)


def micros_of(text: str, *, zoned: bool) -> int:
    """Return the number of a timestamp, ``2024-02-29T12:00:00.5`` with or without a zone, of the years that dates have.

    ``zoned``: it must have a zone, ``Z`` or ``+HH:MM``; else it may have none. ``infinity`` and ``-infinity`` never have
    one. ValueError for anything else, for more than six decimals, and for one that a column of timestamps can't hold.
    """
    if text in (INFINITY, f"-{INFINITY}"):
        return _INT64 if text == INFINITY else -_INT64 - 1
    match = (_ZONED_TEXT if zoned else _PLAIN_TEXT).fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:80]!r} is no timestamp {'with' if zoned else 'without'} a zone")
    year, cycles = _near(text, match[1], match[match.re.groups])
    since = _number(text, year, *match.group(2, 3, 4, 5, 6), (match[7] or "").ljust(6, "0"))
    micros = since // _MICROSECOND + cycles * _CYCLE_DAYS * _DAY
    if zoned and match[8]:
        micros -= int(f"{match[8]}1") * _offset(text, match[9], match[10])
    return _within(text, micros, _INT64)


def _near(text: str, year: str, era: str | None) -> tuple[int, int]:
    """Return (a year like this one that Python knows, by how many cycles this one is later)."""
    if not int(year):
        raise ValueError(f"{text} names a year 0")
    # The year before 1 is 1 BC, which reckons as 0.
    cycles, rest = divmod(1 - int(year) if era else int(year), _CYCLE_YEARS)
    return rest + _CYCLE_YEARS, cycles - 1


def _number(text: str, year: int, *parts: str) -> timedelta:
    month, day, hour, minute, second, micros = map(int, (*parts, "0", "0", "0", "0")[:6])
    try:
        return datetime(year, month, day, hour, minute, second, micros) - _EPOCH  # noqa: DTZ001  # see _EPOCH
    except ValueError as error:
        raise ValueError(f"{text}: {error}") from None


def _offset(text: str, hours: str, minutes: str) -> int:
    if int(hours) > 23 or int(minutes) > 59:
        raise ValueError(f"{text}: no zone is so far away")
    return (int(hours) * 60 + int(minutes)) * 60_000_000


def _within(text: str, number: int, most: int) -> int:
    # The greatest and the least number are the infinities: a finite value may not look like one.
    if not -most <= number < most:
        raise ValueError(f"{text} is beyond what its column in Spark can hold")
    return number


def date_text(days: int) -> str:
    """Return the text of a date's number, as :func:`days_of` reads it."""
    if days in (_INT32, -_INT32 - 1):
        return INFINITY if days > 0 else f"-{INFINITY}"
    day, era = _day_text(days)
    return day + era


def moment_text(micros: int, *, zoned: bool) -> str:
    """Return the text of a timestamp's number, as :func:`micros_of` reads it; with ``zoned`` in UTC."""
    if micros in (_INT64, -_INT64 - 1):
        return INFINITY if micros > 0 else f"-{INFINITY}"
    days, rest = divmod(micros, _DAY)
    day, era = _day_text(days)
    clock = (_EPOCH + timedelta(microseconds=rest)).time().isoformat()
    clock = clock.rstrip("0") if "." in clock else clock
    return f"{day}T{clock}{'+00:00' if zoned else ''}{era}"


def _day_text(days: int) -> tuple[str, str]:
    cycles, rest = divmod(days + _DAY_ONE - 1, _CYCLE_DAYS)
    near = date.fromordinal(rest + 1)
    year = near.year + cycles * _CYCLE_YEARS
    past = year < 1
    return f"{1 - year if past else year:04}-{near.month:02}-{near.day:02}", " BC" if past else ""


def sql_number(name: str, kind: str) -> str:
    """Return Spark SQL for the number of a column: ``name`` as SQL has it, ``kind`` one of :data:`MOMENTS`.

    It does not look at the session's time zone.
    """
    if kind == TIMESTAMP:
        return f"unix_micros({name})"
    if kind == DATE:
        return f"unix_date({name})"
    # Of a timestamp without a zone Spark tells no number; a product of 64 bits would overflow before the sum fits.
    clock = f"(hour({name}) * 3600 + minute({name}) * 60) * 1000000L + extract(SECOND FROM {name}) * 1000000"
    return f"cast(cast(unix_date(cast({name} AS date)) AS decimal(20, 0)) * {_DAY} + {clock} AS bigint)"


def value_text(number: int, kind: str) -> str:
    """Return the text of a number of the Spark type ``kind``, one of :data:`MOMENTS`."""
    return date_text(number) if kind == DATE else moment_text(number, zoned=kind == TIMESTAMP)


def python_value(number: int, kind: str) -> date | datetime | str:
    """Return a number of the Spark type ``kind`` as Python has it: a date, or a datetime in UTC, naive for timestamp_ntz.

    Where Python has none (infinities, years BC and above 9999) it is the text, as :func:`value_text` writes it.
    """
    try:
        if kind == DATE:
            return date.fromordinal(number + _DAY_ONE)
        moment = _EPOCH + timedelta(microseconds=number)
    except (ValueError, OverflowError):
        return value_text(number, kind)
    return moment.replace(tzinfo=UTC) if kind == TIMESTAMP else moment
