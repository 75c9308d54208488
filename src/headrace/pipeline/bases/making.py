"""A base snapshot is made: the base before it and the segments behind that one, folded on Spark into a folder of files.

Order: plan, look through everything (so whatever is damaged is found before a byte is written), write the files, each under
a name of its own, and the manifest last. A job that dies leaves a folder without a manifest, which nobody takes for a base;
the next one begins anew beside it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import uuid4

import msgspec
from msgspec import UNSET
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  # how everybody calls it

from headrace.archive.files.bases import StoredBase, check_files, place_of, usable_bases
from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import grouped
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.histories import Line, lines_of, newest_registry
from headrace.archive.moments.planning import RestorePlan, plan
from headrace.archive.moments.reachable import refusal, whole_below
from headrace.archive.moments.target import Asked
from headrace.archive.rights.holds import hold
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import BaseCorrupt, SegmentGap, TargetUnreachable
from headrace.pipeline.addresses import absolute_file, absolute_folder
from headrace.pipeline.bases.attempt import Attempt
from headrace.pipeline.bases.publishers import (
    FromPublisher,
    Publishers,
    begins_at,
    fetch,
    middle_of,
    rows_frame,
)
from headrace.pipeline.bases.reading import files_frame
from headrace.pipeline.bases.scanning import Part, Reading, rows_task, scan
from headrace.pipeline.bases.surveying import CONTROL_BYTES_MAX, Survey, survey
from headrace.pipeline.bases.writing import (
    CONTROL_FOLDER,
    WRITTEN_DDL,
    Place,
    Written,
    is_control,
    write_files,
    written_buckets,
    written_of,
)
from headrace.pipeline.failures import error_of
from headrace.pipeline.watching import Tell, Watching
from headrace.wire.base_manifest import BaseFeed, BaseFile, BaseGap, BaseManifest, base_folder
from headrace.wire.kwal_columns import LSN_MAX

BUCKET_BYTES: Final = 32 << 20
"""Bytes of segments and base that one task folds, about."""
BUCKETS_MAX: Final = 4096
CONTROLS_MANY: Final = 200_000
"""Control entries that are worth a word: all of one base are in this process's memory at once, 1 to 3 KB each."""
_FAILURES: Final = (PySparkException, Py4JJavaError)


class Created(NamedTuple):
    """A base as it stands in the archive. ``made``: now; else it was there already. ``seconds``: how long that took.

    ``read_controls``: control entries that were read for it, WATERMARKs that nobody needs aside.
    """

    base: StoredBase
    made: bool
    read_bytes: int
    read_controls: int
    seconds: float


class BaseTerms(NamedTuple):
    """How a base is made, beside of what.

    ``identity``: the file of age identities that opens the segments, for this machine and workers. ``previous``: the base
    that it is folded from: ``auto``, or its folder's address. ``buckets``: into how many parts keys are hashed (None: by
    size). ``control_bytes_max``: of control entries in this process's memory.
    """

    identity: str = ""
    previous: str = "auto"
    buckets: int | None = None
    control_bytes_max: int = CONTROL_BYTES_MAX


_DEFAULTS: Final = BaseTerms()


def create_base(
    spark: SparkSession,
    archive_url: str,
    *,
    at: Lsn | Asked | None = None,
    identity: str = "",
    buckets: int | None = None,
    previous: str = "auto",
    progress: Tell | None = None,
) -> BaseManifest:
    """Make the base at ``at`` and return its manifest; see :func:`make_base`."""
    terms = BaseTerms(identity, previous, buckets)
    return make_base(spark, archive_url, terms, at=at, progress=progress).base.manifest


