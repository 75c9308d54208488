"""An archive of one feed: the segments that hold a range of its sequence ids. Called by the source's option ``archive``.

Manifests tell which entries a segment holds. A segment without one is read for that, and believed only between two segments
that have one and hold the same history: nothing in a segment itself tells two histories of a feed apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from headrace.archive.files.folder import Folder
from headrace.archive.files.segments import Stored
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import SequenceNotAvailable
from headrace.wire.kwal_columns import Segment, Wanted
from headrace.wire.kwal_feeds import survey
from headrace.wire.kwal_manifest import FeedRange, Manifest

_KNOWN_MAX: Final = 20_000
"""Manifests kept in a process: they never change, and a query asks for its archive again and again."""
_known: dict[tuple[str, ...], Manifest] = {}


class SegmentPart(NamedTuple):
    """The entries ``first`` … ``last`` (sequence ids) of one history of a feed, all of them in one segment."""

    url: str
    file: str
    feed: str
    incarnation: str
    first: int
    last: int
    manifest: Manifest


def segments_of(
    url: str, feed: str, incarnation: str, first: int, last: int, *, identity: str = ""
) -> list[SegmentPart]:
    """Return the parts of the archive's segments that are the entries ``first`` … ``last``, in order, none left out.

    SequenceNotAvailable, naming what is missing first, if the archive does not have all of them. Raises what
    :meth:`headrace.archive.files.folder.Folder.segments` raises, too. ``identity``: what opens an encrypted segment without
    a manifest, which has to be read.
    """
    folder = Folder(url, identity)
    segments = folder.segments()
    manifests = _manifests(folder, url, segments)
    parts = _parts(url, segments, manifests, feed, incarnation)
    missing = _missing(parts, first, last)
    if missing is not None and any(one.file not in manifests for one in segments):
        manifests |= _read_through(folder, url, segments, manifests, history=(feed, incarnation))
        parts = _parts(url, segments, manifests, feed, incarnation)
        missing = _missing(parts, first, last)
    if missing is not None:
        raise SequenceNotAvailable(
            f"the archive {folder.shown} lacks the entries {missing[0]} to {missing[1]} of {feed} "
            f"(incarnation {incarnation}); a query that is to go without them begins with another start",
            change_feed_id=feed,
        )
    return [
        part._replace(first=max(part.first, first), last=min(part.last, last))
        for part in parts
        if part.last >= first and part.first <= last
    ]


def parts_with(url: str, feed: str, sequence_id: int, lsn: str) -> list[SegmentPart]:
    """Return each entry ``sequence_id`` of the feed that may have this LSN, by the manifests: one a history at most.

    Raises what :meth:`headrace.archive.files.folder.Folder.segments` raises.
    """
    folder = Folder(url)
    manifests = _manifests(folder, url, folder.segments())
    wanted = Lsn.parse(lsn)
    return [
        SegmentPart(url, file, feed, one.incarnation, sequence_id, sequence_id, manifest)
        for file, manifest in manifests.items()
        for one in manifest.feeds
        if one.feed == feed
        and one.first_sequence_id <= sequence_id <= one.last_sequence_id
        and Lsn.parse(one.first_lsn) <= wanted <= Lsn.parse(one.last_lsn)
    ]


def read_part(part: SegmentPart, names: Sequence[str], *, identity: str = "") -> Iterator[Any]:
    """Yield the part's entries as record batches with the columns ``names`` of :mod:`headrace.wire.columns`, in order.

    SegmentCorrupt, before the first row, if the segment is damaged; IdentityNeeded; ArchiveUnavailable.
    """
    folder = Folder(part.url, identity)
    segment = Segment(
        folder.read_segment(part.file, part.manifest),
        where=folder.where(part.file),
        name=part.manifest.name,
        manifest=part.manifest,
    )
    wanted = Wanted(feeds=(part.feed,), incarnation=part.incarnation, first_id=part.first, last_id=part.last)
    yield from segment.batches(names, wanted)


def _manifests(folder: Folder, url: str, segments: Sequence[Stored]) -> dict[str, Manifest]:
    if len(_known) > _KNOWN_MAX:
        _known.clear()
    unseen = [one for one in segments if (url, one.file) not in _known]
    for file, manifest in folder.manifests(unseen).items():
        _known[url, file] = msgspec.structs.replace(manifest, registry=())
    return {one.file: _known[url, one.file] for one in segments if (url, one.file) in _known}


def _parts(
    url: str, segments: Sequence[Stored], manifests: dict[str, Manifest], feed: str, incarnation: str
) -> list[SegmentPart]:
    return [
        SegmentPart(
            url,
            one.file,
            feed,
            incarnation,
            part.first_sequence_id,
            part.last_sequence_id,
            manifests[one.file],
        )
        for one in segments
        for part in _ranges(manifests.get(one.file), feed, incarnation)
    ]


def _ranges(manifest: Manifest | None, feed: str, incarnation: str) -> list[FeedRange]:
    feeds = manifest.feeds if manifest is not None else ()
    return [one for one in feeds if (one.feed, one.incarnation) == (feed, incarnation)]


def _missing(parts: Sequence[SegmentPart], first: int, last: int) -> tuple[int, int] | None:
    """Return the first run of ids that no part has; None if there is none."""
    expected = first
    for part in parts:
        if part.first > expected:
            return expected, min(part.first - 1, last)
        expected = max(expected, part.last + 1)
        if expected > last:
            return None
    return (expected, last) if expected <= last else None


def _read_through(
    folder: Folder,
    url: str,
    segments: Sequence[Stored],
    manifests: dict[str, Manifest],
    *,
    history: tuple[str, str],
) -> dict[str, Manifest]:
    """Return what the segments without a manifest hold of this history, as far as their neighbours vouch for it."""
    feed, incarnation = history
    ranges = [_ranges(manifests.get(one.file), feed, incarnation) for one in segments]
    told = [at for at, found in enumerate(ranges) if found]
    made = {}
    for at, one in enumerate(segments):
        before = [number for number in told if number < at]
        if one.file in manifests or not before or told[-1] < at:
            continue
        if kept := _known.get((url, one.file, feed, incarnation)):
            made[one.file] = kept
            continue
        known = ranges[before[-1]][-1]
        segment = Segment(folder.read_segment(one.file), where=folder.where(one.file), name=one.name)
        feeds = [
            run.placed(
                incarnation if (run.region_id, run.feed) == (known.region_id, feed) else "",
                known.last_sequence_id,
            )
            for run in survey(segment.blocks())
        ]
        made[one.file] = _known[url, one.file, feed, incarnation] = Manifest(
            segment=str(one.name),
            first_lsn=str(one.name.first),
            last_lsn=str(one.name.last),
            entries=len(segment),
            size=one.size,
            crc=segment.crc,
            walked_from=str(ZERO),
            feeds=tuple(feeds),
        )
    return made
