"""Segments as record batches, on workers: each is read whole and verified before its first row goes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from headrace.archive.files.folder import Folder
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_columns import Segment, Wanted
from headrace.wire.kwal_manifest import Manifest


class SegmentTask(NamedTuple):
    """A segment to read: its file, and its manifest if it has one."""

    file: str
    manifest: Manifest | None


def read_segments(
    url: str, tasks: Sequence[SegmentTask], names: Sequence[str], wanted: Wanted, *, identity: str = ""
) -> Iterator[Any]:
    """Yield the wanted entries of the segments as record batches with the columns ``names``, in LSN order.

    One segment is held in memory at a time. SegmentCorrupt, naming file and byte, before a row of a damaged segment goes
    out; IdentityNeeded for an encrypted one that the file ``identity`` does not open; ArchiveUnavailable.
    """
    folder = Folder(url, identity)
    for file, manifest in tasks:
        segment = Segment(
            folder.read_segment(file, manifest),
            where=folder.where(file),
            name=SegmentName.parse(file),
            manifest=manifest,
        )
        yield from segment.batches(names, wanted)


def task_of(file: str, manifest: Manifest | None) -> SegmentTask:
    """Return the task; what the manifest says of the server stays behind."""
    if manifest is None:
        return SegmentTask(file, None)
    import msgspec

    return SegmentTask(file, msgspec.structs.replace(manifest, registry=()))
