"""A folder of KWAL segments of one feed, as a backup agent writes them, for benches that read one."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.entry import encode_half, stamp
from headrace.wire.kwal import Sealed, SegmentWriter
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import survey
from headrace.wire.kwal_manifest import Manifest, Predecessor, encode_manifest

APPEND = 1_000
"""Entries of an append."""
VALUE_BYTES = 256
TS = 1_800_000_000_000 << 18


def write_segments(folder: Path, entries: int, segment_bytes: int, value_bytes: int = VALUE_BYTES) -> None:
    """Write segments of ``entries`` entries in all, with their manifests."""
    before: Sealed | None = None
    writer = SegmentWriter()
    for first in range(1, entries + 1, APPEND):
        ts = TS + first
        halves = [
            encode_half(Change(os.urandom(value_bytes), key=f"key-{number:012d}".encode()))
            for number in range(first, first + APPEND)
        ]
        body, lengths = stamp(
            halves, global_ts=ts, region_id=1, first_sequence_id=first, tenant="t", key_prefix="main:t:bench:"
        )
        sizes = memoryview(lengths).cast("I").tolist()
        writer.add(body, sizes, Lsn(ts, 1, first), Lsn(ts, 1, first + APPEND - 1))
        if writer.size >= segment_bytes or first + APPEND > entries:
            before = _finish(folder, writer.seal(), before)
            writer = SegmentWriter()


def _finish(folder: Path, segment: Sealed, before: Sealed | None) -> Sealed:
    data = b"".join(segment.pieces)
    (folder / str(segment.name)).write_bytes(data)
    runs = survey(Segment(data, where=str(segment.name)).blocks())
    manifest = Manifest(
        segment=str(segment.name),
        first_lsn=str(segment.name.first),
        last_lsn=str(segment.name.last),
        entries=segment.entries,
        size=segment.size,
        crc=segment.crc,
        walked_from=str(before.name.last if before is not None else ZERO),
        predecessor=None
        if before is None
        else Predecessor(name=str(before.name), last_lsn=str(before.name.last), crc=before.crc),
        feeds=tuple(run.placed("bench", run.first_lsn.raft_index) for run in runs),
    )
    (folder / segment.name.manifest).write_bytes(encode_manifest(manifest))
    return segment
