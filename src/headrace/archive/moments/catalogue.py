"""What stands in an archive: segments, manifests, base snapshots and accepted gaps, read once. Whoever plans begins here.

Nothing but names, sizes and manifests is read, however much the archive holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

from headrace.archive.files.bases import StoredBase, UnsoundBase, usable_bases
from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, sound_gaps
from headrace.archive.files.segments import Stored
from headrace.archive.moments.chain import Chain, Window
from headrace.archive.moments.points import Points
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, SegmentCorrupt
from headrace.wire.kwal_manifest import Manifest


@dataclass(frozen=True)
class Archive:
    """An archive as it was when it was read. ``segments``, ``bases`` and ``gaps_acknowledged`` are in LSN order.

    ``manifests``: by the segment's file, of those that have one. ``unsound_bases``: folders that should be a base and are
    none that can be used, one whose files are not all there with their sizes among them. ``damaged``: of each manifest and
    each record of a gap that is not what was written, and of each segment that has not the size its manifest says, what is
    wrong; they are left out, so what they tell of is a gap.
    """

    folder: Folder
    segments: list[Stored]
    manifests: dict[str, Manifest]
    bases: list[StoredBase] = field(default_factory=list)
    gaps_acknowledged: list[AcceptedGap] = field(default_factory=list)
    unsound_bases: list[UnsoundBase] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, url: str, identity: str = "") -> Self:
        """Read the archive at ``url``; ``identity``: file of the age identities that open its segments, if it has any.

        An archive without a segment may still have bases. SegmentsOverlap; FormatTooNew;
        ArchiveUnavailable if the folder is not there or can't be read; InvalidRequest for what is no archive.
        """
        folder = Folder(url, identity)
        with folder.reaching():
            folder.store.invalidate_cache(folder.path(""))
            listed = folder.store.ls(folder.path(""), detail=False)
        names = [str(one).rstrip("/").rpartition("/")[2] for one in listed]
        bases = usable_bases(folder)
        try:
            segments = folder.segments()
        except InvalidRequest:
            some = bool(bases.sound) or any(one.finished for one in bases.unsound)
            if not some or any(name.startswith("kdb-wal-") for name in names):
                raise
            segments = []
        manifests, damaged = sound_manifests(folder, segments)
        gaps, others = sound_gaps(folder, names)
        return cls(folder, segments, manifests, bases.sound, gaps, bases.unsound, [*damaged, *others])

    def with_base(self, base: StoredBase) -> Self:
        """Return the archive with one base alone, wherever that stands."""
        return replace(self, bases=[base])

    @cached_property
    def chain(self) -> Chain:
        """Its segments, joined."""
        return Chain(self.segments, self.manifests, self.bases, self.gaps_acknowledged)

    @cached_property
    def points(self) -> dict[Lsn, Points]:
        """What was read of segments so far, by where it begins: see :func:`headrace.archive.moments.reachable.points_of`."""
        return {}

    @cached_property
    def windows(self) -> list[Window]:
        """What of it can be rebuilt."""
        return self.chain.windows()


def sound_manifests(folder: Folder, segments: Sequence[Stored]) -> tuple[dict[str, Manifest], list[str]]:
    """Return the manifests that are what was written, by the segment's file, and what is wrong with the others.

    The manifest of a segment that has not the size it says is none of the first. ArchiveUnavailable; FormatTooNew.
    """
    corrupt: dict[str, SegmentCorrupt] = {}
    found = folder.manifests(segments, corrupt)
    damaged = [error.detail for error in corrupt.values()]
    for one in segments:
        if (manifest := found.get(one.file)) is not None and one.size != manifest.stored_size:
            del found[one.file]
            damaged.append(
                f"{folder.where(one.file)} has {one.size} bytes; its manifest says {manifest.stored_size}"
            )
    return found, damaged
