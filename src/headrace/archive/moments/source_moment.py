"""What a source says of time -> the LSN before the first entry of its feed, in log order, that is later.

A source's clock may be put back, and one log has several sources: it is the first later entry that counts, and the log is
cut for all feeds where it stands. Called by :mod:`headrace.archive.moments.target`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.chain import Window, above
from headrace.archive.moments.marks import commit_times
from headrace.archive.moments.pieces import Place
from headrace.archive.moments.points import Points
from headrace.archive.moments.reachable import (
    Found,
    check_reachable,
    points_of,
    refusal,
    segment_of,
    shown_time,
    window_document,
    windows_shown,
)
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import InvalidRequest, TargetUnreachable


def by_source_time(archive: Archive, feed: str, ms: int) -> Found:
    """Return where the feed's first entry with a source time above ``ms`` (UTC milliseconds) is cut off."""
    ranges = [one for manifest in archive.manifests.values() for one in manifest.feeds]
    name = _only(
        feed,
        {one.feed for one in ranges},
        {one.feed for one in ranges if one.source_time_last_ms},
        "source times",
    )
    shown = f"the source time {shown_time(ms)} of {name}"
    regions = {one.region_id for one in ranges if one.feed == name}
    for window in archive.windows:
        points = points_of(archive, _start_of(window))
        later = [place for region in regions if (place := points.first_later(region, ms)) is not None]
        if not later:
            continue
        place = min(later)
        if window.base is not None and not any(points.has_time_before(region, place) for region in regions):
            raise _unknown(archive, shown, points.lsn(place))
        notes: tuple[str, ...] = ()
        if any(points.is_earlier_again(region, place, ms) for region in regions):
            notes = (
                f"the source's clock was put back: entries of {name} behind lsn={points.lsn(place)} have source times up to "
                f"{shown_time(ms)} again, and are left out",
            )
        return Found(_cut_before(archive, window, points, place, shown), notes)
    greatest = max((one.source_time_last_ms or 0 for one in ranges if one.feed == name), default=0)
    return _at_the_end(archive, name, shown, reaches=ms == greatest)


def by_commit_ts(archive: Archive, feed: str, commit_ts: int) -> Found:
    """Return where the feed's first entry with a greater commitTs (Simple Protocol) is cut off; values are read for it."""
    ranges = [one for manifest in archive.manifests.values() for one in manifest.feeds]
    names = {one.feed for one in ranges}
    name = _only(feed, names, names, "commitTs")
    shown = f"the commitTs {commit_ts} of {name}"
    greatest = 0
    for window in archive.windows:
        start = _start_of(window)
        held = [
            one
            for one in archive.segments
            if one.file in archive.manifests
            and one.name.last > start
            and one.name.first <= window.last
            and any(part.feed == name for part in archive.manifests[one.file].feeds)
        ]
        before, lsn, seen = _first_beyond(archive, held, name, commit_ts, start)
        greatest = max(greatest, seen)
        if lsn is None:
            continue
        if window.base is not None and not before:
            raise _unknown(archive, shown, lsn)
        points = points_of(archive, start)
        place = points.last_at(lsn)
        if place is not None:
            return Found(_cut_before(archive, window, points, place, shown))
    if not greatest:
        raise InvalidRequest(
            f"{name} has no commitTs: its entries are no messages of the Simple Protocol", member="feed"
        )
    return _at_the_end(archive, name, shown, reaches=commit_ts == greatest)


def _first_beyond(
    archive: Archive, held: Sequence[Stored], feed: str, commit_ts: int, start: Lsn
) -> tuple[bool, Lsn | None, int]:
    """Return whether a commitTs up to the one wanted comes first, the first entry's LSN beyond it, and the greatest seen.

    Nothing keeps a producer's commitTs from going back, so every segment up to there is read.
    """
    before, greatest = False, 0
    for lsn, found in _commit_times(archive, held, feed, start):
        if found > commit_ts:
            return before, lsn, found
        before, greatest = True, max(greatest, found)
    return before, None, greatest


def _commit_times(
    archive: Archive, held: Iterable[Stored], feed: str, start: Lsn
) -> Iterator[tuple[Lsn, int]]:
    for one in held:
        for lsn, found in commit_times(segment_of(archive, one), feed):
            if lsn > start:
                yield lsn, found


def _start_of(window: Window) -> Lsn:
    return window.base.lsn if window.base is not None else ZERO


def _only(feed: str, known: set[str], having: set[str], what: str) -> str:
    """Return the feed that is meant; InvalidRequest unless it is one."""
    if feed:
        if feed not in known:
            raise InvalidRequest(f"the archive has no entry of the feed {feed}", member="feed")
        if feed not in having:
            raise InvalidRequest(f"no entry of {feed} carries {what}", member="feed")
        return feed
    if len(having) != 1:
        names = ", ".join(sorted(having))
        raise InvalidRequest(
            f"several feeds may have {what}: {names}; name one" if having else f"no entry carries {what}",
            member="feed",
        )
    return next(iter(having))


def _cut_before(archive: Archive, window: Window, points: Points, place: Place, shown: str) -> Lsn:
    before = points.before(place)
    if before is None and window.base is None:
        raise refusal(archive, ZERO, shown)
    lsn = points.lsn(before) if before is not None else _start_of(window)
    return check_reachable(archive, lsn, shown)


def _unknown(archive: Archive, shown: str, lsn: Lsn) -> TargetUnreachable:
    return TargetUnreachable(
        f"{archive.folder.shown} can't rebuild {shown}: the first entry of the feed that it has, lsn={lsn}, is later; "
        f"{windows_shown(archive.windows)}",
        windows=[window_document(one) for one in archive.windows],
    )


def _at_the_end(archive: Archive, feed: str, shown: str, *, reaches: bool) -> Found:
    windows = archive.windows
    if not windows or not reaches:
        raise refusal(archive, above(windows[-1].last) if windows else ZERO, shown)
    return Found(
        windows[-1].last,
        (f"no entry of {feed} in the archive is later: the archive's end stands for that moment",),
    )
