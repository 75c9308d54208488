"""Whether the files of an archive fit together: nothing missing between segments, and bases of the very log. Pure."""

from __future__ import annotations

from typing import NamedTuple

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.segments import Stored
from headrace.archive.moments.chain import Chain, Gap
from headrace.archive.moments.fitting import misplaced
from headrace.backup.verifying.findings import Finding
from headrace.backup.verifying.layout import Layout
from headrace.backup.verifying.segment_check import KnownEntry
from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, SegmentGap
from headrace.wire.base_manifest import MANIFEST, BaseFeed


class Continuity(NamedTuple):
    """What is missing, what is worth knowing, and which entries must be in a segment, by the segment's file."""

    findings: list[Finding]
    notes: list[str]
    known: dict[str, list[KnownEntry]]


def judge(layout: Layout) -> Continuity:
    """Judge all files together, by their manifests."""
    found = Continuity([], [], {})
    if layout.overlaps:
        found.notes.append("segments overlap: whether anything is missing between them can't be told")
        return found
    segments = list(layout.segments)
    if len(segments) > 1 and not segments[-1].told:
        newest = segments.pop()
        found.notes.append(
            f"{newest.file} is the newest segment and has no manifest yet: its agent is about to write it, or died; the "
            "agent's next start does it"
        )
    chain = Chain(segments, layout.manifests, layout.bases, layout.accepted)
    for gap in chain.gaps():
        if not gap.accepted:
            found.findings.append(Finding(SegmentGap.code, _file_behind(gap, segments), _told(gap)))
    named = {one.file for one in found.findings}
    for one in segments:
        if not one.told and one.file not in named:
            found.notes.append(f"{one.file} has no manifest: nobody can tell what was before it")
    if any(one.told for one in segments) and not chain.windows():
        detail = "nothing can be rebuilt: the segments do not begin where the log did, and no base snapshot can be used"
        found.findings.append(Finding(SegmentGap.code, segments[0].file, detail))
    for base in layout.bases:
        _place(base, layout, found)
    for base in chain.misfits:
        detail = f"{chain.why_not(base)}: it is of another log or history, and nothing can be rebuilt from it"
        found.findings.append(Finding(SegmentGap.code, f"{base.path}/{MANIFEST}", detail))
    return found


def _file_behind(gap: Gap, segments: list[Stored]) -> str:
    return next(
        (one.file for one in segments if int(one.name.last) >= int(gap.before) - 1), segments[-1].file
    )


def _told(gap: Gap) -> str:
    return f"entries above lsn={gap.after} and below lsn={gap.before} may be missing: {gap.why}"


def _place(base: StoredBase, layout: Layout, found: Continuity) -> None:
    """Find the segments that hold the entries which a base names as the last ones of its feeds."""
    segments = layout.segments
    if segments and base.lsn > segments[-1].name.last:
        detail = f"the base goes on to lsn={base.lsn}, the segments end at lsn={segments[-1].name.last}"
        found.findings.append(Finding(SegmentGap.code, segments[-1].file, detail))
    for feed in base.manifest.feeds:
        lsn = Lsn.parse(feed.lsn)
        for one in segments:
            manifest = layout.manifests.get(one.file)
            if manifest is None or not one.name.first <= lsn <= one.name.last:
                continue
            if detail := misplaced(feed, manifest):
                found.findings.append(Finding(BaseCorrupt.code, f"{base.path}/{MANIFEST}", detail))
                continue
            found.known.setdefault(one.file, []).append(_known(base, feed))


def _known(base: StoredBase, feed: BaseFeed) -> KnownEntry:
    return KnownEntry(feed.incarnation, feed.region_id, feed.sequence_id, feed.lsn, base.path)
