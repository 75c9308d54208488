"""Dates that no calendar has (``0000-00-00``, ``2020-00-10``, ``2021-02-31``) as numbers of date and timestamp columns.

MySQL has them, Spark does not. They are never NULL and never another date: each has a number of its own, below that of every
date that there is, in the order of their texts. docs/formats/tables.md, "Simple feeds".
"""

from __future__ import annotations

from typing import Final

_FIRST: Final = -10_000_000
"""Days of ``0000-00-00``: in Spark it looks like a day of the year -25410. MySQL's own dates begin with 0001-01-01."""
_MONTHS: Final = 13
_DAYS: Final = 32
_LAST: Final = _FIRST + 10_000 * _MONTHS * _DAYS
_DAY_MICROS: Final = 86_400_000_000


def days_of(text: str) -> int:
    """Return the number of an irregular date, which begins ``text``: ``YYYY-MM-DD``."""
    return _FIRST + (int(text[:4]) * _MONTHS + int(text[5:7])) * _DAYS + int(text[8:10])


def micros_of(text: str) -> int:
    """Return the number of an irregular date and time, ``YYYY-MM-DD HH:MM:SS[.f]``."""
    seconds = int(text[11:13]) * 3600 + int(text[14:16]) * 60 + int(text[17:19])
    return days_of(text) * _DAY_MICROS + seconds * 1_000_000 + int(text[20:].ljust(6, "0"))


def text_of(number: int, kind: str) -> str | None:
    """Return the text of an irregular date's number in a column of the Spark type ``kind``; None for any other number.

    Of a timestamp the fraction stands there without zeros at its end, as ``0000-00-00 12:00:00.5``.
    """
    if kind == "date":
        return _date_text(number)
    days, micros = divmod(number, _DAY_MICROS)
    date = _date_text(days)
    if date is None:
        return None
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{date} {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _date_text(days: int) -> str | None:
    if not _FIRST <= days < _LAST:
        return None
    months, day = divmod(days - _FIRST, _DAYS)
    return f"{months // _MONTHS:04}-{months % _MONTHS:02}-{day:02}"
