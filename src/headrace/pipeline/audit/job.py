"""The audit of a tables' folder: the feed folded anew, against what is published, and against the source database.

Called by ``headrace pipeline audit`` and tests. The tables are read at the versions that their moment names, the source in
one snapshot, and the fold is stopped at the place of each: the job, capture and the application may run on meanwhile.
"""

from __future__ import annotations

import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.errors import AuditBehind, FeedRecreated
from headrace.pipeline.audit.comparing import Comparing
from headrace.pipeline.audit.fold import Fold
from headrace.pipeline.audit.places import LOOK_S
from headrace.pipeline.audit.seeing import Seeing, Seen, SourceAsked
from headrace.pipeline.audit.verdicts import Audit, SourceMoment, SourceVerdict, TableAudit
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.failures import error_of
from headrace.pipeline.source.planner import ENTRIES_MAX
from headrace.pipeline.tables.given import given_columns
from headrace.pipeline.tables.ledger import FOLDER, PublishedFile, local_folder, read_tables_file
from headrace.pipeline.tables.reader import published_moment
from headrace.pipeline.tables.schemas import TableName
from headrace.pipeline.tables.states import FORGOTTEN

DIFFERENCES_MAX: Final = 20
"""Keys that are listed of a table, unless another number is asked for."""


def run_audit(
    spark: SparkSession,
    to: str,
    endpoint: Endpoint,
    *,
    source: SourceAsked | None = None,
    archive: str = "",
    scratch: str = "",
    differences_max: int = DIFFERENCES_MAX,
    entries_max: int = ENTRIES_MAX,
    progress: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Compare what is published in the tables' folder ``to`` with the feed, folded from its first entry.

    ``source``: compare the source's tables with the feed too, at a moment of their own. ``archive``: URL of a folder of KWAL
    segments that hold what the server has dropped. The fold, and the source's rows as texts, are made in a folder below
    ``scratch`` (default: in ``to``), which workers reach by the same path, and is removed at the end.

    Raises NothingPublished, SequenceNotAvailable if the feed's beginning is not there, FeedRecreated, ServerUnreachable,
    and what the tables job raises. With a source: SourceNotAudited, AuditBehind, SourceShifted, PlaceUnknown,
    SourceReplaced, SourceUnavailable, SourceForbidden, DsnInvalid.
    """
    started = time.monotonic()
    left = forgotten(local_folder(to))
    moment, first = _checked_moment(to, endpoint)
    below = Path(scratch) if scratch else local_folder(to) / FOLDER
    folder = Path(tempfile.mkdtemp(prefix="audit-", dir=below))
    folder.chmod(stat.S_IMODE(below.stat().st_mode))  # workers of another user write here too
    try:
        seen = None
        if source is not None:
            progress("reading the source")
            options = _options(endpoint, moment, archive)
            seen = Seeing(spark, source, moment.feed, options).see(folder)
            moment = _caught_up(to, seen.first, source.wait_s)
        options = _options(endpoint, moment, archive)
        with Fold(
            spark,
            folder / "fold",
            moment.feed,
            moment.incarnation,
            source=options,
            entries_max=entries_max,
            first=first,
            given=given_columns(local_folder(to)),
        ) as fold:
            comparing = Comparing(spark, fold.to, differences_max)
            place = 0 if seen is None else seen.place(moment.sequence_id)
            # One that comes back just now may not be in the moment yet.
            left = (left | forgotten(local_folder(to))) - {tuple(one.table) for one in moment.tables}
            verdicts = _source_verdicts(seen, place, fold, comparing, left=left, progress=progress)
            tables = _table_verdicts(moment, local_folder(to), fold, comparing, left=left, progress=progress)
    except PySparkException as error:
        raise error_of(error) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    tables = _joined(tables, verdicts)
    return Audit(
        feed=moment.feed,
        incarnation=moment.incarnation,
        sequence_id=moment.sequence_id,
        lsn=moment.lsn,
        commit_ts=None if moment.commit_ts is UNSET else moment.commit_ts,
        equal=all(one.equal for one in tables),
        tables=tables,
        seconds=round(time.monotonic() - started, 3),
        source=None if seen is None else _told(seen, place),
    )


def _checked_moment(to: str, endpoint: Endpoint) -> tuple[PublishedFile, int]:
    """Return the tables' moment, and the sequence id of the feed's first entry ever."""
    moment = published_moment(to)
    with Connection(endpoint) as server:
        view = server.feed(moment.feed)
    if view.incarnation != moment.incarnation:
        raise FeedRecreated(
            f"the tables in {to} are of the incarnation {moment.incarnation} of {moment.feed}, which now is "
            f"{view.incarnation}",
            hint="The feed was made anew or restored: start its tables anew in an empty folder.",
        )
    return moment, max(1, view.first_sequence_id)


def forgotten(to: Path) -> set[TableName]:
    """Return the tables of the folder ``to`` that an operator let go and that nothing has brought back."""
    known = read_tables_file(to)
    tables = (known.tables or ()) if known is not None else ()
    return {tuple(one.table) for one in tables if one.stopped is not None and one.stopped.code == FORGOTTEN}


def _options(endpoint: Endpoint, moment: PublishedFile, archive: str) -> dict[str, str]:
    options = {
        "endpoint": endpoint.server,
        "feeds": moment.feed,
        "incarnation": moment.incarnation,
        "retry-seconds": str(max(1, round(endpoint.retry_s))),
    }
    more = {"token-file": endpoint.token_file, "ca-file": endpoint.ca_file, "archive": archive}
    return options | {name: value for name, value in more.items() if value}


def _caught_up(to: str, place: int, wait_s: float) -> PublishedFile:
    """Return the tables' moment once it is not below ``place``; AuditBehind."""
    deadline = time.monotonic() + wait_s
    while (moment := published_moment(to)).sequence_id < place:
        if time.monotonic() >= deadline:
            raise AuditBehind(
                f"the tables in {to} are published up to the entry {moment.sequence_id} of {moment.feed}; the source was "
                f"read at {place}"
            )
        time.sleep(LOOK_S)
    return moment


def _source_verdicts(
    seen: Seen | None,
    place: int,
    fold: Fold,
    comparing: Comparing,
    *,
    left: Set[TableName],
    progress: Callable[[str], None],
) -> dict[TableName, SourceVerdict]:
    if seen is None:
        return {}
    progress(f"folding up to sequence id {place}, where the source was read")
    ours = fold.tables_at(place)
    theirs = {tuple(one.name): one for one in seen.read.tables}
    found = {}
    for name in sorted((ours.keys() | theirs.keys()) - left):
        progress(f"comparing {'.'.join(name)} with the source")
        found[name] = comparing.with_source(ours.get(name), theirs.get(name))
    return found


def _table_verdicts(
    moment: PublishedFile,
    published: Path,
    fold: Fold,
    comparing: Comparing,
    *,
    left: Set[TableName],
    progress: Callable[[str], None],
) -> list[TableAudit]:
    progress(f"folding {moment.feed} up to sequence id {moment.sequence_id}")
    ours = fold.tables_at(moment.sequence_id)
    keys = fold.keys()
    theirs = {tuple(one.table): one for one in moment.tables}
    tables = [TableAudit(table=list(name), equal=True, let_go=True) for name in left]
    for name in sorted((ours.keys() | theirs.keys()) - left):
        progress(f"comparing {'.'.join(name) or '(entries without a table)'}")
        found = comparing.with_published(
            name, ours.get(name), theirs.get(name), published=published, key=keys.get(name, ())
        )
        tables.append(found)
    return sorted(tables, key=lambda one: one.table)


def _joined(tables: list[TableAudit], sources: Mapping[TableName, SourceVerdict]) -> list[TableAudit]:
    """Put both verdicts on a table into one. Between the two moments a table may have come, or gone."""
    if not sources:
        return tables
    found = {tuple(one.table): one for one in tables}
    for name, source in sources.items():
        # A table without rows of which the feed does not know is on neither of its sides.
        one = found.get(name) or TableAudit(table=list(name), equal=source.equal)
        found[name] = msgspec.structs.replace(one, source=source, equal=one.equal and source.equal)
    return [found[name] for name in sorted(found)]


def _told(seen: Seen, at: int) -> SourceMoment:
    place = seen.read.place
    return SourceMoment(gtid=str(seen.read.gtids), file=place.file, position=place.offset, sequence_id=at)
