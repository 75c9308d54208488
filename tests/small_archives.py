"""A small archive whose every byte a test may change, and what verify says of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from headrace.backup.verifying.archive_check import verify
from headrace.backup.verifying.findings import Finding, Verification
from headrace.wire.kwal_left_open import LeftOpen
from headrace.wire.kwal_manifest import Manifest, encode_manifest
from tests.archive_model import Append, History
from tests.base_files import write_whole_base
from tests.kwal import manifest_of, write


class Small:
    """A small archive: four segments of two feeds, one with source times, a base in the middle.

    ``txs``: the transactions of the first feed's appends, the first of their entries: name, last.
    """

    def __init__(self, folder: Path, txs: Sequence[tuple[str, bool]] = ()) -> None:
        self.folder = folder
        named = dict(zip(range(0, 12, 2), txs, strict=False))
        appends = [
            Append(
                7 + at % 2,
                10 * at,
                (named.get(at, ("", False)), *(("", False),) * 2),
                source_ms=1_000 + at if at % 2 else 0,
            )
            for at in range(12)
        ]
        self.history = History(appends)
        self.segments = self.history.segments([3, 6, 9])
        folder.mkdir()
        self.manifests: list[Manifest] = []
        left = LeftOpen()
        for before, one in zip([None, *self.segments], self.segments, strict=False):
            manifest = manifest_of(one, before=before, left=left)
            self.manifests.append(manifest)
            write(folder, one, manifest)
        self.base = write_whole_base(folder, self.segments, self.segments[1].name.last)

    def file(self, at: int) -> Path:
        """The file of a segment."""
        return self.folder / str(self.segments[at].name)

    def manifest(self, at: int) -> Path:
        """The file of its manifest."""
        return self.folder / self.segments[at].name.manifest

    def rewrite(self, at: int, **changes: object) -> None:
        """Write a segment's manifest with other values, and a checksum that fits them."""
        self.manifest(at).write_bytes(encode_manifest(msgspec.structs.replace(self.manifests[at], **changes)))


def of(folder: Path, **options: object) -> Verification:
    """Look at all of an archive."""
    return verify(str(folder), **options)  # type: ignore[arg-type]  # a test's own shorthand


def only(found: Verification) -> Finding:
    """Return the one thing that is wrong."""
    assert len(found.findings) == 1, found.findings
    return found.findings[0]


def earlier(lsn: str) -> str:
    """An LSN one step of the clock before."""
    return f"{int(lsn[:16], 16) - 1:016x}{lsn[16:]}"
