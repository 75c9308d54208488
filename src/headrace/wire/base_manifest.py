"""Base snapshots' manifests: of which moment they are, how far they have each feed, and which files they are.

``docs/formats/base-snapshot.md`` describes them. A base is a folder ``kdb-base-{LSN}/`` of Parquet files; its manifest is
the last file written, so a folder without one is no base. Sealed as a segment's manifest is.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import BaseCorrupt, InvalidRequest
from headrace.runtime.typed_json import decode_json
from headrace.wire.kwal_manifest import RegisteredFeed, check_seal, sealed_document
from headrace.wire.versions import BASE, check_readable

MANIFEST: Final = "manifest.json"
"""The manifest's name inside the base's folder."""

_FOLDER: Final = re.compile(r"kdb-base-([^-/]+)")


class _Document(msgspec.Struct, frozen=True, rename="kebab"):
    """Members are written with hyphens; unknown ones are passed over."""


class BaseFeed(_Document, frozen=True, kw_only=True):
    """How far the base has one history of a feed: all entries up to ``sequence_id``, which has the LSN ``lsn``.

    ``first_sequence_id``: where the feed began. ``entries``: rows of the base's files that are of it. ``other_keys``: of a
    captured feed, the tables with rows whose keys are none of capture's, in all its histories; not there in a base whose
    writer did not look, and may have left some of those rows out.
    """

    feed: str
    region_id: int
    incarnation: str
    first_sequence_id: int
    sequence_id: int
    lsn: str
    entries: int
    other_keys: tuple[tuple[str, ...], ...] | msgspec.UnsetType = msgspec.UNSET


class BaseFile(_Document, frozen=True, kw_only=True):
    """One file: its path below the base's folder, ``size`` in bytes, CRC-32 of all of it, how many rows, of which bucket."""

    path: str
    size: int
    crc: int
    rows: int
    bucket: int


class BaseGap(_Document, frozen=True, kw_only=True):
    """Entries that the base lacks: those above ``after_lsn`` and below ``before_lsn``. Somebody accepted that, for
    ``reasons``.
    """

    after_lsn: str
    before_lsn: str
    reasons: tuple[str, ...] = ()


class BaseManifest(_Document, frozen=True, kw_only=True):
    """A base snapshot: what is left of the log up to ``lsn`` once all that was overwritten is taken away.

    ``buckets``: how many parts the keys are hashed into. ``previous``: LSN of the base it was folded from, None if it
    came from nothing or from publishers' snapshots. ``segments_from`` and ``segments_to``: names of the first and the
    last segment that were folded in; empty for none. ``committed_at_ms``: time of ``lsn``; ``created_at_ms``: when the
    base was made, which never says what it holds. ``gaps``: accepted gaps that this base or one below it was folded over:
    restores from it lack what was in them. ``feeds``: a feed has several elements, the newest history last, where its
    journal was rebuilt and goes on under a new history: together they are its entries.
    """

    written_as: int = BASE.written_as
    readable_from: int = BASE.readable_from
    lsn: str
    committed_at_ms: int
    created_at_ms: int
    previous: str | None = None
    segments_from: str = ""
    segments_to: str = ""
    buckets: int
    feeds: tuple[BaseFeed, ...]
    files: tuple[BaseFile, ...]
    registry: tuple[RegisteredFeed, ...] = ()
    gaps: tuple[BaseGap, ...] = ()

    @property
    def rows(self) -> int:
        """Rows of all files."""
        return sum(one.rows for one in self.files)


class _Versions(_Document, frozen=True, kw_only=True):
    written_as: int
    readable_from: int


def base_folder(lsn: Lsn) -> str:
    """Return the name of the folder of the base at ``lsn``."""
    return f"kdb-base-{lsn}"


def parse_base_folder(name: str) -> Lsn:
    """Read the name of a base's folder; InvalidRequest if it is none."""
    found = _FOLDER.fullmatch(name)
    if found is None:
        raise InvalidRequest(f"{name[:200]!r} is not the name of a base snapshot")
    return Lsn.parse(found[1])


def encode_base(manifest: BaseManifest) -> bytes:
    """Return the manifest's bytes: JSON in UTF-8, its checksum the last member."""
    return sealed_document(msgspec.json.encode(manifest))


def decode_base(data: bytes, where: str) -> BaseManifest:
    """Read a base's manifest; BaseCorrupt, naming ``where``, if it is not what was written; FormatTooNew."""
    try:
        versions = decode_json(data, _Versions)
        check_readable(where, versions.readable_from, BASE)
        found = decode_json(data, BaseManifest)
        _check(found)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRequest) as error:
        raise BaseCorrupt(f"{where} is no manifest of a base snapshot: {error}") from None
    if problem := check_seal(data):
        raise BaseCorrupt(f"{where} {problem}")
    return found


def _check(found: BaseManifest) -> None:
    lsn = Lsn.parse(found.lsn)
    for one in found.feeds:
        if Lsn.parse(one.lsn) > lsn:
            raise InvalidRequest(f"{one.feed} goes on beyond the base's own LSN")
        if not one.first_sequence_id - 1 <= one.sequence_id:
            raise InvalidRequest(f"{one.feed} ends before it begins")
    if sum(one.entries for one in found.feeds) != found.rows:
        raise InvalidRequest("the feeds' entries are not the files' rows")
    if any(not 0 <= one.bucket < found.buckets for one in found.files):
        raise InvalidRequest("a file is of a bucket that there is none of")
