"""A folder of KWAL segments of one feed, as a backup agent writes them, for benches that read one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

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
_JSON = b'{"text":"%b"}'


def write_segments(
    folder: Path,
    entries: int,
    segment_bytes: int,
    value_bytes: int = VALUE_BYTES,
    keys: int | None = None,
) -> None:
    """Write segments of ``entries`` entries in all, a multiple of :data:`APPEND`, with their manifests.

    Values are JSON objects of ``value_bytes`` bytes, most of it random. ``keys``: each entry puts one of so many, drawn with
    a fixed seed; None: each puts another one.
    """
    before: Sealed | None = None
    writer = SegmentWriter()
    drawing = np.random.default_rng(seed=1)
    for first in range(1, entries + 1, APPEND):
        ts = TS + first
        if keys is None:
            numbers = list(range(first, first + APPEND))
        else:
            numbers = drawing.integers(keys, size=APPEND).tolist()
        halves = [
            encode_half(Change(value, key=b"key-%012d" % number))
            for number, value in zip(numbers, _values(value_bytes), strict=True)
        ]
        body, lengths = stamp(
            halves, global_ts=ts, region_id=1, first_sequence_id=first, tenant="t", key_prefix="main:t:bench:"
        )
        sizes = memoryview(lengths).cast("I").tolist()
        writer.add(body, sizes, Lsn(ts, 1, first), Lsn(ts, 1, first + APPEND - 1))
        if writer.size >= segment_bytes or first + APPEND > entries:
            before = _finish(folder, writer.seal(), before)
            writer = SegmentWriter()


def _values(size: int) -> list[bytes]:
    """Return an append's values."""
    length = size - len(_JSON % b"")
    text = os.urandom(APPEND * length // 2 + 1).hex().encode()
    return [_JSON % text[at * length : (at + 1) * length] for at in range(APPEND)]


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
