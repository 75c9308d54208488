"""The drill: choose a moment, restore it, fold the log to it in another way, compare. Called by ``headrace wal
drill`` and tests.

Nothing of the archive is changed, and what was written into the scratch folder is taken away.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from headrace.archive.files.folder import Folder
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.archive.rights.holds import NOT_HELD, hold
from headrace.entries.hlc import LOGICAL_BITS
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import ArchiveFull, TargetInsideAppend, TargetUnreachable
from headrace.pipeline.addresses import absolute_file, absolute_folder
from headrace.pipeline.drill.fold import Change, State, folded, is_same
from headrace.pipeline.drill.reading import Source, of_base, of_segments, source_of
from headrace.pipeline.drill.spill import Spill, each_part, parts_for
from headrace.pipeline.drill.statements import Statements
from headrace.pipeline.drill.walking import own_target
from headrace.pipeline.restore.job import Kind, Request, restore
from headrace.pipeline.restore.out import unwritable
from headrace.pipeline.restore.outcome import Outcome
from headrace.pipeline.watching import Tell
from headrace.wire.kwal_columns import Segment

DIFFERENCES_MAX: Final = 20
"""Keys that are listed of those that differ."""
_TRIES_MAX: Final = 20
"""Moments that are tried, if at some no append or transaction is whole yet."""
_KEY_CHARS_MAX: Final = 200
_LARGER: Final = "Name a folder on a larger volume: --scratch DIR. Nothing is left of this drill."
_BITS_BELOW: Final = 64
"""Bits of an LSN below its time."""
_SEQUENCE_ID: Final = Change._fields.index("sequence_id")


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """A key that is not the same: ``restored`` and ``log``: whether each side has it."""

    feed: str
    key: str
    restored: bool
    log: bool


class Report(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a drill found.

    ``seed``: gives the same moment again, as long as the archive is the same. ``asked_lsn`` was asked for, and
    ``target_lsn`` is the last entry kept: the last one before it that is no part of a torn append or transaction.
    ``whole_lsn``: the same by the drill's own walk. ``equal``: every key is, and there is one, and these two LSNs are; of
    nothing it is false. ``left_out``: feeds whose keys and values alone are no exact state. ``restore_seconds``: the
    recovery time, without Spark's start, for ``restore_bytes`` of base and segments.
    ``newest_time_ms``: of the last entry that the archive can restore, ``recovery_point_seconds`` before now: what would
    be lost if all but the archive were. ``warnings``: what else is to be known. Times are UTC milliseconds.
    """

    equal: bool
    seed: int
    archive: str
    asked_lsn: str
    target_lsn: str
    whole_lsn: str
    asked_time_ms: int
    reached_time_ms: int
    base: str | None
    feeds: int
    keys: int
    left_out: list[str]
    differing: int
    differences: list[Difference]
    restore_seconds: float
    restore_bytes: int
    restore_mb_per_second: float
    fold_seconds: float
    newest_lsn: str
    newest_time_ms: int
    recovery_point_seconds: float
    warnings: list[str]


