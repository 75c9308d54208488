"""A moment of the source's binlog -> the place in the feed that has exactly the transactions up to it. By capture's GTIDs.

The feed has transactions in the binlog's order, each under its GTID. So the place is the last end of an append or of a
transaction below the first entry of a transaction that the moment does not cover, once capture has passed the moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.capture.binlog.event import GtidPosition, Place
from headrace.capture.mariadb.connection import connect
from headrace.capture.mariadb.server import check_history, read_server
from headrace.capture.position import SourcePosition
from headrace.capture.settings import CaptureSettings
from headrace.capture.standing import FeedStanding, read_feed_standing
from headrace.errors import AuditBehind, PlaceUnknown, SourceNotAudited

LOOK_S: Final = 0.2
"""Between two looks at something that is waited for."""

COLUMNS: Final = "sequence_id BIGINT, control STRING, source_tx BINARY, tx_last BOOLEAN, append_end BOOLEAN"
"""What of a feed's entries :func:`place_of` looks at."""


class Captured(NamedTuple):
    """A feed's end, and the binlog's place that it stands at."""

    head: int
    position: SourcePosition


class FeedPlace(NamedTuple):
    """The entries ``first`` … ``last`` that a moment of the source is: behind ``first`` nothing stands but WATERMARKs.

    ``statement``: the first one between the moment and the end of what was read, None if there is none. ``copy``: likewise,
    the first end of a copy behind ``last``: a table of which the feed may have a part at ``last``.
    """

    first: int
    last: int
    statement: int | None
    copy: int | None = None


class CaptureWatch:
    """Asks how far capture is, and waits for it, ``wait_s`` in all."""

    def __init__(self, settings: CaptureSettings, environment: Mapping[str, str], wait_s: float) -> None:
        self._settings = settings
        self._environment = environment
        self._deadline = time.monotonic() + wait_s

    def check_source(self) -> None:
        """Raise SourceReplaced unless the source is the server that the feed was made from; SourceNotAudited."""
        position = self._now().position
        with closing(connect(self._settings.find_dsn(self._environment))) as connection:
            check_history(
                connection,
                read_server(connection),
                GtidPosition.parse(position.gtid),
                Place(position.file, position.offset),
                position.server_id,
            )

    def wait_copied(self) -> None:
        """Wait until no rows are being copied: a table of which the feed has a part can't be compared. AuditBehind."""
        self._wait(
            lambda now: is_copied(now.position),
            "rows are still being copied into the feed",
        )

    def wait_passed(self, gtids: GtidPosition) -> Captured:
        """Wait until all up to ``gtids`` is in the feed, and return its end then. AuditBehind."""
        return self._wait(
            lambda now: _passed(now.position, gtids),
            f"the feed does not go up to {str(gtids) or 'the beginning'}",
        )

    def _wait(self, is_done: Callable[[Captured], bool], what: str) -> Captured:
        while True:
            now = self._now()
            if is_done(now):
                return now
            if time.monotonic() >= self._deadline:
                raise AuditBehind(f"{what}; capture is at {now.position.gtid}")
            time.sleep(LOOK_S)

    def _now(self) -> Captured:
        found: FeedStanding = asyncio.run(read_feed_standing(self._settings, self._environment))
        if found.position is None:
            raise SourceNotAudited(f"nothing was captured into the feed {self._settings.feed} yet")
        return Captured(found.next_sequence_id - 1, found.position)


def is_copied(position: SourcePosition) -> bool:
    """Return whether no rows are being copied into the feed, and none are to be."""
    return position.whole and not position.copies and not position.waiting


def _passed(position: SourcePosition, gtids: GtidPosition) -> bool:
    return not position.under_way and all(map(GtidPosition.parse(position.gtid).covers, gtids.gtids))


def place_of(entries: DataFrame, moment: GtidPosition, ended: GtidPosition) -> FeedPlace:
    """Return where the feed has exactly what was committed up to ``moment``.

    ``entries``: all up to where capture has passed ``ended``. ``statement``: the sequence id of the first DDL statement
    behind ``moment`` and not behind ``ended``. PlaceUnknown where the feed's order is not that of GTIDs.
    """
    is_tx = F.col("source_tx").isNotNull()
    before = is_tx & _covered(moment)
    behind = is_tx & ~_covered(moment)
    place = F.col("sequence_id")
    row = entries.agg(
        F.max(F.when(before, place)).alias("last"),
        F.min(F.when(behind, place)).alias("first"),
        F.min(F.when(behind & _covered(ended) & (F.col("control") == "ddl"), place)).alias("statement"),
        F.max(place).alias("head"),
    ).collect()[0]
    last, first, head = row["last"] or 0, row["first"], row["head"] or 0
    if first is not None and last > first:
        raise PlaceUnknown(
            f"the feed's entry {first} is of a transaction behind {moment}, and its entry {last} of one before it"
        )
    end = head if first is None else first - 1
    # An append may begin with a schema for the rows behind the moment: what is not whole there is left to them.
    whole = F.col("tx_last") | (F.col("source_tx").isNull() & F.col("append_end"))
    told = F.coalesce(F.col("control"), F.lit("")) != "watermark"
    found = (
        entries.where(place.between(last, end))
        .agg(F.max(F.when(whole, place)).alias("whole"), F.max(F.when(told, place)).alias("told"))
        .collect()[0]
    )
    if found["whole"] is None:
        raise PlaceUnknown(f"no transaction of the feed ends at {moment}")
    at = found["whole"]
    ends = entries.where((place > at) & (F.col("control") == "copy-end"))
    copy = ends.agg(F.min(place).alias("copy")).collect()[0]["copy"]
    return FeedPlace(min(found["told"] or at, at), at, row["statement"], copy)


def _covered(position: GtidPosition) -> Column:
    parts = F.split(F.col("source_tx").cast("string"), "-")
    found = F.lit(False)  # it takes no name
    for gtid in position.gtids:
        of_domain = parts.getItem(0).cast("bigint") == gtid.domain
        found = found | (of_domain & (parts.getItem(2).cast("decimal(20,0)") <= gtid.sequence))
    return F.coalesce(found, F.lit(False))