def make_base(
    spark: SparkSession,
    archive_url: str,
    terms: BaseTerms = _DEFAULTS,
    *,
    at: Lsn | Asked | None = None,
    publishers: Publishers | None = None,
    progress: Tell | None = None,
) -> Created:
    """Make the base at ``at``, an LSN or another moment; None: the newest whole point of the archive. Safe to repeat.

    ``publishers``: feeds whose beginning is not in the archive begin with their publisher's snapshot; the base is then made
    without another one. Its LSN ends an append and transactions, in all feeds. A base that is there already at that LSN is
    returned.

    Raises what :func:`headrace.archive.moments.planning.plan` raises; SegmentCorrupt, BaseCorrupt, SegmentGap where a feed's
    beginning is not in the archive; ControlsTooMany; ArchiveFull, ArchiveUnavailable. Then nothing is left of it; but where
    an object store did not say what became of the manifest's put, all stays, and may be the base.
    """
    started = time.monotonic()
    url = absolute_folder(archive_url)
    terms = terms._replace(identity=absolute_file(terms.identity))
    folder = Folder(url, terms.identity)
    begun: list[FromPublisher] = []
    if publishers is not None:
        begun = fetch(url, terms.identity, middle_of(Archive.read(url, terms.identity)), publishers)
    middle = publishers is not None
    first = planned(url, terms.identity, at, terms.previous, middle=middle)
    with hold(folder, first[1].after_lsn, "snapshot create", needed=True):
        archive, found = planned(url, terms.identity, at, terms.previous, middle=middle)
        known = known_base(folder, found.target_lsn)
        if known is not None:
            return Created(known, False, 0, 0, time.monotonic() - started)
        job = _Job(spark, url, terms, archive, found, begun=begun)
        count = terms.buckets or min(BUCKETS_MAX, -(-job.bytes // BUCKET_BYTES) or 1)
        base = job.run(count, Watching(spark, job.bytes, progress))
    return Created(base, True, job.bytes, job.controls, time.monotonic() - started)


def planned(
    url: str, identity: str, at: Lsn | Asked | None, previous: str, *, middle: bool = False
) -> tuple[Archive, RestorePlan]:
    """Return the archive as it is now, and of what the base at ``at`` would be made. Raises as :func:`make_base`.

    ``middle``: begin where the segments begin to join, whatever was before.
    """
    archive = Archive.read(url, identity)
    if middle:
        archive = middle_of(archive)
    if at is None:
        at = whole_below(archive, LSN_MAX)
        if at is None:
            raise refusal(archive, LSN_MAX, "any moment")
    asked = at if isinstance(at, Asked) else Asked(to_lsn=at)
    return archive, plan(archive, asked, previous)


def known_base(folder: Folder, lsn: Lsn) -> StoredBase | None:
    """Return the base that is at ``lsn`` already; BaseCorrupt if there is one that can't be used."""
    found = usable_bases(folder)
    for unsound in found.unsound:
        if unsound.path == base_folder(lsn) and unsound.finished:
            raise BaseCorrupt(unsound.problem, hint="Move that folder away, then make the base anew.")
    return next((one for one in found.sound if one.lsn == lsn), None)


class _Job:
    """One base in the making."""

    def __init__(
        self,
        spark: SparkSession,
        url: str,
        terms: BaseTerms,
        archive: Archive,
        found: RestorePlan,
        *,
        begun: Sequence[FromPublisher],
    ) -> None:
        self._spark = spark
        self._url, self._control_bytes_max = url, terms.control_bytes_max
        self._plan = found
        self._base = found.base if found.base is not None and found.base.path else None
        self._begun = begun
        self._base_at = self._place_of_base()
        self._manifests = [archive.manifests[one.file] for one in found.segments]
        self._lines = lines_of(
            self._base.manifest if self._base is not None else None,
            self._manifests,
            found.target_lsn,
            from_start=not found.gaps and (self._base is not None or found.after_lsn == ZERO),
            over_gaps=bool(found.gaps),
        )
        self._begin_with_snapshots()
        self._check_beginnings()
        parts = {
            one.file: Part(one.file, one.size, msgspec.structs.replace(manifest, registry=()))
            for one, manifest in zip(found.segments, self._manifests, strict=True)
        }
        self._groups = [[parts[one.file] for one in group] for group in grouped(found.segments)]
        spans = {(span.feed, span.incarnation): span for line in self._lines.values() for span in line.spans}
        self._reading = Reading(url, terms.identity, _above(found.after_lsn), found.target_lsn, spans)
        self._place = Place(url, base_folder(found.target_lsn), uuid4().hex[:12])
        self._attempt = Attempt(Folder(url, terms.identity), self._place)
        self.bytes = sum(one.size for one in found.segments) + self._base_bytes()
        self.controls = 0

    def run(self, buckets: int, watching: Watching) -> StoredBase:
        """Fold and write; return the base. If anything fails, what was written is taken away again, unless it is a base."""
        try:
            base = None
            if self._base_at is not None:
                base = Folder(self._base_at[0]), self._base_at[1]
                check_files(*base)
            with watching.step("reading", 0.4):
                seen = survey(
                    self._spark,
                    self._reading,
                    self._groups,
                    base,
                    self._lines,
                    begun=[one.begun for one in self._begun],
                    control_bytes_max=self._control_bytes_max,
                )
            self.controls = seen.looked_at
            with watching.step("folding", 0.6):
                written = [*self._write_controls(seen), *self._write_rows(seen, buckets)]
            return self._attempt.finish(self._manifest(seen, written, buckets))
        except BaseException as failure:
            self._attempt.take_away()
            if isinstance(failure, _FAILURES):
                raise error_of(failure) from None
            raise

    # -- what it is made of ---------------------------------------------------------------------------------------------

    def _begin_with_snapshots(self) -> None:
        for one in self._begun:
            if one.begun.lsn > self._plan.target_lsn:
                raise TargetUnreachable(
                    f"the publisher's snapshot of {one.begun.feed} stands for lsn={one.begun.lsn}, behind the base's "
                    f"moment, lsn={self._plan.target_lsn}",
                    hint="Name a later moment, or none.",
                )
            self._lines[one.begun.feed] = begins_at(self._lines.get(one.begun.feed), one)

    def _check_beginnings(self) -> None:
        problems = [f"{line.feed}: {line.problem}" for line in self._lines.values() if line.problem]
        if problems:
            raise SegmentGap(
                "a base would lack what some feeds began with: " + "; ".join(problems),
                hint="Take them from their publishers' snapshots: --from-publishers. A captured feed has none: copy its "
                "source into a new feed.",
            )

    def _base_bytes(self) -> int:
        return sum(one.size for one in self._base.manifest.files) if self._base is not None else 0

    def _place_of_base(self) -> tuple[str, StoredBase] | None:
        """Return the address that the base before stands at, which need not be the archive's, and the base with its place
        there.
        """
        if self._base is None:
            return None
        url, name = place_of(self._plan.base_url)
        return url, self._base._replace(path=name)

    def _rows(self, seen: Survey) -> DataFrame:
        rows = scan(self._spark, self._reading, self._groups, rows_task)
        copied = rows_frame(self._spark, self._begun)
        if copied is not None:
            rows = rows.unionByName(copied)
        if self._base_at is None:
            return rows
        url, base = self._base_at
        files = [one for one in base.manifest.files if not is_control(one.path)]
        below = files_frame(self._spark, url, base, files)
        for one in base.manifest.feeds:
            if (one.feed, one.incarnation) not in seen.ends:
                gone = (F.col("feed") == one.feed) & (F.col("incarnation") == one.incarnation)
                below = below.where(~gone)
        return rows.unionByName(below)

    # -- what is written ------------------------------------------------------------------------------------------------

    def _write_controls(self, seen: Survey) -> list[Written]:
        return list(write_files(seen.controls.to_batches(), self._place, CONTROL_FOLDER, 0))

    def _write_rows(self, seen: Survey, buckets: int) -> list[Written]:
        write: Callable[[Iterator[Any]], Iterator[Any]] = partial(
            written_buckets, place=self._place, feeds=dict(seen.feeds)
        )
        ordered = self._rows(seen).repartition(buckets, "feed", "key")
        folded = ordered.sortWithinPartitions("feed", "key", "sequence_id").mapInArrow(write, WRITTEN_DDL)
        return written_of(folded.collect())

    def _manifest(self, seen: Survey, written: Sequence[Written], buckets: int) -> BaseManifest:
        entries: Counter[tuple[str, str]] = Counter()
        for one in written:
            entries.update(one.entries)
        target, segments = self._plan.target_lsn, self._plan.segments
        below = self._base.manifest if self._base is not None else None
        return BaseManifest(
            lsn=str(target),
            committed_at_ms=target.committed_at_ms,
            created_at_ms=time.time_ns() // 1_000_000,
            previous=below.lsn if below is not None else None,
            segments_from=str(segments[0].name) if segments else "",
            segments_to=str(segments[-1].name) if segments else "",
            buckets=buckets,
            feeds=tuple(_feeds(self._lines, seen, entries)),
            files=tuple(
                BaseFile(path=one.path, size=one.size, crc=one.crc, rows=one.rows, bucket=one.bucket)
                for one in written
            ),
            registry=tuple(newest_registry(below, self._manifests, target).values()),
            gaps=(*(below.gaps if below is not None else ()), *_gaps(self._plan)),
        )


def _above(lsn: Lsn) -> Lsn:
    return ZERO if lsn == ZERO else Lsn.from_int(int(lsn) + 1)


def _feeds(
    lines: Mapping[str, Line], seen: Survey, entries: Mapping[tuple[str, str], int]
) -> Iterable[BaseFeed]:
    for line in lines.values():
        for place, span in enumerate(line.spans):
            history = span.feed, span.incarnation
            end, other_keys = seen.ends[history], seen.other_keys[span.feed]
            yield BaseFeed(
                feed=span.feed,
                region_id=span.region_id,
                incarnation=span.incarnation,
                first_sequence_id=span.first if place else line.first,
                sequence_id=end.sequence_id,
                lsn=str(end.lsn),
                entries=entries.get(history, 0),
                other_keys=UNSET if other_keys is None else tuple(sorted(other_keys)),
            )


def _gaps(found: RestorePlan) -> Iterable[BaseGap]:
    for one in found.gaps:
        yield BaseGap(after_lsn=str(one.after), before_lsn=str(one.before), reasons=one.told)
