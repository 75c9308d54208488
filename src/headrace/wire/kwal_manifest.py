"""The manifest beside a KWAL segment: what the segment itself does not say. ``docs/formats/kwal.md`` describes it.

It tells whether entries are missing before the segment, which entries of which feeds are in it, and what the server knew of
its feeds. Backup agents write it, :mod:`headrace.pipeline.wal` reads it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, SegmentCorrupt
from headrace.wire.kwal import SegmentName
from headrace.wire.versions import KWAL_MANIFEST, check_readable


class _Document(msgspec.Struct, frozen=True, rename="kebab"):
    """Members are written with hyphens; unknown ones are passed over."""


class Predecessor(_Document, frozen=True, kw_only=True):
    """The segment that the same agent wrote before: its file's name, last LSN and CRC-32."""

    name: str
    last_lsn: str
    crc: int


class FeedRange(_Document, frozen=True, kw_only=True):
    """Entries of one history of one feed, none left out: sequence ids first … last (u64, inclusive) and their LSNs."""

    feed: str
    region_id: int
    incarnation: str
    first_sequence_id: int
    last_sequence_id: int
    first_lsn: str
    last_lsn: str
    source_time_first_ms: int | None = None
    source_time_last_ms: int | None = None


class RegisteredFeed(_Document, frozen=True, kw_only=True):
    """A feed as the server's admin face gave it when the segment was finished."""

    feed: str
    region_id: int
    tenant_id: str
    mode: str
    owner: str
    epoch: int
    next_sequence_id: int
    settings: dict[str, Any] = {}


class Manifest(_Document, frozen=True, kw_only=True):
    """A segment's manifest. ``size`` in bytes; ``walked_from``: the LSN behind which the agent's stream ran unbroken.

    ``predecessor`` is None for the first segment of a folder. ``feeds`` has one element a feed, or several where the segment
    holds two histories of it; they cover every entry.
    """

    written_as: int = KWAL_MANIFEST.written_as
    readable_from: int = KWAL_MANIFEST.readable_from
    segment: str
    first_lsn: str
    last_lsn: str
    entries: int
    size: int
    crc: int
    walked_from: str
    predecessor: Predecessor | None = None
    feeds: tuple[FeedRange, ...] = ()
    registry: tuple[RegisteredFeed, ...] = ()

    @property
    def name(self) -> SegmentName:
        """The segment that it is of."""
        return SegmentName.parse(self.segment)


class _Versions(_Document, frozen=True, kw_only=True):
    readable_from: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes: JSON in UTF-8, indented, with a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Read a manifest; SegmentCorrupt, naming ``where``, if it is none or contradicts itself; FormatTooNew."""
    try:
        check_readable(where, msgspec.json.decode(data, type=_Versions).readable_from, KWAL_MANIFEST)
        manifest = msgspec.json.decode(data, type=Manifest)
        whole = SegmentName(Lsn.parse(manifest.first_lsn), Lsn.parse(manifest.last_lsn))
        Lsn.parse(manifest.walked_from)
        if manifest.predecessor is not None:
            Lsn.parse(manifest.predecessor.last_lsn)
        if manifest.name != whole:
            raise InvalidRequest(f"{manifest.segment} is said to hold {whole.first} to {whole.last}")
        for feed in manifest.feeds:
            _check_range(feed, whole)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRequest) as error:
        raise SegmentCorrupt(f"{where} is no manifest of a KWAL segment: {error}") from None
    if manifest.entries != sum(map(_count, manifest.feeds)):
        raise SegmentCorrupt(f"{where}: the feeds' ranges are not its {manifest.entries} entries")
    return manifest


def _check_range(found: FeedRange, whole: SegmentName) -> None:
    first, last = Lsn.parse(found.first_lsn), Lsn.parse(found.last_lsn)
    ids = (found.first_sequence_id, found.last_sequence_id)
    inside = whole.first <= first <= last <= whole.last and 0 <= ids[0] <= ids[1]
    placed = all(
        lsn.region_id == found.region_id and lsn.raft_index == number & 0xFFFFFFFF
        for lsn, number in zip((first, last), ids, strict=True)
    )
    if not (inside and placed):
        raise InvalidRequest(
            f"the range of {found.feed} from {found.first_lsn} does not fit its sequence ids"
        )


def _count(found: FeedRange) -> int:
    return found.last_sequence_id - found.first_sequence_id + 1
