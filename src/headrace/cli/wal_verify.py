"""``headrace wal verify``: read every byte of an archive, and say what is damaged and what is missing."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.cli.rate_progress import rate_progress
from headrace.cli.wal_options import Flag, identity_of
from headrace.errors import Usage

if TYPE_CHECKING:
    from headrace.backup.verifying.findings import Verification

DAMAGED: Final = 3
"""Exit code where anything is wrong, as the errors have it that a restore would end with."""


def verify_command(
    *,
    wal_dir: str,
    identity: Path | None = None,
    fast: Flag = False,
    workers: int | None = None,
    json: Flag = False,
) -> int:
    """Check every segment, manifest, base snapshot and record of a gap, and that nothing is missing; nothing is changed.

    Exit code 0 if all is whole, 3 if anything is wrong. An agent, a restore and a prune may be at work meanwhile.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    identity
        File of the age identities that open encrypted segments. Without it, their ciphertext is checked, and no entry.
    fast
        Check files' checksums and manifests only, not each entry and row.
    workers
        Processes at most; each holds one segment in memory. Default: as many as there are processors.
    json
        Print one JSON document.
    """
    from headrace.backup.verifying.archive_check import verify

    if workers is not None and workers < 1:
        raise Usage(f"--workers {workers}: it takes one process at least")
    with rate_progress("checking") as progress:
        found = verify(wal_dir, identity=identity_of(identity), fast=fast, workers=workers, progress=progress)
    if json:
        print(json_text.dumps(found.document()), flush=True)
    else:
        _print(found)
    return DAMAGED if found.findings else 0


def _print(found: Verification) -> None:
    for one in found.findings:
        place = f" at byte {one.byte}" if one.byte is not None else ""
        print(f"{one.code}: {one.file}{place}\n    {one.detail}")
    for gap in found.accepted:
        print(
            f"known loss, accepted by {gap.by}: above lsn={gap.after}, below lsn={gap.before}: {gap.reason}"
        )
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if found.unread:
        print(
            f"note: {found.unread} segments are encrypted: their ciphertext is as it was written, no entry was looked at "
            "(--identity FILE)",
            file=sys.stderr,
        )
    verdict = f"{len(found.findings)} things are wrong" if found.findings else "all whole"
    depth = (
        "checksums and manifests of "
        if found.fast
        else f"{found.entries:,} entries and {found.rows:,} rows in "
    )
    rate = found.bytes / found.seconds / 1e6 if found.seconds else 0.0
    print(
        f"{verdict}: {depth}{found.segments:,} segments and {found.bases:,} bases, {found.bytes / 1e6:,.1f} MB in "
        f"{found.seconds:.1f} s ({rate:,.0f} MB/s)"
    )
    if found.findings:
        print("What to do: docs/howto/verify-a-backup.md", file=sys.stderr)