def drill(
    spark: SparkSession,
    url: str,
    *,
    seed: int,
    scratch: str = "",
    identity: str = "",
    tell: Tell | None = None,
) -> Report:
    """Restore a random moment of the archive ``url`` below ``scratch`` (default: the system's folder for temporary files).

    ``scratch`` needs room for the restored keys and values, twice, and for the log up to that moment, not compressed;
    Spark's workers reach it by the same path. TargetUnreachable if no moment can be restored; ArchiveFull and
    StoreUnavailable if it has no room or can't be written; raises what a restore does.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix="headrace-drill-", dir=scratch or None))
    except OSError as failure:
        raise unwritable(scratch or tempfile.gettempdir(), "--scratch", failure) from None
    try:
        if scratch:
            folder.chmod(Path(scratch).stat().st_mode & 0o777)  # workers of another user write there too
        # The fold begins at the archive's oldest start, so all of it is kept from being pruned meanwhile.
        with hold(Folder(absolute_folder(url)), ZERO, "drill") as held:
            choice = random.Random(seed)
            earlier = Archive.read(absolute_folder(url), absolute_file(identity))
            outcome, chosen, last = _restored(
                spark, url, earlier, identity=identity, choice=choice, folder=folder, tell=tell
            )
            archive = Archive.read(absolute_folder(url), absolute_file(identity))
            source = source_of(archive, Lsn.parse(outcome.target_lsn))
            started = time.monotonic()
            kept = {one.feed for one in outcome.feeds}
            whole = own_target(earlier, archive, source.start, last, source.target)
            found = compared(source, outcome, folder)
        newest = newest_restorable(archive)
        return Report(
            equal=found.keys > 0 and not found.differing and whole == source.target,
            seed=seed,
            archive=outcome.archive,
            target_lsn=outcome.target_lsn,
            asked_lsn=str(chosen),
            whole_lsn=str(whole),
            asked_time_ms=chosen.committed_at_ms,
            reached_time_ms=source.target.committed_at_ms,
            base=outcome.plan["base"]["lsn"] if outcome.plan["base"] else None,
            feeds=len(kept),
            keys=found.keys,
            left_out=sorted(source.lines.keys() - kept),
            differing=found.differing,
            differences=found.differences,
            restore_seconds=outcome.seconds,
            restore_bytes=outcome.bytes,
            restore_mb_per_second=round(outcome.bytes / 1e6 / max(outcome.seconds, 1e-3), 1),
            fold_seconds=round(time.monotonic() - started, 3),
            newest_lsn=str(newest),
            newest_time_ms=newest.committed_at_ms,
            recovery_point_seconds=round(time.time() - newest.committed_at_ms / 1000, 3),
            warnings=[] if held else [NOT_HELD],
        )
    except ArchiveFull as full:
        raise ArchiveFull(full.detail, hint=_LARGER) from None
    except OSError as failure:
        raise unwritable(str(folder), "--scratch", failure) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _restored(
    spark: SparkSession,
    url: str,
    archive: Archive,
    *,
    identity: str,
    choice: random.Random,
    folder: Path,
    tell: Tell | None,
) -> tuple[Outcome, Lsn, Lsn]:
    """Restore keys and values at a moment that can be restored; return it, the entry that was chosen, and the last LSN
    that what was asked for lets in.
    """
    refused = TargetUnreachable(f"{archive.folder.shown} has no moment that can be restored")
    for _ in range(_TRIES_MAX):
        chosen = _moment(archive, choice)
        asked, last = Asked(to_lsn=chosen), chosen
        try:
            plan(archive, asked)
        except (TargetInsideAppend, TargetUnreachable):
            asked = Asked(to_time_ms=chosen.committed_at_ms)
            last = Lsn.from_int((chosen.committed_at_ms + 1 << LOGICAL_BITS + _BITS_BELOW) - 1)
        request = Request(
            archive=url,
            asked=asked,
            out=str(folder / "restored"),
            kind=Kind.KV,
            identity=identity,
            allow_incomplete=True,
        )
        try:
            return restore(spark, request, tell), chosen, last
        except TargetUnreachable as error:
            refused = error
    raise refused


def _moment(archive: Archive, choice: random.Random) -> Lsn:
    """Return the LSN of an entry that is chosen at random out of all that can be reached."""
    windows = archive.chain.windows()
    inside = [
        one
        for one in archive.segments
        if one.file in archive.manifests
        and any(window.first <= one.name.last and one.name.first <= window.last for window in windows)
    ]
    if not inside:
        bases = [window.last for window in windows]
        if not bases:
            raise TargetUnreachable(f"{archive.folder.shown} has no moment that can be restored")
        return choice.choice(bases)
    (one,) = choice.choices(inside, [archive.manifests[stored.file].entries for stored in inside])
    segment = Segment(
        archive.folder.read_segment(one.file), where=archive.folder.where(one.file), name=one.name
    )
    number = choice.randrange(len(segment))
    for block in segment.blocks():
        if number < len(block.lsns.low):
            return block.lsns.at(number)
        number -= len(block.lsns.low)
    return one.name.last


def newest_restorable(archive: Archive) -> Lsn:
    """Return the last LSN up to which the archive can be restored. TargetUnreachable if there is none."""
    ends = [one.last for one in archive.windows]
    if not ends:
        raise TargetUnreachable(f"{archive.folder.shown} has no moment that can be restored")
    return max(ends)


class Comparison(NamedTuple):
    """How many keys the log has, how many differ, and the first of these: DIFFERENCES_MAX at most."""

    keys: int
    differing: int
    differences: list[Difference]


def compared(source: Source, outcome: Outcome, folder: Path) -> Comparison:
    """Fold the log, and compare it with what was restored, both spread over files in ``folder``.

    A feed that was not restored is passed over only if the log itself shows that its keys may not tell its rows apart.
    """
    kept = {one.feed for one in outcome.feeds}
    statements = Statements()
    parts = parts_for(source.bytes)
    based = _spilled(folder, "base", parts, of_base(source, statements))
    log = _spilled(folder, "log", parts, of_segments(source, statements))
    restored = _spilled(folder, "restored", parts, _rows(Path(outcome.out)))
    passed = statements.unkeyed - kept
    shown: list[Difference] = []
    keys = differing = 0
    for base, behind, rows in each_part([based, log, restored]):
        changes = chain(sorted(base, key=lambda one: int(one[_SEQUENCE_ID])), behind)
        states = folded((Change(*one) for one in changes if one[0] not in passed), statements)
        keys += len(states)
        for one in _differing(states, (_Row(*row) for row in rows)):
            differing += 1
            if differing <= DIFFERENCES_MAX:
                shown.append(one)
    return Comparison(keys, differing, shown)


def _differing(states: dict[tuple[str, bytes], State], rows: Iterable[_Row]) -> Iterator[Difference]:
    for row in rows:
        state = states.pop((row.feed, row.key), None)
        if state is None or not is_same(state, row._asdict()):
            yield _difference(row.feed, row.key, restored=True, log=state is not None)
    for name in states:
        yield _difference(*name, restored=False, log=True)


class _Row(NamedTuple):
    """A key as it was restored."""

    feed: str
    key: bytes
    value: bytes
    sequence_id: int
    lsn: str


def _spilled(folder: Path, name: str, parts: int, records: Iterable[Sequence[Any]]) -> Spill:
    spill = Spill(folder, name, parts)
    try:
        for one in records:
            spill.add(one)
    finally:
        spill.seal()
    return spill


def _rows(out: Path) -> Iterator[_Row]:
    for folder in sorted(out.glob("feed=*")):
        feed = unquote(folder.name.partition("=")[2])
        for file in sorted(folder.glob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(columns=[*_Row._fields[1:]]):
                for row in batch.to_pylist():
                    yield _Row(feed, **row)


def _difference(feed: str, key: bytes, *, restored: bool, log: bool) -> Difference:
    shown = key.decode("utf-8", "backslashreplace")[:_KEY_CHARS_MAX]
    return Difference(feed=feed, key=shown, restored=restored, log=log)
