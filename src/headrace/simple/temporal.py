"""Kinds of dates and times. What Python's calendar can't hold is a value of its own, never null.

DATE is ``datetime.date``, DATETIME a ``datetime`` without a zone, TIMESTAMP one with the zone that the message names, TIME a
``timedelta``, since MySQL's reaches from -838:59:59 to 838:59:59.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from headrace.simple.faults import Misfit
from headrace.simple.kind import AsText
from headrace.simple.message import Raw, Timestamp
from headrace.simple.mysql_types import FSP_MAX, fraction_digits
from headrace.simple.schema import DataType

ZoneOf = Callable[[str], tzinfo]
"""Finds a zone by its name; LookupError, ValueError or OSError if it knows none."""

_DATE: Final = re.compile(r"[0-9]{4}-([0-9]{2})-([0-9]{2})", re.ASCII)
_MOMENT: Final = re.compile(
    r"[0-9]{4}-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.[0-9]{1,6})?", re.ASCII
)
_TIME: Final = re.compile(r"(-?)([0-9]{2,3}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,6}))?", re.ASCII)
_TIME_LIMIT: Final = timedelta(hours=839)
_MICROSECONDS: Final = 1_000_000


class IrregularDate(msgspec.Struct, frozen=True):
    """A DATE, DATETIME or TIMESTAMP that no calendar has, as MySQL prints it.

    Its year, month or day is zero (``0000-00-00``, ``2020-00-10``), or the month has no such day, which the mode
    ALLOW_INVALID_DATES lets pass. ``location`` is the zone of a TIMESTAMP.
    """

    text: str
    location: str | None = None


def named_zone(name: str) -> tzinfo:
    """Return the zone that this machine's database of zones has under ``name``; ``Local`` is none, since it names no place.

    LookupError, ValueError or OSError if there is none.
    """
    return UTC if name == "UTC" else ZoneInfo(name)


class Day(AsText):
    """DATE."""

    expected = "a date, YYYY-MM-DD"

    def read(self, text: str) -> Any:
        """Return the date, or an IrregularDate."""
        parts = _DATE.fullmatch(text)
        if parts is None:
            raise Misfit
        try:
            return date.fromisoformat(text)
        except ValueError:
            return _irregular(text, parts, None)

    def write(self, value: Any) -> str:
        """Return ``YYYY-MM-DD``."""
        if type(value) is date:
            return value.isoformat()
        if isinstance(value, IrregularDate) and isinstance(self.read(value.text), IrregularDate):
            return value.text
        raise Misfit


class Moment(AsText):
    """DATETIME."""

    def __init__(self, data_type: DataType) -> None:
        self.fraction = fraction_digits(data_type)
        digits = f".{'f' * self.fraction}" if self.fraction else ""
        self.expected = f"a date and time, YYYY-MM-DD HH:MM:SS{digits}"

    def read(self, text: str) -> Any:
        """Return the datetime without a zone, or an IrregularDate."""
        return _read_moment(text, None)

    def write(self, value: Any) -> str:
        """Return ``YYYY-MM-DD HH:MM:SS`` with as many digits behind it as the column has."""
        if isinstance(value, IrregularDate) and value.location is None:
            return self._irregular_text(value)
        if type(value) is not datetime or value.tzinfo is not None:
            raise Misfit
        return self._text_of(value)

    def _irregular_text(self, value: IrregularDate) -> str:
        if not isinstance(_read_moment(value.text, None), IrregularDate):
            raise Misfit
        return value.text

    def _text_of(self, value: datetime) -> str:
        return f"{value.replace(microsecond=0, tzinfo=None)}{_fraction(value.microsecond, self.fraction)}"


class ZonedMoment(Moment):
    """TIMESTAMP. ``zone_of`` finds the zone that a message names.

    Wall time that a zone has twice, when clocks are put back, is taken as the earlier one: messages do not tell. Values are
    written in the zone they have, so give them in UTC.
    """

    def __init__(self, data_type: DataType, zone_of: ZoneOf) -> None:
        super().__init__(data_type)
        self.expected += " with the name of a known zone as location"
        self.zone_of = zone_of

    def read_json(self, raw: Raw) -> Any:
        """Return the datetime with its zone, or an IrregularDate."""
        if type(raw) is not Timestamp:
            raise Misfit
        value = _read_moment(raw.value, raw.location)
        if isinstance(value, IrregularDate):
            return value
        try:
            return value.replace(tzinfo=self.zone_of(raw.location))
        except (LookupError, ValueError, OSError):
            raise Misfit from None

    read_avro = read_json

    def write_json(self, value: Any) -> Raw:
        """Return location and value."""
        if isinstance(value, IrregularDate) and value.location is not None:
            return Timestamp(value.location, self._irregular_text(value))
        if type(value) is not datetime or value.tzinfo is None:
            raise Misfit
        if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key and not value.fold:
            return Timestamp(value.tzinfo.key, self._text_of(value))
        try:
            return Timestamp("UTC", self._text_of(value.astimezone(UTC)))
        except OverflowError:  # in UTC it lies before the year 1 or after 9999
            raise Misfit from None

    write_avro = write_json


class Span(AsText):
    """TIME."""

    def __init__(self, data_type: DataType) -> None:
        self.fraction = fraction_digits(data_type)
        digits = f".{'f' * self.fraction}" if self.fraction else ""
        self.expected = f"a time, [-]HH:MM:SS{digits} of at most 838 hours"

    def read(self, text: str) -> Any:
        """Return the timedelta."""
        parts = _TIME.fullmatch(text)
        if parts is None or int(parts[3]) > 59 or int(parts[4]) > 59:
            raise Misfit
        span = timedelta(
            hours=int(parts[2]),
            minutes=int(parts[3]),
            seconds=int(parts[4]),
            microseconds=int((parts[5] or "").ljust(FSP_MAX, "0")),
        )
        if span >= _TIME_LIMIT:
            raise Misfit
        return -span if parts[1] else span

    def write(self, value: Any) -> str:
        """Return ``[-]HH:MM:SS`` with as many digits behind it as the column has; hours may be three digits."""
        if not isinstance(value, timedelta) or abs(value) >= _TIME_LIMIT:
            raise Misfit
        seconds, microseconds = divmod(abs(value) // timedelta(microseconds=1), _MICROSECONDS)
        sign = "-" if value < timedelta(0) else ""
        hours, rest = divmod(seconds, 3600)
        return f"{sign}{hours:02}:{rest // 60:02}:{rest % 60:02}{_fraction(microseconds, self.fraction)}"


def _read_moment(text: str, location: str | None) -> datetime | IrregularDate:
    parts = _MOMENT.fullmatch(text)
    if parts is None or int(parts[3]) > 23 or int(parts[4]) > 59 or int(parts[5]) > 59:
        raise Misfit
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return _irregular(text, parts, location)


def _irregular(text: str, parts: re.Match[str], location: str | None) -> IrregularDate:
    if int(parts[1]) > 12 or int(parts[2]) > 31:
        raise Misfit
    return IrregularDate(text, location)


def _fraction(microseconds: int, digits: int) -> str:
    """The point and the digits; Misfit where digits that count would be lost."""
    text = f"{microseconds:06}"
    if text[digits:].strip("0"):
        raise Misfit
    return f".{text[:digits]}" if digits else ""
