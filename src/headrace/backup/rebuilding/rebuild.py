"""Rebuild a server's data folder from an archive, as of a plan's target: whole and checked, or not there at all.

The folder is written under another name beside its own and looked over byte by byte; then it gets its name. Nothing of a
rebuild that fails stays, and what one left that was killed is taken away by the next.
"""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan
from headrace.backup.rebuilding.appends import Appends, Bounds, StoredAppend
from headrace.backup.rebuilding.feeds import Selection, select
from headrace.backup.rebuilding.journal import JournalWriter
from headrace.backup.rebuilding.outcome import Rebuilt, left_out, rebuilt_feed, time_of
from headrace.backup.rebuilding.room import load_at_most, load_of, room_of
from headrace.backup.rebuilding.schemas import base_schemas, segment_schemas
from headrace.backup.rebuilding.tails import begin_state
from headrace.entries.hlc import from_ms, to_ms
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    DataFolderLocked,
    FeedRecreated,
    OutNotEmpty,
    RestoreInexact,
    SegmentGap,
    StoreUnavailable,
)
from headrace.log.files.examine import examine
from headrace.log.files.store import SEGMENT_BYTES
from headrace.log.metadata.rows import SchemaRow
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.tail import FeedTail, JournalState
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk, SyncFailed
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_manifest import Manifest

Progress = Callable[[int, int], None]
"""``progress(done, total)`` in bytes: first of segments that are read (twice, if appends must be counted because there may
not be room for them), then of frames that are checked."""

