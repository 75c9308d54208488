"""``headrace wal list``: what an archive holds, what is missing in it, and which moments it can rebuild."""

from __future__ import annotations

from collections.abc import Iterator
from json import dumps as dump_json
from typing import TYPE_CHECKING, Any, Final

from headrace.cli.wal_options import Flag

if TYPE_CHECKING:
    from headrace.archive.moments.catalogue import Archive
    from headrace.archive.moments.chain import Gap, Window

SHOWN_MAX: Final = 12
"""More segments than this are summed up, unless all are asked for."""


def list_command(*, wal_dir: str, all_: Flag = False, feeds: Flag = False, json: Flag = False) -> None:
    """List an archive's base snapshots, segments, gaps and reachable windows. Manifests are read, and nothing else.

    Parameters
    ----------
    wal_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER).
    all_
        Show every segment, however many there are.
    feeds
        Show which sequence ids of each feed there are.
    json
        Print one JSON document; it has everything.
    """
    from headrace.archive.moments.catalogue import Archive

    archive = Archive.read(wal_dir)
    if json:
        print(dump_json(document(archive)), flush=True)
    else:
        print("\n".join(_lines(archive, every=all_, feeds=feeds)), flush=True)


def document(archive: Archive) -> dict[str, Any]:
    """Return everything as one document with members in kebab-case."""
    from headrace.archive.moments.reachable import gap_document, shown_time, window_document

    return {
        "archive": archive.folder.shown,
        "windows": [window_document(one) for one in archive.windows],
        "gaps": [gap_document(one) for one in archive.chain.gaps()],
        "bases": [
            {
                "path": one.path,
                "lsn": str(one.lsn),
                "time": shown_time(one.lsn.committed_at_ms),
                "created-at": shown_time(one.manifest.created_at_ms),
                "rows": one.manifest.rows,
                "bytes": sum(file.size for file in one.manifest.files),
                "usable": one not in archive.chain.misfits,
                "problem": archive.chain.why_not(one) or None,
            }
            for one in archive.bases
        ],
        "unusable-bases": [{"path": one.path, "problem": one.problem} for one in archive.unsound_bases],
        "damaged": archive.damaged,
        "segments": [_segment(archive, at) for at in range(len(archive.segments))],
        "feeds": list(_feeds(archive)),
    }


def _segment(archive: Archive, at: int) -> dict[str, Any]:
    from headrace.archive.moments.reachable import shown_time
    from headrace.wire.kwal import ENCRYPTED

    one = archive.segments[at]
    manifest = archive.manifests.get(one.file)
    return {
        "file": one.file,
        "first-lsn": str(one.name.first),
        "last-lsn": str(one.name.last),
        "first-time": shown_time(one.name.first.committed_at_ms),
        "last-time": shown_time(one.name.last.committed_at_ms),
        "bytes": one.size,
        "entries": manifest.entries if manifest is not None else None,
        "encrypted": one.file.endswith(ENCRYPTED),
        "manifest": manifest is not None,
    }


def _feeds(archive: Archive) -> Iterator[dict[str, Any]]:
    """Yield what there is of each history, as ranges without a gap."""
    found: dict[tuple[str, str], list[list[Any]]] = {}
    for one in archive.segments:
        manifest = archive.manifests.get(one.file)
        for part in manifest.feeds if manifest is not None else ():
            ranges = found.setdefault((part.feed, part.incarnation), [])
            if ranges and ranges[-1][1] + 1 == part.first_sequence_id:
                ranges[-1][1:] = [part.last_sequence_id, part.last_lsn]
            else:
                ranges.append([part.first_sequence_id, part.last_sequence_id, part.last_lsn])
    for (feed, incarnation), ranges in sorted(found.items()):
        for first, last, lsn in ranges:
            yield {
                "feed": feed,
                "incarnation": incarnation,
                "first-sequence-id": first,
                "last-sequence-id": last,
                "last-lsn": lsn,
            }


def _lines(archive: Archive, *, every: bool, feeds: bool) -> Iterator[str]:
    told = document(archive)
    for window in archive.windows:
        yield from _window(window)
    if not archive.windows:
        yield "reachable   nothing: there is no base snapshot, and the first segment is not the beginning of the log"
    for gap in archive.chain.gaps():
        yield from _gap(gap)
    for base in told["bases"]:
        note = "" if base["usable"] else f"; not used: {base['problem']}"
        yield f"base        {base['path']}: {base['time']}, {base['rows']:,} rows, {base['bytes'] / 1e6:,.1f} MB{note}"
    for base in told["unusable-bases"]:
        yield f"base        {base['path']}: can't be used: {base['problem']}"
    for problem in told["damaged"]:
        yield f"damaged     {problem}"
    yield from _segments(told["segments"], every=every)
    for one in told["feeds"] if feeds else ():
        yield (
            f"feed        {one['feed']}: sequence ids {one['first-sequence-id']} to {one['last-sequence-id']} "
            f"(incarnation {one['incarnation']})"
        )


def _window(window: Window) -> Iterator[str]:
    from headrace.archive.moments.reachable import shown_time

    begins = window.base.path if window.base is not None else "the beginning of the log"
    first, last = (shown_time(lsn.committed_at_ms) for lsn in (window.first, window.last))
    holes = f", but for {len(window.holes)} accepted gaps" if window.holes else ""
    yield f"reachable   {first} to {last}, from {begins}{holes}"
    yield f"            lsn={window.first} to lsn={window.last}"


def _gap(gap: Gap) -> Iterator[str]:
    from headrace.archive.moments.reachable import shown_time

    first, last = (shown_time(lsn.committed_at_ms) for lsn in (gap.after, gap.before))
    yield f"gap         {first} to {last}: {gap.why}"
    yield f"            above lsn={gap.after}, below lsn={gap.before}"
    for reason in gap.told:
        yield f"            accepted by {reason}"


def _segments(segments: list[dict[str, Any]], *, every: bool) -> Iterator[str]:
    encrypted = sum(one["encrypted"] for one in segments)
    note = f", {encrypted:,} of them encrypted" if encrypted else ""
    size = sum(one["bytes"] for one in segments) / 1e6
    entries = sum(one["entries"] or 0 for one in segments)
    yield f"segments    {len(segments):,}, {size:,.1f} MB, {entries:,} entries{note}"
    for one in segments if every or len(segments) <= SHOWN_MAX else ():
        note = " encrypted" if one["encrypted"] else ""
        note += "" if one["manifest"] else " without a manifest"
        yield f"            {one['file']} {one['first-time']} {one['bytes'] / 1e6:,.1f} MB{note}"
