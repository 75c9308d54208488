"""Filters of a read -> what of a folder has to be read at all. Pure.

Nothing here decides about a row for good: every filter stays with Spark too. It happens on demand alone, for the reason that
:mod:`headrace.pipeline.pushing` gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.wire.kwal_columns import LSN_MAX, Wanted

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOW_MAX: Final = (1 << 32) - 1


def narrowed(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """Return ``wanted`` less what the filters, all of which must hold, rule out. Those that say nothing are passed over."""
    for one in filters:
        column: tuple[str, ...] = getattr(one, "attribute", ())
        values = list(one.value) if isinstance(one, In) else [getattr(one, "value", None)]
        if len(column) != 1 or not values:
            continue
        if column[0] == "feed":
            wanted = _feeds(wanted, one, values)
        elif column[0] == "sequence_id":
            wanted = _ids(wanted, one, values)
        elif column[0] in _LSNS:
            wanted = _lsns(wanted, one, [_LSNS[column[0]](value) for value in values])
    return wanted


def _feeds(wanted: Wanted, one: Filter, values: list[Any]) -> Wanted:
    if not isinstance(one, (EqualTo, EqualNullSafe, In)) or not all(
        isinstance(value, str) for value in values
    ):
        return wanted
    return wanted._replace(
        feeds=frozenset(values if wanted.feeds is None else set(wanted.feeds).intersection(values))
    )


def _ids(wanted: Wanted, one: Filter, values: list[Any]) -> Wanted:
    if not all(type(value) is int for value in values):
        return wanted
    if _is_floor(one):
        wanted = wanted._replace(first_id=max(wanted.first_id, min(values)))
    return wanted._replace(last_id=min(wanted.last_id, max(values))) if _is_ceiling(one) else wanted


def _lsns(wanted: Wanted, one: Filter, ends: list[tuple[Lsn, Lsn] | None]) -> Wanted:
    known = [end for end in ends if end is not None]
    if len(known) < len(ends):
        return wanted
    if _is_floor(one):
        wanted = wanted._replace(first=max(wanted.first, min(known)[0]))
    return wanted._replace(last=min(wanted.last, max(known)[1])) if _is_ceiling(one) else wanted


def _is_floor(one: Filter) -> bool:
    return isinstance(one, (EqualTo, EqualNullSafe, In, GreaterThan, GreaterThanOrEqual))


def _is_ceiling(one: Filter) -> bool:
    return isinstance(one, (EqualTo, EqualNullSafe, In, LessThan, LessThanOrEqual))


def _of_lsn(value: Any) -> tuple[Lsn, Lsn] | None:
    """Only a whole LSN compares as text as it does as a value."""
    try:
        lsn = Lsn.parse(value) if isinstance(value, str) else None
    except InvalidRequest:
        return None
    return (lsn, lsn) if lsn is not None and str(lsn) == value else None


def _of_stamp(value: Any) -> tuple[Lsn, Lsn] | None:
    return _between(value, value) if type(value) is int else None


def _of_time(value: Any) -> tuple[Lsn, Lsn] | None:
    if not isinstance(value, datetime):
        return None
    stamp = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    ms = (stamp - _EPOCH) // timedelta(milliseconds=1)
    return _between(ms << 18, (ms + 1 << 18) - 1)


def _between(first_ts: int, last_ts: int) -> tuple[Lsn, Lsn] | None:
    if not 0 <= first_ts <= last_ts <= LSN_MAX.global_ts:
        return None
    return Lsn(first_ts, 0, 0), Lsn(last_ts, _LOW_MAX, _LOW_MAX)


_LSNS: Final = {"lsn": _of_lsn, "commit_ts": _of_stamp, "committed_at": _of_time}
"""Column -> the least and the greatest LSN that a row with this value can have; None if the value says nothing."""
