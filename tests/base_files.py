"""Base snapshots for tests, made without Spark: the rows of an archive's segments up to an LSN, nothing folded."""

from __future__ import annotations

import io
import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.archive.files.bases import read_bases
from headrace.archive.files.folder import Folder
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import MANIFEST, BaseFeed, BaseFile, BaseManifest, base_folder, encode_base
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_columns import SCHEMA, Segment, Wanted
from headrace.wire.kwal_manifest import Manifest, decode_manifest
from tests.kwal import bytes_of


def write_whole_base(folder: Path, segments: Sequence[Sealed], lsn: Lsn, *, buckets: int = 2) -> Path:
    """Write a base at ``lsn`` with all entries of ``segments``, whose manifests stand in ``folder``; returns its folder."""
    manifests = [_manifest(folder, one) for one in segments]
    batches = [
        batch
        for one, manifest in zip(segments, manifests, strict=True)
        for batch in Segment(bytes_of(one), where="a segment", manifest=manifest).batches(
            wanted=Wanted(last=lsn)
        )
    ]
    return _write(folder, lsn, pa.Table.from_batches(batches, schema=SCHEMA), buckets)


def write_next_base(folder: Path, lsn: Lsn) -> Path:
    """Write a base at ``lsn`` of what stands in an archive: its newest base and the segments behind; returns its folder."""
    found = Folder(str(folder))
    bases = read_bases(found).sound
    # An agent may be writing the newest one.
    segments = [one for one in found.segments() if one.name.first <= lsn]
    manifests = found.manifests(segments)
    above = bases[-1].lsn if bases else ZERO
    wanted = Wanted(first=Lsn.from_int(int(above) + 1), last=lsn)
    tables = [
        pq.read_table(folder / one.path / file.path, schema=SCHEMA, partitioning=None)
        for one in bases[-1:]
        for file in one.manifest.files
    ]
    for one in segments:
        data, manifest = found.read_segment(one.file), manifests[one.file]
        batches = Segment(data, where=one.file, manifest=manifest).batches(wanted=wanted)
        tables.append(pa.Table.from_batches(batches, schema=SCHEMA))
    return _write(folder, lsn, pa.concat_tables(tables).sort_by("lsn"), 2)


def _write(folder: Path, lsn: Lsn, table: pa.Table, buckets: int) -> Path:
    base = folder / base_folder(lsn)
    base.mkdir()
    files = []
    for bucket in range(buckets):
        part = table.take(pa.array(range(bucket, table.num_rows, buckets), pa.int64()))
        sink = io.BytesIO()
        pq.write_table(part, sink)
        path = f"bucket={bucket}/part-0.parquet"
        (base / path).parent.mkdir()
        (base / path).write_bytes(data := sink.getvalue())
        files.append(
            BaseFile(path=path, size=len(data), crc=zlib.crc32(data), rows=part.num_rows, bucket=bucket)
        )
    manifest = BaseManifest(
        lsn=str(lsn),
        committed_at_ms=lsn.committed_at_ms,
        created_at_ms=1,
        buckets=buckets,
        feeds=tuple(_feeds(table)),
        files=tuple(files),
    )
    (base / MANIFEST).write_bytes(encode_base(manifest))
    return base


def _manifest(folder: Path, segment: Sealed) -> Manifest:
    return decode_manifest((folder / segment.name.manifest).read_bytes(), "a manifest")


def _feeds(table: pa.Table) -> list[BaseFeed]:
    found: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for row in table.select(["feed", "incarnation", "lsn", "sequence_id"]).to_pylist():
        found.setdefault((row["feed"], row["incarnation"]), []).append((row["lsn"], row["sequence_id"]))
    return [
        BaseFeed(
            feed=feed,
            region_id=Lsn.parse(rows[0][0]).region_id,
            incarnation=incarnation,
            first_sequence_id=rows[0][1],
            sequence_id=rows[-1][1],
            lsn=rows[-1][0],
            entries=len(rows),
        )
        for (feed, incarnation), rows in found.items()
    ]