CLOCK_MARGIN_MS: Final = 60_000
"""How far the server's clock goes on above this machine's, and above the archive's newest entry. Nothing that was lost is
above that, if the lost server's clock was ahead of this machine's by no more than this and the time since it died."""
_SCHEMAS_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What a rebuild uses of its machine. ``segment_bytes``: size of the journal's segments; ``clock_margin_ms``: see
    :data:`CLOCK_MARGIN_MS`.
    """

    clock: Clock
    disk: Disk
    segment_bytes: int = SEGMENT_BYTES
    clock_margin_ms: int = CLOCK_MARGIN_MS


def rebuild(
    plan: RestorePlan,
    archive: Archive,
    data_dir: Path,
    *,
    progress: Progress | None = None,
    means: Means | None = None,
) -> Rebuilt:
    """Rebuild the data folder of a server at ``data_dir``, which must be empty or not there, up to the plan's target.

    Entries, their LSNs, sequence ids, regions and tenants are those of the archive. Each feed has a new incarnation, and an
    epoch above all earlier ones. Returns what is there, and what is not.

    Raises OutNotEmpty, DataFolderLocked (another one is at it), TargetInsideAppend (a target inside an append), SegmentGap
    (a segment without a manifest), SegmentCorrupt, BaseCorrupt, IdentityNeeded, ArchiveUnavailable, RestoreInexact,
    StoreUnavailable (no room, or the disk failed). Nothing stands at ``data_dir`` then; or the error says that the whole
    folder does, as the disk took neither its name for good nor the name back.
    """
    means = means if means is not None else Means(clock=SystemClock(), disk=Disk())
    manifests = [_manifest(archive, one) for one in plan.segments]
    archived = [archive.manifests[one.file] for one in archive.segments if one.file in archive.manifests]
    base = plan.base.manifest if plan.base is not None else None
    selection = select(manifests, archived, base, plan.target_lsn)
    with _draft(data_dir.absolute(), means.disk) as draft:
        return _Rebuild(plan, archive, selection, manifests, means, progress).into(draft, data_dir)


class _Rebuild:
    """One rebuild under way."""

    def __init__(  # noqa: PLR0917  # what the steps have in common
        self,
        plan: RestorePlan,
        archive: Archive,
        selection: Selection,
        manifests: Sequence[Manifest],
        means: Means,
        progress: Progress | None,
    ) -> None:
        self.plan, self.archive, self.selection, self.manifests = plan, archive, selection, manifests
        self.means, self.progress = means, progress
        newest_ms = to_ms(max(plan.target_lsn, selection.archive_end).global_ts)
        self.leads_ms = newest_ms - means.clock.wall_ms()
        margin = from_ms(max(means.clock.wall_ms(), newest_ms) + means.clock_margin_ms)
        self.clock = max([margin, *(Lsn.parse(one.before).global_ts for one in selection.lost)])

    def into(self, draft: Path, data_dir: Path) -> Rebuilt:
        """Write the folder ``draft``, check it, and give it its name."""
        begun = self.means.clock.monotonic()
        state = begin_state(self.selection, self.clock, lambda: str(uuid.uuid4()), self.plan.target_lsn)
        schemas = self._schemas()
        self._check_room(draft, state, schemas)
        with closing(
            JournalWriter(draft, state, segment_bytes=self.means.segment_bytes, disk=self.means.disk)
        ) as journal:
            for append in self._appends():
                journal.add(append)
            tails = journal.finish(self.clock)
        self._check(draft, journal, tails)
        self._metadata(draft, tails, schemas)
        _publish(draft, data_dir.absolute(), self.means.disk)
        feeds = self.selection.feeds
        return Rebuilt(
            data_dir=str(data_dir),
            target_lsn=str(self.plan.target_lsn),
            target_at=time_of(self.plan.target_lsn.committed_at_ms),
            lost_after_lsn=str(max(self.plan.target_lsn, self.selection.archive_end)),
            clock_ms=to_ms(self.clock),
            clock_margin_ms=self.means.clock_margin_ms,
            entries=journal.entries,
            frames=journal.frames,
            frame_bytes=journal.frame_bytes,
            schemas=len(schemas),
            seconds=round(self.means.clock.monotonic() - begun, 3),
            server_regions=tuple(sorted(journal.server_regions)),
            feeds=tuple(rebuilt_feed(tail, feeds[tail.region_id]) for tail in tails),
            left_out=tuple(map(left_out, self.selection.left_out)),
            warnings=(*self.plan.warnings, *self._warnings(tails, journal)),
        )

    def _schemas(self) -> list[SchemaRow]:
        """Read the feeds' schemas that are below the journal: those of the base, and of segments before a gap."""
        feeds = self.selection.feeds.values()
        kept = {(one.feed, history) for one in feeds for history in one.histories}
        base, found = self.plan.base, dict[tuple[object, ...], SchemaRow]()
        after = Lsn.parse(base.manifest.lsn) if base is not None else ZERO
        for row in base_schemas(base, self.plan.base_url, kept) if base is not None else ():
            found[row[:4]] = row
        for stored, manifest, data in self._read(self._segments()[: self.selection.since]):
            where = self.archive.folder.where(stored.file)
            segment = Segment(data, where=where, name=stored.name, manifest=manifest)
            for row in segment_schemas(segment, Lsn.from_int(int(after) + 1), kept):
                found[row[:4]] = row
        return list(found.values())

    def _segments(self) -> list[tuple[Stored, Manifest]]:
        """Return the plan's segments with their manifests, in order."""
        return list(zip(self.plan.segments, self.manifests, strict=True))

    def _check_room(self, draft: Path, state: JournalState, schemas: Sequence[SchemaRow]) -> None:
        """Raise StoreUnavailable unless there is room for all. Appends are counted if there may not be."""
        free = self.means.disk.free_bytes(draft)
        load = load_at_most(self.manifests[self.selection.since :])
        if free >= room_of(load, state, schemas, self.means.segment_bytes):
            return
        needed = room_of(load_of(self._appends()), state, schemas, self.means.segment_bytes)
        if free < needed:
            raise StoreUnavailable(
                f"{draft.parent}: {free:,} bytes are free, and the data folder takes up to {needed:,}",
                hint="Make room, name a folder on a larger volume, or begin at a newer base snapshot: --snapshot.",
            )

    def _appends(self) -> Iterator[StoredAppend]:
        """Yield what goes into the journal, in order."""
        feeds = self.selection.feeds.values()
        histories = [(one.region_id, one.feed, history) for one in feeds for history in one.histories]
        appends = Appends(Bounds(self.selection.after, self.plan.target_lsn, histories))
        segments = self._segments()[self.selection.since :]
        done, total = 0, sum(one.size for one, _ in segments)
        for stored, manifest, data in self._read(segments):
            where = self.archive.folder.where(stored.file)
            segment = Segment(data, where=where, name=stored.name, manifest=manifest)
            yield from appends.of(segment, data, manifest, where)
            done += stored.size
            if self.progress is not None:
                self.progress(done, total)
        appends.finish()

    def _read(
        self, segments: Sequence[tuple[Stored, Manifest]]
    ) -> Iterator[tuple[Stored, Manifest, memoryview]]:
        """Yield the segments' bytes; the next one is read while one is written."""
        with ThreadPoolExecutor(1) as reader:
            reading = [
                reader.submit(self.archive.folder.read_segment, stored.file, manifest)
                for stored, manifest in segments[:1]
            ]
            for number, (stored, manifest) in enumerate(segments):
                data = reading.pop().result()
                for after, told in segments[number + 1 : number + 2]:
                    reading.append(reader.submit(self.archive.folder.read_segment, after.file, told))
                yield stored, manifest, data

    def _check(self, draft: Path, journal: JournalWriter, tails: Sequence[FeedTail]) -> None:
        """Read back every byte, and compare where each feed ends with what the plan says."""
        with closing(examine(draft, disk=self.means.disk, progress=self.progress)) as found:
            if found.damages:
                raise RestoreInexact(f"what was written can't be read back: {found.damages[0].detail}")
            if (found.entries, found.frames) != (journal.entries, journal.frames + len(tails)):
                raise RestoreInexact(
                    f"{journal.entries} entries were written, {found.entries} can be read back"
                )
        ends = {tail.name: tail for tail in tails}
        for one in self.plan.feeds:
            tail = ends.get(one.feed)
            if not one.current or (tail is not None and tail.region_id != one.region_id):
                continue
            holes = self.selection.feeds[one.region_id].holes if tail is not None else ()
            last = max([one.last_sequence_id, *(hole.last_id for hole in holes)])
            if tail is None or tail.head != last:
                end = "is not there" if tail is None else f"ends at {tail.head}"
                raise RestoreInexact(f"the plan has {one.feed} up to {last}; in the journal it {end}")

    def _metadata(self, draft: Path, tails: Sequence[FeedTail], schemas: Sequence[SchemaRow]) -> None:
        """Make the metadata database with the schemas from below the journal and a word to the operator."""
        with closing(SqliteMetadata(draft / METADATA_NAME)) as metadata:
            if schemas:
                metadata.schemas.begin(0)
                for at in range(0, len(schemas), _SCHEMAS_AT_ONCE):
                    metadata.schemas.keep(schemas[at : at + _SCHEMAS_AT_ONCE], 0, None)
            for tail in tails:
                detail = (
                    f"rebuilt from an archive up to sequence id {tail.head}; the feed has a new incarnation"
                )
                metadata.raise_alarm(FeedRecreated.code, detail, self.means.clock.wall_ms(), feed=tail.name)
            metadata.clear_alarms(FeedRecreated.code, agent_id="", now_ms=self.means.clock.wall_ms())

    def _warnings(self, tails: Sequence[FeedTail], journal: JournalWriter) -> Iterator[str]:
        for tail in tails:
            if not tail.owner and not tail.shared:
                yield f"nobody can tell who owned {tail.name}: its publisher must register with takeover"
        if len(journal.server_regions) > 1:
            yield f"entries have several names of the server's region: {', '.join(sorted(journal.server_regions))}"
        if self.leads_ms > 0:
            yield (
                f"the archive's clock leads this machine's by {self.leads_ms / 1000:g} s or more; the server's goes on at "
                f"{time_of(to_ms(self.clock))}. What was lost may lie above that: see --clock-margin"
            )


