"""The archive as its one agent sees it: what is there at the start, and one segment after the other behind it. Blocks.

Order of a deposit: what is about to come (``….pending.json``), the segment, its manifest; only then anything is acked. So an
agent that is killed at any moment leaves nothing that its next start can't finish.
"""

from __future__ import annotations

import getpass
import socket
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from headrace.archive.files.encryption import check_recipients
from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, counting, encode_gap, gap_file, read_gaps
from headrace.archive.files.segments import Stored
from headrace.archive.files.settling import SegmentFiles, prepare, put_segment, settle
from headrace.archive.files.writing import put_new
from headrace.archive.moments.chain import Chain
from headrace.archive.rights.owner import Owner, take
from headrace.backup.following import Lost
from headrace.backup.gathering import Finished
from headrace.backup.histories import Histories, registered
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import SegmentCorrupt
from headrace.runtime.logs import get_logger
from headrace.wire.documents import FeedView
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import FeedRun, survey
from headrace.wire.kwal_manifest import Manifest, Predecessor, encode_manifest

logger = get_logger("backup")

_CURE: Final = (
    "Put an intact copy of the manifest in its place. If there is none and the segment is not encrypted, move the damaged "
    "one away and start the backup again: it reads the segment through and writes another."
)


class Given(NamedTuple):
    """What the server said of a segment's entries: which history of each feed they are of, and its registry then.

    Both by region id. ``walked_from``: the LSN behind which the stream ran unbroken; None: since the segment before.
    ``lost``: what was lost in front of it, if that was accepted.
    """

    incarnations: Mapping[int, str]
    registry: Mapping[int, FeedView]
    walked_from: Lsn | None = None
    lost: Lost | None = None


