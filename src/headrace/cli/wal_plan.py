"""``headrace wal plan``: what a restore would use, and to which entry it would come. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps as dump_json
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.wal_options import Flag, MomentOptions, identity_of

if TYPE_CHECKING:
    from headrace.archive.moments.planning import RestorePlan


def plan_command(
    *,
    wal_dir: str,
    moment: MomentOptions | None = None,
    snapshot: str = "auto",
    identity: Path | None = None,
    json: Flag = False,
) -> None:
    """Say what a restore to a moment would use, the exact last entry that it would keep, and the nearest whole points.

    Exit code 4 if the moment can't be rebuilt, 3 if a gap is in the way or an LSN is inside an append; the message says what
    can be had. Only what stands around the moment is read: headrace wal verify reads everything.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    snapshot
        Base snapshot to begin with: auto (the newest that serves), or the address of its folder.
    identity
        File of the age identities that open encrypted segments.
    json
        Print one JSON document.
    """
    from headrace.archive.moments.catalogue import Archive
    from headrace.archive.moments.planning import plan

    asked = (moment or MomentOptions()).asked()
    found = plan(Archive.read(wal_dir, identity_of(identity)), asked, snapshot)
    print(dump_json(found.document()) if json else "\n".join(_lines(found)), flush=True)


def _lines(found: RestorePlan) -> Iterator[str]:
    told = found.document()
    source = f", source time {told['source-time']}" if told["source-time"] else ""
    yield f"last entry kept   lsn={found.target_lsn}"
    yield f"                  log time {told['log-time']}{source}"
    if found.moved_from is not None:
        yield f"moved back        from lsn={found.moved_from}, which is {found.moved_why}"
    yield f"nearest before    {_lsn(told['nearest-before'])}"
    yield f"nearest after     {_lsn(told['nearest-after'])}"
    base = told["base"]
    yield "base              " + (
        f"{base['path']} ({base['rows']:,} rows)" if base else "none: from the beginning of the log"
    )
    count = len(found.segments)
    size = sum(one.size for one in found.segments) / 1e6
    ends = [one.file for one in (*found.segments[:1], *found.segments[1:][-1:])]
    yield f"segments          {count:,}, {size:,.1f} MB" + (f": {' to '.join(ends)}" if ends else "")
    for one in found.feeds:
        older = "" if one.current else f", an older history ({one.incarnation})"
        ids = f"{one.first_sequence_id} to {one.last_sequence_id}"
        yield f"feed              {one.feed}: sequence ids {ids}{older}"
    for warning in found.warnings:
        yield f"warning           {warning}"


def _lsn(text: str | None) -> str:
    return f"lsn={text}" if text else "none"
