"""The manifest beside a KWAL segment: what the segment itself does not say. ``docs/formats/kwal.md`` describes it.

It tells whether entries are missing before the segment, which entries of which feeds are in it, and what the server knew of
its feeds. Its last member is a checksum of all bytes before that. Backup agents write it, :mod:`headrace.pipeline.wal`
reads it.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final, Self

import msgspec
from msgspec.structs import replace

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, SegmentCorrupt
from headrace.runtime.typed_json import decode_json
from headrace.wire.kwal import SegmentName
from headrace.wire.lost_lsns import LostLsns
from headrace.wire.versions import KWAL_MANIFEST, check_readable

_SEAL: Final = b',\n "manifest-crc": '
"""What stands before the checksum. No text in JSON holds a line's end, so it stands nowhere else."""
_END: Final = b"\n}\n"
_HEX: Final = re.compile("(?:[0-9a-f]{2})+")
_SEALED_SINCE: Final = 2
"""Versions of the format before this one have no checksum."""
_ENCRYPTED_SINCE: Final = 3
"""The version of the format that first tells of encryption."""


class _Document(msgspec.Struct, frozen=True, rename="kebab"):
    """Members are written with hyphens; unknown ones are passed over."""


class Predecessor(_Document, frozen=True, kw_only=True):
    """The segment that the same agent wrote before: its file's name, last LSN and CRC-32."""

    name: str
    last_lsn: str
    crc: int


class Encryption(_Document, frozen=True, kw_only=True):
    """How the segment's file is encrypted: ``size`` in bytes and CRC-32 of the file as it stands there.

    ``format``: always ``age``. ``recipients``: public keys of those who can read it, as text.
    """

    format: str = "age"
    recipients: tuple[str, ...]
    size: int
    crc: int


class FeedRange(_Document, frozen=True, kw_only=True):
    """Entries of one history of one feed, none left out: sequence ids first … last (u64, inclusive) and their LSNs.

    ``ends_whole``: the last entry ends its append, and of each transaction the last entry here is its last one. None: not
    known; older agents did not write it.
    ``left_open``: the transactions (hex) of which the last entry here is not their last one; None: too many, or not known.
    ``continued``: those of them that ranges before this one left open, by their manifests, and that have entries here; None:
    an older agent did not look. See :mod:`headrace.wire.kwal_left_open`.
    """

    feed: str
    region_id: int
    incarnation: str
    first_sequence_id: int
    last_sequence_id: int
    first_lsn: str
    last_lsn: str
    source_time_first_ms: int | None = None
    source_time_last_ms: int | None = None
    ends_whole: bool | None = None
    left_open: tuple[str, ...] | None = None
    continued: tuple[str, ...] | None = None


class RegisteredFeed(_Document, frozen=True, kw_only=True, omit_defaults=True):
    """A feed as the server's admin face gave it when the segment was finished.

    ``incarnation``: the history that it had then; ``first_sequence_id``: where that began (0: nobody knew). Older agents
    wrote neither. ``lost_lsns``: all that rebuilds of the server had lost by then; empty if there was none.
    """

    feed: str
    region_id: int
    tenant_id: str
    mode: str
    owner: str
    epoch: int
    next_sequence_id: int
    incarnation: str = ""
    first_sequence_id: int = 0
    settings: dict[str, Any] = {}
    lost_lsns: tuple[LostLsns, ...] = ()


class Manifest(_Document, frozen=True, kw_only=True):
    """A segment's manifest. ``size`` in bytes; ``walked_from``: the LSN behind which the agent's stream ran unbroken.

    ``predecessor`` is None for the first segment of a folder. ``feeds`` has one element a feed, or several where the segment
    holds two histories of it; they cover every entry. ``size`` and ``crc`` are those of the segment in the clear, whether
    its file is encrypted (``encryption``) or not.
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
    encryption: Encryption | None = None
    feeds: tuple[FeedRange, ...] = ()
    registry: tuple[RegisteredFeed, ...] = ()

    @property
    def name(self) -> SegmentName:
        """The segment that it is of."""
        return SegmentName.parse(self.segment)

    @property
    def file(self) -> str:
        """The name of the segment's file: another one if that is encrypted."""
        return self.segment if self.encryption is None else self.name.encrypted

    @property
    def stored_size(self) -> int:
        """Bytes of the segment's file as it stands in the folder."""
        return self.size if self.encryption is None else self.encryption.size

    def with_encryption(self, encryption: Encryption) -> Self:
        """Return the manifest of the same segment encrypted, which older programs can't read."""
        return replace(self, encryption=encryption, readable_from=_ENCRYPTED_SINCE)


class _Versions(_Document, frozen=True, kw_only=True):
    written_as: int
    readable_from: int


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the file's bytes: JSON in UTF-8, indented, with a newline at the end."""
    return sealed_document(msgspec.json.encode(manifest))


def sealed_document(document: bytes) -> bytes:
    """Return a JSON object's text as a file's bytes: indented, with its checksum as the last member."""
    body = msgspec.json.format(document, indent=1).removesuffix(b"\n}")
    return b"".join((body, _SEAL, str(zlib.crc32(body)).encode(), _END))


def decode_manifest(data: bytes, where: str) -> Manifest:
    """Read a manifest; SegmentCorrupt, naming ``where``, if it is not what was written, or none; FormatTooNew."""
    try:
        versions = decode_json(data, _Versions)
        check_readable(where, versions.readable_from, KWAL_MANIFEST)
        if problem := check_seal(data, needed=versions.written_as >= _SEALED_SINCE):
            raise SegmentCorrupt(f"{where} {problem}")
        manifest = decode_json(data, Manifest)
        whole = SegmentName(Lsn.parse(manifest.first_lsn), Lsn.parse(manifest.last_lsn))
        Lsn.parse(manifest.walked_from)
        if manifest.predecessor is not None:
            Lsn.parse(manifest.predecessor.last_lsn)
        if manifest.name != whole:
            raise InvalidRequest(f"{manifest.segment} is said to hold {whole.first} to {whole.last}")
        if manifest.encryption is not None and manifest.encryption.format != "age":
            raise InvalidRequest(f"its segment is encrypted as {manifest.encryption.format[:80]!r}")
        for feed in manifest.feeds:
            _check_range(feed, whole)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRequest) as error:
        raise SegmentCorrupt(f"{where} is no manifest of a KWAL segment: {error}") from None
    if manifest.entries != sum(map(_count, manifest.feeds)):
        raise SegmentCorrupt(f"{where}: the feeds' ranges are not its {manifest.entries} entries")
    return manifest


def check_seal(data: bytes, *, needed: bool = True) -> str:
    """Say what is wrong with a file's last member, its checksum; empty if nothing is. ``needed``: it must have one."""
    body, found, crc = data.rpartition(_SEAL)
    if needed and not found:
        return "has no checksum at its end: it is not as it was written"
    if found and crc != str(zlib.crc32(body)).encode() + _END:
        return "is not as it was written: its checksum does not fit"
    return ""


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
    for name in (*(found.left_open or ()), *(found.continued or ())):
        if _HEX.fullmatch(name) is None:
            raise InvalidRequest(f"{name[:80]!r} is no transaction's name in hex")
    if found.ends_whole and found.left_open:
        raise InvalidRequest(
            f"the range of {found.feed} from {found.first_lsn} ends whole and leaves some open"
        )


def _count(found: FeedRange) -> int:
    return found.last_sequence_id - found.first_sequence_id + 1
