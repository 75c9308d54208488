"""Filters of a batch read -> what of the feeds has to be read at all. Pure.

Nothing here decides about a row for good: every filter stays with Spark too. Bounds only leave out what no filter can want.

It happens on demand alone, for the reason that :mod:`headrace.pipeline.pushing` gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Final

import msgspec
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
from headrace.errors import InvalidRequest, SequenceNotAvailable
from headrace.pipeline.source.starts import Found, Instant, Lookup, first_of, last_of
from headrace.wire.arrays import array_of, scalar_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Bounds(msgspec.Struct, frozen=True):
    """What may be wanted, all ends inclusive; None: no bound. Times are UTC microseconds. ``keys``: only these keys."""

    first: int | None = None
    last: int | None = None
    lsn_first: str | None = None
    lsn_last: str | None = None
    us_first: int | None = None
    us_last: int | None = None
    key_first: bytes | None = None
    key_last: bytes | None = None
    keys: frozenset[bytes] | None = None
    feeds: frozenset[str] | None = None

    def has_feed(self, name: str) -> bool:
        """Tell whether entries of this feed may be wanted."""
        return self.feeds is None or name in self.feeds

    def narrowed(self, feed: str, first: int, last: int, lookup: Lookup) -> tuple[int, int]:
        """Return the part of ``first`` … ``last`` that may be wanted; it is empty where the first lies above the last."""
        first, last = max(first, self.first or 0), last if self.last is None else min(last, self.last)
        if first <= last:
            # A place below what is retained can't be looked up. It leaves out nothing then.
            for moment in _moments(self.lsn_first, self.us_first):
                with suppress(SequenceNotAvailable):
                    first = max(first, first_of(moment, feed, lookup))
            for moment in _moments(self.lsn_last, self.us_last):
                with suppress(SequenceNotAvailable):
                    last = min(last, last_of(moment, feed, lookup))
        return first, last

    def chosen(self, batch: Any) -> Any:
        """Return the rows of a record batch whose key may be wanted; all of them where nothing is asked of keys."""
        if self.keys is None and self.key_first is None and self.key_last is None:
            return batch
        import pyarrow as pa
        import pyarrow.compute as pc

        keys = batch.column("key")
        conditions = []
        if self.keys is not None:
            conditions.append(pc.is_in(keys, array_of(sorted(self.keys), pa.binary())))
        if self.key_first is not None:
            conditions.append(pc.greater_equal(keys, scalar_of(self.key_first, pa.binary())))
        if self.key_last is not None:
            conditions.append(pc.less_equal(keys, scalar_of(self.key_last, pa.binary())))
        return batch.filter(reduce(pc.and_, conditions))


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """Return what the filters, all of which must hold, leave to be read. Those that say nothing of it are passed over."""
    return reduce(_with, filters, Bounds())


def _with(bounds: Bounds, one: Filter) -> Bounds:
    column: tuple[str, ...] = getattr(one, "attribute", ())
    read = _READ.get(column[0]) if len(column) == 1 else None
    if read is None:
        return bounds
    values = _values(one)
    if not values or not all(read[0](value) for value in values):
        return bounds
    return read[1](bounds, one, [_plain(value) for value in values])


def _values(one: Filter) -> list[Any]:
    match one:
        case (
            EqualTo()
            | EqualNullSafe()
            | GreaterThan()
            | GreaterThanOrEqual()
            | LessThan()
            | LessThanOrEqual()
        ):
            return [one.value]
        case In():
            return list(one.value)
    return []


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        stamp = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (stamp - _EPOCH) // timedelta(microseconds=1)
    return bytes(value) if isinstance(value, bytearray) else value


def _ranged(low: str, high: str) -> Callable[[Bounds, Filter, list[Any]], Bounds]:
    """Return what takes a filter into the bounds named ``low`` and ``high``. Strict ones are taken as if they were not."""

    def taken(bounds: Bounds, one: Filter, values: list[Any]) -> Bounds:
        found: dict[str, Any] = {}
        if not isinstance(one, (LessThan, LessThanOrEqual)):
            known = getattr(bounds, low)
            found[low] = min(values) if known is None else max(known, min(values))
        if not isinstance(one, (GreaterThan, GreaterThanOrEqual)):
            known = getattr(bounds, high)
            found[high] = max(values) if known is None else min(known, max(values))
        return msgspec.structs.replace(bounds, **found)

    return taken


def _chosen(member: str) -> Callable[[Bounds, Filter, list[Any]], Bounds]:
    """Return what takes a filter that names values into the set named ``member``."""

    def taken(bounds: Bounds, one: Filter, values: list[Any]) -> Bounds:
        if not isinstance(one, (EqualTo, EqualNullSafe, In)):
            return bounds
        known = getattr(bounds, member)
        found = frozenset(values) if known is None else known & frozenset(values)
        return msgspec.structs.replace(bounds, **{member: found})

    return taken


def _keys(bounds: Bounds, one: Filter, values: list[Any]) -> Bounds:
    taken = (
        _chosen("keys") if isinstance(one, (EqualTo, EqualNullSafe, In)) else _ranged("key_first", "key_last")
    )
    return taken(bounds, one, values)


def _moments(lsn: str | None, us: int | None) -> list[Found]:
    found: list[Found] = [] if lsn is None else [Lsn.parse(lsn)]
    return found if us is None else [*found, Instant(us)]


def _is_lsn(value: Any) -> bool:
    """Only a whole LSN compares as text as it does as a value."""
    try:
        return isinstance(value, str) and str(Lsn.parse(value)) == value
    except InvalidRequest:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_READ: Final[dict[str, tuple[Callable[[Any], bool], Callable[[Bounds, Filter, list[Any]], Bounds]]]] = {
    "sequence_id": (_is_number, _ranged("first", "last")),
    "lsn": (_is_lsn, _ranged("lsn_first", "lsn_last")),
    "committed_at": (lambda value: isinstance(value, datetime), _ranged("us_first", "us_last")),
    "key": (lambda value: isinstance(value, (bytes, bytearray)), _keys),
    "feed": (lambda value: isinstance(value, str), _chosen("feeds")),
}
"""Column -> whether a value of a filter is one that can be judged here, and what takes the filter into the bounds."""
