"""Losses of an archive that somebody has accepted: ``kdb-gap-{from}-{to}.json``, written by ``headrace wal gap ack``.

A gap that is accepted no longer keeps a restore from going over it, and stays visible everywhere. ``docs/formats/gap.md``
describes the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from headrace.archive.files.folder import Folder
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, SegmentCorrupt
from headrace.runtime.typed_json import decode_json
from headrace.wire.kwal_manifest import check_seal, sealed_document
from headrace.wire.versions import GAP, check_readable

REASON_CHARS_MAX: Final = 1_000

_NAME: Final = re.compile(r"kdb-gap-([^-]+)-([^-]+)\.json")
_READERS: Final = 16
"""Files read at once."""


class AcceptedGap(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    """Entries above ``after`` and below ``before`` may be missing, and somebody accepts that.

    ``by``: who, as user@host; ``at_ms``: when, UTC milliseconds; ``reason``: why, in his words.
    """

    written_as: int = GAP.written_as
    readable_from: int = GAP.readable_from
    after: str
    before: str
    reason: str
    by: str
    at_ms: int

    @property
    def span(self) -> tuple[Lsn, Lsn]:
        """Both ends; neither is in the gap."""
        return Lsn.parse(self.after), Lsn.parse(self.before)


class _Versions(msgspec.Struct, frozen=True, rename="kebab", kw_only=True):
    written_as: int
    readable_from: int


def gap_file(gap: AcceptedGap) -> str:
    """Return the name of the file that records it."""
    after, before = gap.span
    return f"kdb-gap-{after}-{before}.json"


def is_gap_file(name: str) -> bool:
    """Tell whether a file's name is one of :func:`gap_file`."""
    return _NAME.fullmatch(name) is not None


def encode_gap(gap: AcceptedGap) -> bytes:
    """Return the file's bytes: JSON in UTF-8, its checksum the last member."""
    return sealed_document(msgspec.json.encode(gap))


def decode_gap(data: bytes, where: str) -> AcceptedGap:
    """Read one; SegmentCorrupt, naming ``where``, if it is not what was written, or none; FormatTooNew."""
    try:
        versions = decode_json(data, _Versions)
        check_readable(where, versions.readable_from, GAP)
        gap = decode_json(data, AcceptedGap)
        after, before = gap.span
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRequest) as error:
        raise SegmentCorrupt(f"{where} is no record of an accepted gap: {error}") from None
    if problem := check_seal(data):
        raise SegmentCorrupt(f"{where} {problem}")
    name = where.rpartition("/")[2]
    if after >= before or (is_gap_file(name) and name != gap_file(gap)):
        raise SegmentCorrupt(
            f"{where} records a gap from {after} to {before}, which is not what its name says"
        )
    return gap


def read_gaps(folder: Folder, names: Sequence[str]) -> list[AcceptedGap]:
    """Return the accepted gaps that the files ``names`` record, in LSN order. SegmentCorrupt; ArchiveUnavailable."""
    found = [decode_gap(data, where) for where, data in _read(folder, names)]
    return sorted(found, key=lambda gap: gap.span)


def sound_gaps(folder: Folder, names: Sequence[str]) -> tuple[list[AcceptedGap], list[str]]:
    """Return the accepted gaps whose records are what was written, in LSN order, and what is wrong with the others.

    A loss whose record is damaged counts as accepted by nobody. ArchiveUnavailable; FormatTooNew.
    """
    found, damaged = [], []
    for where, data in _read(folder, names):
        try:
            found.append(decode_gap(data, where))
        except SegmentCorrupt as error:
            damaged.append(error.detail)
    return sorted(found, key=lambda gap: gap.span), damaged


def counting(accepted: Iterable[AcceptedGap], missing: Sequence[tuple[Lsn, Lsn]]) -> list[AcceptedGap]:
    """Return the records as far as they count: for what is missing where they begin, and not for what is lost later.

    ``missing``: ends of what is, in LSN order; neither is in it. One that was written before the agent went on may say more
    than was lost then: behind the first entry that it found again, nobody has accepted anything.
    """
    found = []
    for one in sorted(accepted, key=lambda gap: gap.span):
        after, before = one.span
        ends = (end for begin, end in missing if begin <= after and int(after) + 1 < int(end))
        if (end := next(ends, None)) is not None:
            found.append(one if before <= end else msgspec.structs.replace(one, before=str(end)))
    return found


def _read(folder: Folder, names: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return each record's place, as messages name it, and its bytes."""
    wanted = [name for name in names if is_gap_file(name)]
    with ThreadPoolExecutor(_READERS) as readers:
        read = list(readers.map(folder.read, wanted))
    return [(folder.where(name), data) for name, data in zip(wanted, read, strict=True)]
