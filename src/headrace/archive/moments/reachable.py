"""What of an archive can be rebuilt, as messages and documents say it; the whole points around a moment; the refusals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from headrace.archive.files.segments import Stored
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.chain import Gap, Window, below
from headrace.archive.moments.marks import PAUSE_MAX_MS, Marks, marks_of
from headrace.archive.moments.pieces import Piece, Place
from headrace.archive.moments.points import Points
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, SegmentGap, TargetUnreachable
from headrace.wire.documents import rfc3339
from headrace.wire.kwal_columns import Segment

MOVED_MAX_MS: Final = 60_000
"""A target that moves back by more log time than this is worth a warning."""


class Found(NamedTuple):
    """The moment as an LSN, which the archive can rebuild; ``notes``: what to know about it."""

    lsn: Lsn
    notes: tuple[str, ...] = ()


def windows_shown(windows: Sequence[Window]) -> str:
    """Return the reachable windows as messages have them."""
    if not windows:
        return "nothing can be rebuilt from it: it has no base snapshot, and its segments are not the beginning of the log"
    parts = [f"lsn={one.first} ({_time(one.first)}) to lsn={one.last} ({_time(one.last)})" for one in windows]
    return f"reachable: {'; '.join(parts)}"


def shown_time(ms: int) -> str:
    """Return UTC milliseconds as RFC 3339; beyond the year 9999, as a number."""
    try:
        return rfc3339(ms)
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"


def _time(lsn: Lsn) -> str:
    return shown_time(lsn.committed_at_ms)


def segment_of(archive: Archive, one: Stored) -> Segment:
    """Read a segment that has a manifest; SegmentCorrupt, IdentityNeeded, ArchiveUnavailable."""
    return Segment(
        archive.folder.read_segment(one.file),
        where=archive.folder.where(one.file),
        name=one.name,
        manifest=archive.manifests[one.file],
    )


def _marks(archive: Archive, one: Stored, start: Lsn) -> Marks:
    return marks_of(segment_of(archive, one), start)


def points_of(archive: Archive, start: Lsn) -> Points:
    """Return the entries behind ``start`` as far as they join; segments are read when they are asked for."""
    if start in archive.points:
        return archive.points[start]
    last = archive.chain.reach(start)
    pieces = [
        Piece(one.name, archive.manifests[one.file].feeds, partial(_marks, archive, one))
        for one in archive.segments
        if one.file in archive.manifests and one.name.last > start and one.name.first <= last
    ]
    ahead = [
        archive.manifests[one.file].feeds
        for one in archive.segments
        if one.file in archive.manifests and one.name.first > max(last, start)
    ]
    base = next((base for lsn, base in archive.chain.starts() if lsn == start), None)
    feeds = base.manifest.feeds if base is not None else ()
    reached = {(one.region_id, one.incarnation): one.sequence_id for one in feeds}
    archive.points[start] = made = Points(pieces, start, reached, ahead)
    return made


def is_reachable(archive: Archive, wanted: Lsn) -> bool:
    """Tell whether the archive can rebuild what is at or below ``wanted``."""
    chosen = archive.chain.start_for(wanted)
    return chosen is not None and archive.chain.hole_at(chosen[0], wanted) is None


def check_reachable(archive: Archive, wanted: Lsn, shown: str) -> Lsn:
    """Return ``wanted`` if the archive can rebuild what is at or below it, else raise :func:`refusal`."""
    if not is_reachable(archive, wanted):
        raise refusal(archive, wanted, shown)
    return wanted


def refusal(archive: Archive, wanted: Lsn, shown: str) -> TargetUnreachable | SegmentGap:
    """Return why it can't be rebuilt, naming the windows and the nearest points: SegmentGap if that is a gap below it."""
    chain, windows = archive.chain, archive.windows
    inside = chain.gap_at(wanted)
    last = archive.segments[-1].name.last if archive.segments else ZERO
    nearest = nearest_to(archive, wanted)
    members: dict[str, Any] = {
        "windows": [window_document(one) for one in windows],
        "nearest_before": _shown(nearest.before),
        "nearest_after": _shown(nearest.after),
    }
    where = f"{archive.folder.shown} can't rebuild {shown}"
    sides = ((nearest.before, "before"), (nearest.after, "behind"))
    points = " and ".join(f"lsn={lsn} {side} it" for lsn, side in sides if lsn is not None)
    had = windows_shown(windows) + (f"; nearest whole points: {points}" if points else "")
    for unsound in archive.unsound_bases:
        had += f"; a base snapshot can't be used: {unsound.problem}"
    if inside is not None:
        accepted = ", which was accepted, but says nothing of what is in it" if inside.accepted else ""
        return TargetUnreachable(f"{where}: it is in the gap {gap_shown(inside)}{accepted}; {had}", **members)
    between = [one for one in chain.gaps() if not one.accepted and one.before <= wanted]
    if between and windows and windows[0].first <= wanted <= last:
        return SegmentGap(
            f"{where}: entries may be missing below it, {gap_shown(between[-1])}; {had}",
            hint="Put what is missing back, or make a base behind it; headrace wal gap ack --reason TEXT accepts the loss.",
            **members,
        )
    side = "behind" if windows and wanted > windows[-1].last else "before" if windows else "outside of"
    return TargetUnreachable(f"{where}: it is {side} all that it has; {had}", **members)