def _manifest(archive: Archive, stored: Stored) -> Manifest:
    manifest = archive.manifests.get(stored.file)
    if manifest is None:
        raise SegmentGap(
            f"{archive.folder.where(stored.file)} has no manifest: nobody can tell the sequence ids of its entries",
            hint="Start the backup agent once on this folder: it writes the manifest.",
        )
    return manifest


@contextmanager
def _draft(data_dir: Path, disk: Disk) -> Iterator[Path]:
    """Give an empty folder beside ``data_dir``, this process's alone, that is gone afterwards unless it got its name."""
    draft = data_dir.with_name(f".{data_dir.name}.rebuilding")
    try:
        if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
            raise OutNotEmpty(f"{data_dir} is not an empty folder: a journal is not mixed with what is there")
        disk.make_folder(data_dir.parent)
        with _locked(data_dir, draft.with_name(f"{draft.name}.lock"), disk):
            shutil.rmtree(draft, ignore_errors=True)
            try:
                disk.make_folder(draft)
                yield draft
            finally:
                shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise _failed(data_dir, error) from error


@contextmanager
def _locked(data_dir: Path, path: Path, disk: Disk) -> Iterator[None]:
    token = uuid.uuid4().bytes
    with disk.open(path, create=True) as lock:
        if lock.lock():
            lock.write_at(0, token)
        # Else another process has it; or had it, and has just taken the file away.
        if not path.exists() or path.read_bytes() != token:
            raise DataFolderLocked(f"another process is rebuilding {data_dir}")
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _publish(draft: Path, data_dir: Path, disk: Disk) -> None:
    """Give the draft its name, durably; where that is not proven, it loses the name again."""
    disk.sync_folder(draft)
    try:
        disk.rename(draft, data_dir)
    except SyncFailed:
        try:
            disk.rename(data_dir, draft)
        except SyncFailed:
            pass  # it has its first name again; of a power cut nobody can say more on such a disk
        except OSError as error:
            raise StoreUnavailable(
                f"{data_dir} stands there, whole, and its name may be lost in a power cut: it was not synced, and could "
                f"not be taken away: {error}",
                hint="Once the disk is well, remove it and rebuild anew.",
            ) from None
        raise


def _failed(data_dir: Path, error: OSError) -> OutNotEmpty | StoreUnavailable:
    if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
        return OutNotEmpty(f"{data_dir} was filled meanwhile: a journal is not mixed with what is there")
    hint = (
        "Check rights and free space. A folder that is a mount point can't be replaced: name one inside it."
    )
    return StoreUnavailable(f"{data_dir} can't be written: {error}", hint=hint)
