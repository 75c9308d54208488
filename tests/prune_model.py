"""Manifests of segments and bases of a log of one feed, for tests of what a prune plans: no file is behind them."""

from __future__ import annotations

from headrace.archive.files.bases import StoredBase
from headrace.entries.lsn import Lsn
from headrace.wire.base_manifest import BaseFeed, BaseManifest, base_folder
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange, Manifest, Predecessor
from tests.kwal import INCARNATION

DAY_MS = 86_400_000
REGION = 7


def segment(
    entries: list[Lsn], first: int, last: int, before: tuple[int, int] | None, walked: Lsn
) -> Manifest:
    """The manifest of the segment that holds the entries ``first`` … ``last``, by their places, behind another one."""
    name = SegmentName(entries[first], entries[last])
    known = SegmentName(entries[before[0]], entries[before[1]]) if before is not None else None
    part = FeedRange(
        feed="vm",
        region_id=REGION,
        incarnation=INCARNATION,
        first_sequence_id=first + 1,
        last_sequence_id=last + 1,
        first_lsn=str(name.first),
        last_lsn=str(name.last),
    )
    return Manifest(
        segment=str(name),
        first_lsn=str(name.first),
        last_lsn=str(name.last),
        entries=last - first + 1,
        size=1,
        crc=first,
        walked_from=str(walked),
        predecessor=Predecessor(name=str(known), last_lsn=str(known.last), crc=before[0])
        if known is not None and before is not None
        else None,
        feeds=(part,),
    )


def base_at(entries: list[Lsn], at: int) -> StoredBase:
    """A base up to an entry."""
    here = entries[at]
    feed = BaseFeed(
        feed="vm",
        region_id=REGION,
        incarnation=INCARNATION,
        first_sequence_id=1,
        sequence_id=at + 1,
        lsn=str(here),
        entries=0,
    )
    manifest = BaseManifest(
        lsn=str(here),
        committed_at_ms=here.committed_at_ms,
        created_at_ms=0,
        buckets=1,
        feeds=(feed,),
        files=(),
    )
    return StoredBase(here, base_folder(here), manifest)