def gap_shown(gap: Gap) -> str:
    """Return a gap as messages have it."""
    return f"above lsn={gap.after} and below lsn={gap.before} ({gap.why})"


def window_document(window: Window) -> dict[str, Any]:
    """Return a window as plain values."""
    return {
        "first-lsn": str(window.first),
        "last-lsn": str(window.last),
        "first-time": _time(window.first),
        "last-time": _time(window.last),
        "base": None if window.base is None else window.base.path,
        "gaps": [gap_document(one) for one in window.holes],
    }


def gap_document(gap: Gap) -> dict[str, Any]:
    """Return a gap as plain values."""
    return {
        "after-lsn": str(gap.after),
        "before-lsn": str(gap.before),
        "why": gap.why,
        "acknowledged": [
            *({"reason": reason, "by": None, "at": None} for reason in gap.reasons),
            *({"reason": one.reason, "by": one.by, "at": shown_time(one.at_ms)} for one in gap.accepted),
        ],
    }


def moved_back(asked: Lsn, kept: Lsn, why: str) -> Iterator[str]:
    """Yield a warning if the last entry kept is long before the one asked for, because a cut there is inside ``why``."""
    apart = asked.committed_at_ms - kept.committed_at_ms
    if apart > MOVED_MAX_MS:
        yield (
            f"the last entry kept is {apart / 60_000:.1f} minutes before the moment asked for: lsn={asked} is {why}, and no "
            "feed's entries behind that are kept; --exact-entry keeps them, torn"
        )


def counted_as_ended(points: Points, place: Place) -> Iterator[str]:
    """Yield a warning for each feed with transactions at ``place`` that count as ended without a last entry."""
    for one in points.unended(place):
        name = one.tx.decode(errors="backslashreplace")
        what = f"the transaction {name}" if one.many == 1 else f"{one.many} transactions, the newest {name},"
        yield (
            f"of {one.feed}, {what} up to lsn={one.lsn} has no last entry, and nothing more of it within "
            f"{PAUSE_MAX_MS // 60_000} minutes: it counts as ended, and may be kept in part"
        )


def _shown(lsn: Lsn | None) -> str | None:
    return None if lsn is None else str(lsn)


# -- whole points around a moment --------------------------------------------------------------------------------------


class Nearest(NamedTuple):
    """The whole points on both sides of a moment, None where there is none; ``problem``: why one is not known."""

    before: Lsn | None
    after: Lsn | None
    problem: str = ""


def nearest_to(archive: Archive, wanted: Lsn, *, itself: bool = True) -> Nearest:
    """Return the whole points next to ``wanted``, which may be one ``itself``.

    What is behind a moment is no reason not to restore it: a segment that can't be read is a ``problem``, and no error.
    """
    try:
        before = whole_below(archive, wanted if itself else below(wanted))
        return Nearest(before, whole_above(archive, wanted))
    except HeadraceError as error:
        return Nearest(None, None, error.detail)


def whole_below(archive: Archive, wanted: Lsn) -> Lsn | None:
    """Return the greatest LSN at or below ``wanted`` that can be rebuilt without tearing anything; None if there is none."""
    for window in reversed(archive.windows):
        if window.first <= wanted and (found := _whole_to(archive, min(wanted, window.last))) is not None:
            return found
    return None


def _whole_to(archive: Archive, lsn: Lsn) -> Lsn | None:
    chosen = archive.chain.start_for(lsn)
    if chosen is None:
        return None
    start, base = chosen
    if (hole := archive.chain.hole_at(start, lsn)) is not None:
        return _whole_to(archive, hole.after)
    points = points_of(archive, start)
    place = points.last_at(lsn)
    whole = points.whole_at(place)[0] if place is not None else None
    if whole is not None:
        return points.lsn(whole)
    if base is None:
        return None
    return _whole_to(archive, below(start)) if points.torn_at_start() else base.lsn


def whole_above(archive: Archive, wanted: Lsn) -> Lsn | None:
    """Return the least LSN above ``wanted`` that can be rebuilt without tearing anything; None if there is none."""
    above = (lsn for lsn, base in archive.chain.starts() if base is not None and lsn > wanted)
    # The first one is enough.
    bases = list(islice((lsn for lsn in above if not points_of(archive, lsn).torn_at_start()), 1))
    for window in archive.windows:
        if window.last > wanted and (window.base is None or window.first <= wanted):
            found = _whole_from(archive, window, wanted)
            return min(bases if found is None else [*bases, found], default=None)
    return min(bases, default=None)


def _whole_from(archive: Archive, window: Window, wanted: Lsn) -> Lsn | None:
    start = window.base.lsn if window.base is not None else ZERO
    inside = archive.chain.start_for(min(wanted, window.last)) if wanted >= window.first else None
    points = points_of(archive, start if inside is None else inside[0])
    at: Place | None = points.last_at(wanted)
    while (at := points.next_whole(at)) is not None:
        found = points.lsn(at)
        if found > window.last:
            return None
        if is_reachable(archive, found):
            return found
    return None
