"""``headrace log verify``: read every byte of a data folder's journal and say what is damaged."""

from __future__ import annotations

import json as json_text
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from headrace.cli.byte_progress import byte_progress
from headrace.errors import FeedNotFound
from headrace.log.files.examine import Damage, DamageKind, Findings, examine
from headrace.log.metadata.check import metadata_problems
from headrace.log.metadata.sqlite import METADATA_NAME


def verify_command(
    feed: str | None = None,
    /,
    *,
    data_dir: Path = Path("headrace-data"),
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
    json
        Print one JSON document.
    """
    with byte_progress("checking") as progress:
        findings = examine(data_dir, feed=feed, progress=progress)
    findings.close()
    if feed is not None and feed not in findings.names.values():
        raise FeedNotFound(
            f"there is no feed {feed} in {data_dir}", hint="Without a feed, everything is checked."
        )
    database = data_dir / METADATA_NAME
    findings.damages += [
        Damage(DamageKind.METADATA, database, 0, problem) for problem in metadata_problems(database)
    ]
    if json:
        print(json_text.dumps(document(findings)))
    else:
        _print(findings)
    return 1 if findings.damages else 0


def document(findings: Findings) -> dict[str, Any]:
    """Return what was found as one document."""
    return {
        "data-dir": str(findings.folder),
        "whole": not findings.damages,
        "segments": len(findings.segments),
        "frames": findings.frames,
        "entries": findings.entries,
        "bytes": findings.bytes,
        "end-position": findings.mark.end if findings.mark is not None else None,
        "damages": [damage.document() for damage in findings.damages],
        "notes": findings.notes,
    }


def _print(findings: Findings) -> None:
    for damage in findings.damages:
        where = f"{damage.file} at byte {damage.offset}"
        print(f"damaged {damage.kind}: {where}{_range(damage)}\n    {damage.detail}")
    for note in findings.notes:
        print(f"note: {note}", file=sys.stderr)
    verdict = f"{len(findings.damages)} damages" if findings.damages else "all whole"
    print(
        f"{verdict}: {findings.frames:,} frames with {findings.entries:,} entries in {len(findings.segments)} segments"
    )
    if findings.damages:
        print("What to do: docs/howto/damaged-log.md", file=sys.stderr)


def _range(damage: Damage) -> str:
    if damage.header is None or not damage.header.count:
        return ""
    feed = damage.feed or f"region {damage.header.region_id}"
    return (
        f", feed {feed}, sequence ids {damage.header.first_sequence_id} to {damage.header.last_sequence_id}"
    )
