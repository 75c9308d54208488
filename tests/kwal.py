"""KWAL segments and folders of them for tests: entries as our server stamps them, cut into segments, with manifests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO, Lsn, lsn_of
from headrace.wire import entry as wal_entry
from headrace.wire.kwal import Sealed, SegmentWriter
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import FeedRun, survey
from headrace.wire.kwal_left_open import LeftOpen
from headrace.wire.kwal_manifest import FeedRange, Manifest, Predecessor, encode_manifest

TS = 1_800_000_000_000 << 18
INCARNATION = "ecb4aeb2-1c53-4e81-9b51-2fba0d685531"


class Stamped(NamedTuple):
    """One append as a subscriber receives it: ``entries`` fields, their sizes, first and last LSN."""

    body: bytes
    sizes: list[int]
    first: Lsn
    last: Lsn


def stamped(
    changes: Sequence[Change], first_id: int, *, ts: int, region: int = 7, feed: str = "vmapi::vm"
) -> Stamped:
    """Stamp one append as the server does."""
    body, lengths = wal_entry.stamp(
        [wal_entry.encode_half(change) for change in changes],
        global_ts=ts,
        region_id=region,
        first_sequence_id=first_id,
        tenant="acme",
        key_prefix=f"eu:acme:{feed}:",
    )
    sizes = memoryview(lengths).cast("I").tolist()
    ends = [lsn_of(ts, region, first_id, index) for index in (0, len(changes) - 1)]
    return Stamped(body, sizes, *ends)


def sealed(appends: Sequence[Stamped]) -> Sealed:
    """Write the appends into a segment."""
    writer = SegmentWriter()
    for append in appends:
        writer.add(*append)
    return writer.seal()


def bytes_of(segment: Sealed) -> bytes:
    """The segment's file."""
    return b"".join(segment.pieces)


def manifest_of(
    segment: Sealed,
    *,
    before: Sealed | None = None,
    walked_from: Lsn | None = None,
    incarnations: dict[int, str] | None = None,
    near: int = 1,
    left: LeftOpen | None = None,
) -> Manifest:
    """The manifest as an agent writes it, of a stream that ran unbroken since the segment ``before``.

    ``left``: what is open before it, and then behind it; without that, transactions are not told of, as by older agents.
    """
    data = bytes_of(segment)
    runs = survey(Segment(data, where="a segment").blocks(), left.names() if left is not None else None)
    if walked_from is None:
        walked_from = before.name.last if before is not None else ZERO
    return Manifest(
        segment=str(segment.name),
        first_lsn=str(segment.name.first),
        last_lsn=str(segment.name.last),
        entries=segment.entries,
        size=segment.size,
        crc=segment.crc,
        walked_from=str(walked_from),
        predecessor=Predecessor(name=str(before.name), last_lsn=str(before.name.last), crc=before.crc)
        if before is not None
        else None,
        feeds=tuple(_placed(runs, incarnations or {}, near, left)),
    )


def _placed(
    runs: Sequence[FeedRun], incarnations: dict[int, str], near: int, left: LeftOpen | None
) -> Iterator[FeedRange]:
    for run in runs:
        incarnation = incarnations.get(run.region_id, INCARNATION)
        if left is None:
            yield run.placed(incarnation, near)
            continue
        placed = run.placed(incarnation, near, left.of(run.region_id, incarnation))
        left.take(placed)
        yield placed


def write(folder: Path, segment: Sealed, manifest: Manifest | None) -> Path:
    """Write a segment, and its manifest if it has one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / str(segment.name)
    path.write_bytes(bytes_of(segment))
    if manifest is not None:
        (folder / segment.name.manifest).write_bytes(encode_manifest(manifest))
    return path


def write_folder(folder: Path, segments: Sequence[Sealed], *, near: int = 1) -> None:
    """Write segments that follow one another, with their manifests."""
    for before, segment in zip([None, *segments], segments, strict=False):
        write(folder, segment, manifest_of(segment, before=before, near=near))


def numbered(
    first_id: int, count: int, *, region: int = 7, feed: str = "vmapi::vm", size: int = 0
) -> Stamped:
    """An append of numbered changes; its timestamp grows with the sequence id."""
    changes = [
        Change(f'{{"n":{number}}}'.encode() + b" " * size, key=f"k{number % 5}".encode(), table=("main", "t"))
        for number in range(first_id, first_id + count)
    ]
    return stamped(changes, first_id, ts=TS + first_id, region=region, feed=feed)
