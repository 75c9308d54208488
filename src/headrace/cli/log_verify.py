"""``headrace log verify``: read every byte of a log, in a data folder or in a database, and say what is damaged."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headrace.cli.byte_progress import byte_progress
from headrace.errors import FeedNotFound
from headrace.log.damage import Damage, DamageKind, Verdict
from headrace.log.files.examine import examine
from headrace.log.metadata.check import check_metadata
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.log.opening import examine_address, parse_store


def verify_command(
    feed: str | None = None,
    /,
    *,
    data_dir: Path = Path("headrace-data"),
    store: Annotated[str | None, Parameter(env_var="HEADRACE_STORE")] = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Check every frame, header, index, segment start, the mark and the metadata database; nothing is changed.

    Exit code 0 if all is whole, 1 if something is damaged. A server may be running: its journal is read up to the mark.

    Parameters
    ----------
    feed
        Check the entries of this feed only (and all that the feeds share); without it, everything.
    data_dir
        The server's folder.
    store
        Check a log in a database instead: postgresql://USER@HOST/DATABASE.
    json
        Print one JSON document.
    """
    with byte_progress("checking") as progress:
        if store is not None:
            found, of = examine_address(parse_store(store), feed=feed, progress=progress), "store"
        else:
            found, of = examine_folder(data_dir, feed=feed, progress=progress), "data-dir"
    if json:
        print(json_text.dumps(document(found, of)))
    else:
        _print(found)
    return 1 if found.damages else 0


def examine_folder(folder: Path, *, feed: str | None = None, progress: Any = None) -> Verdict:
    """Look at every byte of a data folder. Raises FeedNotFound, StoreUnavailable, FormatTooNew."""
    findings = examine(folder, feed=feed, progress=progress)
    findings.close()
    if feed is not None and feed not in findings.names.values():
        raise FeedNotFound(
            f"there is no feed {feed} in {folder}", hint="Without a feed, everything is checked."
        )
    database = folder / METADATA_NAME
    damages = [
        Damage(DamageKind.METADATA, database, 0, problem) for problem in check_metadata(database).problems
    ]
    return Verdict(
        str(folder),
        [*findings.damages, *damages],
        findings.notes,
        findings.names,
        len(findings.segments),
        findings.frames,
        findings.entries,
        findings.bytes,
        findings.mark.end if findings.mark is not None else None,
    )


def document(found: Verdict, of: str) -> dict[str, Any]:
    """Return what was found as one document; ``of``: what the place is, ``data-dir`` or ``store``."""
    return {
        of: found.place,
        "whole": not found.damages,
        "segments": found.segments,
        "frames": found.frames,
        "entries": found.entries,
        "bytes": found.bytes,
        "end-position": found.end_position,
        "damages": [damage.document() for damage in found.damages],
        "notes": found.notes,
    }


def _print(found: Verdict) -> None:
    for damage in found.damages:
        print(f"damaged {damage.kind}: {damage.where}{_range(damage)}\n    {damage.detail}")
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    verdict = f"{len(found.damages)} damages" if found.damages else "all whole"
    print(f"{verdict}: {found.frames:,} frames with {found.entries:,} entries in {found.segments} segments")
    if found.damages:
        print("What to do: docs/howto/damaged-log.md", file=sys.stderr)


def _range(damage: Damage) -> str:
    if damage.header is None or not damage.header.count:
        return ""
    feed = damage.feed or f"region {damage.header.region_id}"
    return (
        f", feed {feed}, sequence ids {damage.header.first_sequence_id} to {damage.header.last_sequence_id}"
    )
