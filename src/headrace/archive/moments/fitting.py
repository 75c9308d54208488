"""Whether a base snapshot is one of the very log that the segments are of. Pure.

A base of another log, or of another history, would be used like any other: its LSN says where the segments go on, and what
they hold at or below that is never read. So it is compared with every manifest there is, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.archive.files.bases import StoredBase
from headrace.archive.moments.ranges import Ranges, Row
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import BaseFeed
from headrace.wire.kwal_manifest import FeedRange, Manifest

Between = tuple[Lsn, Lsn]
"""Two LSNs between which something may be missing; neither is."""
_Problem = tuple[int, Lsn, int, str]
"""Where it is seen, by segment and LSN, below the base first; and in words."""


def misfit(base: StoredBase, ranges: Ranges, missing: Sequence[Between]) -> str:
    """Say why the base is none of this log, in words; empty if nothing speaks against it.

    ``ranges``: of all segments. ``missing``: where entries may be missing, accepted or not. A base without a path is no base
    but a place in the log, and fits.
    """
    if not base.path:
        return ""
    for feed in base.manifest.feeds:
        if why := _out_of_place(feed, ranges, missing):
            return why
    known = {(one.region_id, one.incarnation): one for one in base.manifest.feeds}
    newest: dict[str, Lsn] = {}
    for one in base.manifest.feeds:
        newest[one.feed] = max(newest.get(one.feed, ZERO), Lsn.parse(one.lsn))
    judge = _Judge(base, newest, ranges, missing)
    found = [one for history, row in ranges.rows.items() for one in judge.problems(row, known.get(history))]
    return min(found)[-1] if found else ""


def misplaced(feed: BaseFeed, manifest: Manifest) -> str:
    """Say that the last entry which a base has of a feed is not in the segment that spans its LSN; empty if it is."""
    if any(
        (part.region_id, part.incarnation) == (feed.region_id, feed.incarnation)
        and part.first_sequence_id <= feed.sequence_id <= part.last_sequence_id
        for part in manifest.feeds
    ):
        return ""
    return (
        f"{manifest.file} has no entry {feed.sequence_id} of {feed.feed}, which it says is at lsn={feed.lsn}"
    )


def _out_of_place(feed: BaseFeed, ranges: Ranges, missing: Sequence[Between]) -> str:
    """Say that the entry is not in its segment, or stands where no segment is, though none is missing there."""
    lsn = Lsn.parse(feed.lsn)
    if (manifest := ranges.at(lsn)) is not None:
        return misplaced(feed, manifest)
    if not ranges.spans(lsn) or any(after < lsn < before for after, before in missing):
        return ""
    return f"the segments have nothing at lsn={lsn}, where it says entry {feed.sequence_id} of {feed.feed} is"


class _Judge:
    """One base, held against the histories that the segments have. ``newest``: the LSN up to which it has each feed."""

    def __init__(
        self, base: StoredBase, newest: Mapping[str, Lsn], ranges: Ranges, missing: Sequence[Between]
    ) -> None:
        self._base, self._newest, self._ranges, self._missing = base, newest, ranges, missing
        self._below = ranges.below(base.lsn)

    def problems(self, row: Row, known: BaseFeed | None) -> Iterator[_Problem]:
        """Yield what speaks against the base in one history; ``known``: what it has of that."""
        base, whole = self._base, row.before(self._below)
        if whole and not self._has(row, whole, known):
            for at in range(whole):
                yield from self._told(
                    row, at, 0, _lacks(base, row.parts[at], known, self._newest, self._missing)
                )
        for at in range(whole, len(row.parts)):
            part = row.parts[at]
            # Only the segment around the base has entries on both its sides.
            around = row.segments[at] == self._below
            if around and Lsn.parse(part.first_lsn) <= base.lsn:
                yield from self._told(row, at, 0, _lacks(base, part, known, self._newest, self._missing))
            if not around or Lsn.parse(part.last_lsn) > base.lsn:
                yield from self._told(row, at, 1, _behind(base, part, known, self._ranges, self._missing))
                break

    def _has(self, row: Row, whole: int, known: BaseFeed | None) -> bool:
        """Tell whether the base has the first ``whole`` ranges, or needs none as a later history took their place."""
        if known is not None and known.sequence_id >= row.ids[whole - 1]:
            return True
        last = row.parts[whole - 1]
        return self._newest.get(last.feed, ZERO) > Lsn.parse(last.last_lsn)

    def _told(self, row: Row, at: int, side: int, why: str) -> Iterator[_Problem]:
        if why:
            yield row.segments[at], Lsn.parse(row.parts[at].first_lsn), side, why


def _lacks(
    base: StoredBase,
    part: FeedRange,
    known: BaseFeed | None,
    newest: Mapping[str, Lsn],
    missing: Sequence[Between],
) -> str:
    """Say that the base lacks entries of a segment that are at or below its LSN."""
    first, end = Lsn.parse(part.first_lsn), min(Lsn.parse(part.last_lsn), base.lsn)
    whole = Lsn.parse(part.last_lsn) <= base.lsn
    if known is not None and known.sequence_id >= (
        part.last_sequence_id if whole else part.first_sequence_id
    ):
        return ""
    # A later history of the feed took its place, which is all that the base needs of it.
    if newest.get(part.feed, ZERO) > end:
        return ""
    # It was made while they were lost, and the loss was accepted.
    gaps = [(Lsn.parse(one.after_lsn), Lsn.parse(one.before_lsn)) for one in base.manifest.gaps]
    if any(after < first and end < before for after, before in gaps):
        return ""
    # It begins anew behind a loss, with the feeds that there were by then.
    if known is None and any(end <= after < base.lsn for after, _ in missing):
        return ""
    ids = f"{part.first_sequence_id} to {part.last_sequence_id}"
    return f"the segments hold entries {ids} of {part.feed} (incarnation {part.incarnation}), which the base lacks"


def _behind(
    base: StoredBase,
    part: FeedRange,
    known: BaseFeed | None,
    ranges: Ranges,
    missing: Sequence[Between],
) -> str:
    """Say that a history does not go on behind the base with the entry after the base's last one, nor behind a loss."""
    first = Lsn.parse(part.first_lsn)
    if first <= base.lsn:
        fits = known is None or part.first_sequence_id <= known.sequence_id
    elif known is not None:
        fits = part.first_sequence_id == known.sequence_id + 1
    else:
        began = ranges.begun.get((part.region_id, part.incarnation), 0)
        fits = not began or part.first_sequence_id <= began or _goes_on(base, part, began)
    if fits or any(after < first and int(before) - 1 > int(base.lsn) for after, before in missing):
        return ""
    return f"the segments go on behind it with entry {part.first_sequence_id} of {part.feed}"


def _goes_on(base: StoredBase, part: FeedRange, began: int) -> bool:
    """Tell whether a history has in it what the base has of the feed's older one, and goes on right behind that.

    So it is after a rebuild of the server: the feed has a new incarnation, and all its entries.
    """
    return any(
        (one.region_id, one.feed) == (part.region_id, part.feed)
        and began <= one.first_sequence_id
        and part.first_sequence_id == one.sequence_id + 1
        for one in base.manifest.feeds
    )
