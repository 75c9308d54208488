"""Dates and timestamps beyond Python's: each number has one text, each text one number, PostgreSQL's are among them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.pipeline.tables.moments import (
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    date_text,
    days_of,
    micros_of,
    moment_text,
    python_value,
)

MICROS_MAX = (1 << 63) - 1
DAYS_MAX = (1 << 31) - 1
DAY = 86_400_000_000
JULIAN_1970 = 2_440_588
# What PostgreSQL holds: 4714-11-24 BC to 294276 (which a bigint of microseconds since 1970 does not reach) and 5874897.
POSTGRES_MICROS = st.integers(-JULIAN_1970 * DAY, MICROS_MAX - 1)
POSTGRES_DAYS = st.integers(-JULIAN_1970, 2_145_042_905)


def postgres_date(julian_day: int) -> tuple[str, str]:
    """The algorithm of PostgreSQL's j2date and EncodeDateOnly (src/backend/utils/adt/datetime.c): (text, era)."""
    julian = julian_day + 32044
    quad = julian // 146097
    extra = (julian - quad * 146097) * 4 + 3
    julian += 60 + quad * 3 + extra // 146097
    quad = julian // 1461
    julian -= quad * 1461
    year = julian * 4 // 1461
    julian = ((julian + 305) % 365 if year else (julian + 306) % 366) + 123
    year += quad * 4 - 4800
    quad = julian * 2141 // 65536
    day, month = julian - 7834 * quad // 256, (quad + 10) % 12 + 1
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}", "" if year > 0 else " BC"


def postgres_moment(micros: int, zone: str) -> str:
    days, rest = divmod(micros, DAY)
    text, era = postgres_date(days + JULIAN_1970)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}T{clock}{f'.{fraction:06}'.rstrip('0') if fraction else ''}{zone}{era}"


@given(POSTGRES_MICROS)
@example(-JULIAN_1970 * DAY)
@example(MICROS_MAX - 1)
@example(-12_219_292_800_000_001)
def test_the_texts_of_postgres_are_read_and_written(micros: int) -> None:
    assert micros_of(postgres_moment(micros, "+00:00"), zoned=True) == micros
    assert micros_of(postgres_moment(micros, ""), zoned=False) == micros
    assert moment_text(micros, zoned=True) == postgres_moment(micros, "+00:00")
    assert moment_text(micros, zoned=False) == postgres_moment(micros, "")


@given(POSTGRES_DAYS)
@example(-JULIAN_1970)
@example(-719_163)
@example(2_145_042_905)
def test_the_dates_of_postgres_are_read_and_written(days: int) -> None:
    assert days_of("".join(postgres_date(days + JULIAN_1970))) == days
    assert date_text(days) == "".join(postgres_date(days + JULIAN_1970))


@given(st.integers(-MICROS_MAX - 1, MICROS_MAX), st.integers(-DAYS_MAX - 1, DAYS_MAX))
@example(MICROS_MAX, DAYS_MAX)
@example(-MICROS_MAX - 1, -DAYS_MAX - 1)
@example(-MICROS_MAX, -DAYS_MAX)
def test_every_number_of_a_column_has_its_own_text(micros: int, days: int) -> None:
    assert micros_of(moment_text(micros, zoned=True), zoned=True) == micros
    assert micros_of(moment_text(micros, zoned=False), zoned=False) == micros
    assert days_of(date_text(days)) == days


@given(st.datetimes(), st.integers(-23 * 60 - 59, 23 * 60 + 59))
def test_ordinary_times_are_pythons(moment: datetime, minutes: int) -> None:
    zoned = moment.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    assert micros_of(zoned.isoformat(), zoned=True) == since // timedelta(microseconds=1)
    assert days_of(moment.date().isoformat()) == (moment.date() - date(1970, 1, 1)).days
    naive = micros_of(moment.isoformat(), zoned=False)
    assert python_value(naive, TIMESTAMP_NTZ) == moment
    assert python_value(naive, TIMESTAMP) == moment.replace(tzinfo=UTC)
    assert python_value(days_of(moment.date().isoformat()), DATE) == moment.date()


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 01:00:00+0100", 0),
        ("1969-12-31T18:30:00.000001-05:30", 1),
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1970-01-01T00:00:00.123456000Z", 123_456),
        ("0001-01-01T00:30:00+01:00", -62_135_598_600_000_000),
        ("0001-12-31T23:30:00-01:00 BC", -62_135_595_000_000_000),
        ("infinity", MICROS_MAX),
        ("-infinity", -MICROS_MAX - 1),
    ],
)
def test_forms_of_a_timestamp(text: str, micros: int) -> None:
    assert micros_of(text, zoned=True) == micros


def test_the_infinities_are_the_ends_of_a_column() -> None:
    assert [days_of(text) for text in ("-infinity", "infinity")] == [-DAYS_MAX - 1, DAYS_MAX]
    assert python_value(MICROS_MAX, TIMESTAMP) == "infinity"
    assert python_value(-MICROS_MAX - 1, TIMESTAMP_NTZ) == "-infinity"
    assert python_value(DAYS_MAX, DATE) == "infinity"
    assert python_value(253_402_300_800_000_000, TIMESTAMP) == "10000-01-01T00:00:00+00:00"
    assert python_value(-719_163, DATE) == "0001-12-31 BC"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Infinity",
        "infinity BC",
        "0000-01-01T00:00:00Z",
        "0000-01-01T00:00:00Z BC",
        "2023-02-29T00:00:00Z",
        "2024-01-01T24:00:00Z",
        "2024-01-01T23:59:60Z",
        "2024-01-01T00:00:00",
        "2024-01-01T00:00:00+24:00",
        "2024-01-01T00:00:00+00:60",
        "2024-01-01T00:00:00.1234567Z",
        "2024-01-01T00:00:00.Z",
        "02024-01-01T00:00:00Z",
        "+12024-01-01T00:00:00Z",
        "-0043-01-01T00:00:00Z",
        "2024-01-01T00:00:00Z bc",
        "2024-01-01T00:00:00Z\n",
        "\u0662024-01-01T00:00:00Z",
        "99999999-01-01T00:00:00Z",
        # These would look like the infinities, or lie beyond them: PostgreSQL's last thirty years do.
        "294247-01-10T04:00:54.775807Z",
        "294247-01-10T04:00:54.775808Z",
        "294276-12-31T23:59:59.999999Z",
        "290309-12-21T19:59:05.224192Z BC",
    ],
)
def test_what_is_no_timestamp_of_a_column_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # which words it is refused with is for people
        micros_of(text, zoned=True)


@pytest.mark.parametrize("text", ["2024-01-01T00:00:00Z", "2024-01-01", "2023-02-29T00:00:00"])
def test_a_zone_where_none_may_be_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # which words it is refused with is for people
        micros_of(text, zoned=False)


@pytest.mark.parametrize(
    "text",
    ["5881580-07-11", "5877642-06-23 BC", "2023-02-29", "2024-1-1", "0000-01-01", "2024-01-01T00:00:00"],
)
def test_what_is_no_date_of_a_column_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # which words it is refused with is for people
        days_of(text)