class Deposits:
    """One archive, owned by this process until the end of a ``with``."""

    def __init__(self, folder: Folder, owner: Owner, recipients: tuple[str, ...], accept_gap: str) -> None:
        self._folder = folder
        self._owner = owner
        self._recipients = recipients
        self._accept_gap = accept_gap
        self._accepted: list[AcceptedGap] = []
        self._missing: list[tuple[Lsn, Lsn]] = []
        self.histories = Histories()
        self.first: Lsn | None = None
        """The archive's first entry; None while it has no segment."""
        self.last: Predecessor | None = None
        """Its last segment."""

    @classmethod
    def open(cls, archive: str, recipients: tuple[str, ...] = (), accept_gap: str = "") -> Self:
        """Take the archive over and finish what an agent that died has left in it.

        ArchiveOwned; ArchiveUnavailable; Usage for a recipient that is none; SegmentCorrupt; SegmentsOverlap; FormatTooNew;
        IdentityNeeded for an encrypted segment that nothing is told of.
        """
        check_recipients(recipients)
        folder = Folder(archive)
        made = cls(folder, take(folder), recipients, accept_gap)
        try:
            made._load()
        except BaseException:
            made.close()
            raise
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def shown(self) -> str:
        """The archive as messages name it."""
        return self._folder.shown

    @property
    def end(self) -> Lsn | None:
        """The last entry that is archived; None if none is."""
        return Lsn.parse(self.last.last_lsn) if self.last is not None else None

    def close(self) -> None:
        """Give the archive up."""
        self._owner.release()

    def check(self) -> None:
        """Return if the archive is still this process's; ArchiveOwned, ArchiveUnavailable."""
        self._owner.check()

    def accepts(self, lost: Lost) -> bool:
        """Tell whether somebody accepted that loss: now, or with ``headrace wal gap ack``.

        A record counts as restores count it: for what is missing where it begins, and for no loss behind that.
        """
        if self._accept_gap:
            return True
        missing = [*self._missing, (lost.after, lost.before)]
        return any(
            after <= lost.after and lost.before <= before
            for after, before in (one.span for one in counting(self._accepted, missing))
        )

    def files_of(self, finished: Finished, runs: list[FeedRun], given: Given) -> SegmentFiles:
        """Return what is to be put for a segment that follows the last one; ``runs``: its survey.

        Once for each segment. BackupGap if it does not follow what is archived.
        """
        if given.lost is not None:
            self.histories.allow_gap()
        sealed, last = finished.sealed, self.last
        walked_from = given.walked_from if given.walked_from is not None or self.end is None else self.end
        manifest = Manifest(
            segment=str(sealed.name),
            first_lsn=str(sealed.name.first),
            last_lsn=str(sealed.name.last),
            entries=sealed.entries,
            size=sealed.size,
            crc=sealed.crc,
            walked_from=str(walked_from if walked_from is not None else ZERO),
            predecessor=last,
            feeds=tuple(self.histories.placed(runs, given.incarnations, given.registry)),
            registry=registered(given.registry.values()),
        )
        return prepare(sealed, manifest, self._recipients)

    def put(self, files: SegmentFiles, lost: Lost | None = None, *, now_ms: int = 0) -> None:
        """Put a segment and its manifest into the archive, durably; call it again after ArchiveFull and ArchiveUnavailable.

        ``lost``: what is missing in front of it and was accepted; the first to go in is a record of that. ArchiveConflict,
        ArchiveOwned.
        """
        if lost is not None:
            self._record(lost, files.manifest, now_ms)
        self._note(put_segment(self._folder, files, self._owner.check))

    def _record(self, lost: Lost, manifest: Manifest, now_ms: int) -> None:
        if self._accept_gap and lost.after != ZERO:
            gap = AcceptedGap(
                after=str(lost.after),
                before=str(manifest.name.first),
                reason=self._accept_gap,
                by=f"{getpass.getuser()}@{socket.gethostname()}",
                at_ms=now_ms,
            )
            if not self._folder.exists(gap_file(gap)):
                put_new(self._folder, gap_file(gap), [encode_gap(gap)])

    def _load(self) -> None:
        segments = self._settled()
        damaged: dict[str, SegmentCorrupt] = {}
        manifests = self._folder.manifests(segments, damaged)
        known = dict(manifests)
        self._accepted = read_gaps(self._folder, list(self._folder.files()))
        for segment in segments:
            if segment.file in damaged:
                # What is told anew, of another one, would not know of this one.
                self._pass_over(
                    damaged[segment.file],
                    needed=segment is segments[-1] or len(manifests) + len(damaged) < len(segments),
                )
                continue
            manifest = manifests.get(segment.file) or self._told_anew(segment)
            known[segment.file] = manifest
            if not self._follows(manifest):
                self.histories.allow_gap()
            self._note(manifest)
        self._missing = [(one.after, one.before) for one in Chain(segments, known).gaps()]

    def _settled(self) -> list[Stored]:
        """Finish what is announced, and return the segments. A put that was on the way may arrive at any moment.

        So a segment without a manifest is looked at once more: nobody may know of it but who announced it.
        """
        seen: list[Stored] | None = None
        while True:
            done = settle(self._folder)
            for one in done:
                logger.info(
                    "a segment of an agent that died is settled", segment=str(one.name), kept=one.kept
                )
            segments = self._folder.segments(needed=False)
            if all(one.told for one in segments) or (not done and segments == seen):
                return segments
            seen = segments

    def _pass_over(self, damage: SegmentCorrupt, *, needed: bool) -> None:
        """Leave a damaged manifest to who mends the archive: a backup that stops until then loses what retention takes.

        ``needed``: the backup can't go on without it.
        """
        if needed:
            raise SegmentCorrupt(damage.detail, hint=_CURE)
        logger.error(
            "a manifest is damaged: what it is needed for can't be restored until it is mended; the backup goes on",
            code=damage.code,
            detail=damage.detail,
            hint=_CURE,
        )
        self.histories.pass_over()

    def _follows(self, manifest: Manifest) -> bool:
        """Tell whether a segment goes on where the one before ends. If not, each feed's next entry may be any later one."""
        last = self.last
        return last is None or (manifest.walked_from == last.last_lsn and manifest.predecessor == last)

    def _note(self, manifest: Manifest) -> None:
        self.histories.take(manifest.feeds)
        self.last = Predecessor(name=str(manifest.name), last_lsn=manifest.last_lsn, crc=manifest.crc)
        self.first = self.first if self.first is not None else manifest.name.first

    def _told_anew(self, segment: Stored) -> Manifest:
        """Read a segment without a manifest through, and write one.

        It says that the segment follows the one before only if each of its feeds goes on where that one ends. What it is of
        is taken from what is archived; of a feed that is new nobody knows the history.
        """
        where = self._folder.where(segment.file)
        read = Segment(self._folder.read_segment(segment.file), where=where, name=segment.name)
        runs = survey(read.blocks(), self.histories.open_transactions)
        end = self.end
        joins = end is not None and self.histories.joins(runs)
        if not joins:
            self.histories.allow_gap()
        manifest = Manifest(
            segment=str(segment.name),
            first_lsn=str(segment.name.first),
            last_lsn=str(segment.name.last),
            entries=len(read),
            size=segment.size,
            crc=read.crc,
            walked_from=str(end if end is not None and joins else Lsn.from_int(int(segment.name.first) - 1)),
            predecessor=self.last,
            feeds=tuple(self.histories.placed(runs, {}, {})),
        )
        logger.warning(
            "a segment has no manifest; it was read through",
            segment=segment.file,
            counts_as="one that goes on" if joins else "one behind a gap",
        )
        self.check()
        put_new(self._folder, segment.name.manifest, [encode_manifest(manifest)])
        return manifest


def surveyed(finished: Finished, histories: Histories) -> list[FeedRun]:
    """Return what a segment holds that follows what ``histories`` has; JournalCorrupt where an entry is none."""
    return survey(finished.blocks(), histories.open_transactions)
