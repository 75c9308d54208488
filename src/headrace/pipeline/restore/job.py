"""A restore, from the plan to the outcome. Called by ``headrace wal restore``, the drill and tests.

Order: plan, look at OUT, hold the archive, plan again, look at OUT's room, read and verify every byte that the plan
names, and only then write; what was written is checked before it gets its names. Any failure leaves OUT as it was.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan, plan
from headrace.archive.moments.target import Asked
from headrace.archive.rights.holds import NOT_HELD, hold
from headrace.errors import QueryFailed
from headrace.pipeline.addresses import absolute_file, absolute_folder
from headrace.pipeline.failures import error_of
from headrace.pipeline.restore.keys import restore_kv
from headrace.pipeline.restore.out import Out, check_out, no_room, unwritable
from headrace.pipeline.restore.outcome import Outcome, RestoredHistory
from headrace.pipeline.restore.room import check_room, room_of
from headrace.pipeline.restore.surveying import TELLING, joined, survey_base, survey_segments
from headrace.pipeline.restore.tables import ENTRIES_MAX, restore_tables
from headrace.pipeline.restore.work import Work, check_survey, work_of
from headrace.pipeline.tables.ledger import local_folder
from headrace.pipeline.watching import Tell, Watching

_NO_ROOM: Final = "No space left on device"
"""How Java says that a volume is full."""


class Kind(StrEnum):
    """What a restore makes: Delta tables, or the newest value of each key as Parquet."""

    TABLES = "tables"
    KV = "kv"


class Request(NamedTuple):
    """What is to be restored, and where to. ``snapshot``: ``auto``, or a base's address. ``feeds``: () for all.

    ``out``: a folder that driver and workers reach by the same path, empty or not there. ``allow_incomplete``: tables
    that are not whole at the target are left as they are, and named. ``entries_max``: entries folded into tables at
    once.
    """

    archive: str
    asked: Asked
    out: str
    kind: Kind = Kind.TABLES
    snapshot: str = "auto"
    identity: str = ""
    feeds: tuple[str, ...] = ()
    allow_incomplete: bool = False
    entries_max: int = ENTRIES_MAX


def planned(request: Request) -> tuple[Archive, RestorePlan]:
    """Return the archive as it is now, and the plan. It needs no Spark. Raises what
    :func:`headrace.archive.moments.planning.plan` does.
    """
    archive = Archive.read(absolute_folder(request.archive), absolute_file(request.identity))
    return archive, plan(archive, request.asked, request.snapshot)


def checked(request: Request) -> tuple[Archive, RestorePlan]:
    """Return the same, and say before Spark is started that OUT is not empty (OutNotEmpty) or has no room (ArchiveFull)."""
    archive, found = planned(request)
    base = found.base.manifest.files if found.base is not None and not request.feeds else ()
    check_out(local_folder(request.out), sum(one.size for one in base))
    return archive, found


def restore(spark: SparkSession, request: Request, tell: Tell | None = None) -> Outcome:
    """Restore what is asked for into OUT, and return what that is. ``tell`` is called with how far it is.

    Raises, and leaves OUT as it was: what :func:`checked` raises; SegmentCorrupt, BaseCorrupt; IdentityNeeded;
    RestoreInexact; ArchiveUnavailable; ArchiveFull if OUT's volume is full, StoreUnavailable if it can't be written for
    another reason; ValueUnfit and others as the tables job; QueryFailed.
    """
    started = time.monotonic()
    archive, first = checked(request)
    try:
        with hold(archive.folder, first.after_lsn) as held:
            outcome = _held(spark, request, tell, started, [] if held else [NOT_HELD])
    except (PySparkException, Py4JJavaError, QueryFailed) as failure:
        error = error_of(failure)
        is_full = _NO_ROOM in str(failure)
        raise no_room(request.out, "--out", error.detail) if is_full else error from None
    except OSError as failure:
        raise unwritable(request.out, "--out", failure) from None
    return outcome


def _held(
    spark: SparkSession, request: Request, tell: Tell | None, started: float, warnings: list[str]
) -> Outcome:
    archive, found = planned(request)  # anew: a prune may have gone on until the archive was held
    url, identity = absolute_folder(request.archive), absolute_file(request.identity)
    work = work_of(spark, archive, found, url=url, identity=identity, only=request.feeds)
    watching = Watching(spark, work.bytes, tell)
    base = found.base.manifest if found.base is not None else None
    pieces_of = request.entries_max if request.kind is Kind.TABLES else None
    warnings += check_room(
        local_folder(request.out), room_of(base, work.parts, work.feeds, pieces_of=pieces_of)
    )
    with Out(local_folder(request.out)) as out:
        feeds = _made(work, request, out.writing, watching)
        outcome = Outcome(
            kind=request.kind.value,
            archive=archive.folder.shown,
            out=str(out.out),
            target_lsn=str(found.target_lsn),
            plan=found.document(),
            feeds=feeds,
            warnings=[*warnings, *found.warnings, *_warnings(work, feeds)],
            bytes=work.bytes,
            seconds=round(time.monotonic() - started, 3),
        )
        out.publish(msgspec.json.format(msgspec.json.encode(outcome)) + b"\n")
    return outcome


def _made(work: Work, request: Request, into: Path, watching: Watching) -> list[RestoredHistory]:
    with watching.step("checking", 0.15):
        segments = survey_segments(work.spark, work.range, work.groups())
        base = work.base(TELLING)
        of_base = survey_base(base) if base is not None else None
    check_survey(work, segments, of_base)
    survey = segments if of_base is None else joined([of_base, segments])
    if request.kind is Kind.KV:
        return restore_kv(work, survey, into, watching, allow_incomplete=request.allow_incomplete)
    return restore_tables(
        work,
        survey,
        into,
        watching,
        allow_incomplete=request.allow_incomplete,
        entries_max=request.entries_max,
    )


def _warnings(work: Work, feeds: Sequence[RestoredHistory]) -> list[str]:
    left = sorted({one.feed for one in work.feeds} - {one.feed for one in feeds})
    found = [
        f"{feed} is left out: its keys do not tell its rows apart, so it is restored --as tables"
        for feed in left
    ]
    found += [
        f"{one.feed} was made anew before the target: of its {len(one.older)} older histories nothing is restored"
        for one in feeds
        if one.older
    ]
    found += [
        f"{one.feed}: its entries before {one.spans[0].first} are not in the archive; an accepted gap took them"
        for one in work.feeds
        if one.lost
    ]
    return found + [
        f"{one.feed}: the table {'.'.join(table.table)} is not whole at the target: {table.stopped}"
        for one in feeds
        for table in one.tables
        if table.stopped is not None
    ]
