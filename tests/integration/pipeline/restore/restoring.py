"""Restores for tests, and what is in their folders."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyarrow.parquet import read_table
from pyspark.sql import SparkSession

from headrace.archive.moments.target import Asked
from headrace.entries.lsn import Lsn
from headrace.pipeline.connection import Connection, Endpoint
from headrace.pipeline.restore.job import Kind, Request, restore
from headrace.pipeline.restore.outcome import Outcome
from headrace.wire.frame import frames_of
from headrace.wire.kwal import SegmentWriter
from tests.integration.pipeline.restore.history import State
from tests.kwal import manifest_of, write


def restored(
    spark: SparkSession, archive: Path, out: Path, asked: Asked | Lsn, *, kind: str = "kv", **more: Any
) -> Outcome:
    """Restore a moment of the archive."""
    wanted = asked if isinstance(asked, Asked) else Asked(to_lsn=asked)
    return restore(spark, Request(archive=str(archive), asked=wanted, out=str(out), kind=Kind(kind), **more))


def keys_in(out: Path) -> State:
    """Keys and values of a restored folder; each key once."""
    found: State = {}
    for file in sorted(out.glob("feed=*/*.parquet")):
        feed = unquote(file.parent.name.removeprefix("feed="))
        for row in read_table(file, partitioning=None).to_pylist():
            assert (feed, row["key"]) not in found
            found[feed, row["key"]] = row["value"], row["sequence_id"]
    return found


def names_in(out: Path) -> list[str]:
    """What stands in a folder; [] if it is not there."""
    return sorted(one.name for one in out.iterdir()) if out.exists() else []


def archive_of(url: str, feed: str, folder: Path, *cuts: int) -> None:
    """Write a server's feed as segments: one up to each of ``cuts`` (sequence ids at which an append ends), and the rest."""
    ends = sorted(cuts)
    writers = [SegmentWriter() for _ in range(len(ends) + 1)]
    used = [False] * len(writers)
    with Connection(Endpoint(url)) as server:
        view = server.feed(feed)
        first = 1
        while first <= view.head_sequence_id:
            for frame in frames_of(server.frames(feed, first, view.head_sequence_id).data):
                header = frame.header
                number = bisect_left(ends, first)
                writers[number].add(frame.body, frame.lengths, header.lsn(0), header.lsn(header.count - 1))
                used[number] = True
                first = header.first_sequence_id + header.count
    segments = [writer.seal() for writer, is_used in zip(writers, used, strict=True) if is_used]
    incarnations = {view.region_id: view.incarnation}
    near = 1
    for before, segment in zip([None, *segments], segments, strict=False):
        manifest = manifest_of(segment, before=before, incarnations=incarnations, near=near)
        near = manifest.feeds[-1].last_sequence_id
        write(folder, segment, manifest)


def lsn_at(url: str, feed: str, sequence_id: int) -> Lsn:
    """The LSN of an entry that a server still has."""
    with Connection(Endpoint(url)) as server:
        for frame in frames_of(server.frames(feed, sequence_id, sequence_id).data):
            return frame.header.lsn(sequence_id - frame.header.first_sequence_id)
    raise AssertionError(f"{feed} has no entry {sequence_id}")
