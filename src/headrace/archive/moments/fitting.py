"""Whether a base snapshot is one of the very log that the segments are of. Pure.

A base of another log, or of another history, would be used like any other: its LSN says where the segments go on, and what
they hold at or below that is never read. So it is compared with every manifest there is, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.archive.files.bases import StoredBase
from headrace.entries.lsn import Lsn
from headrace.wire.base_manifest import BaseFeed
from headrace.wire.kwal_manifest import FeedRange, Manifest

Between = tuple[Lsn, Lsn]
"""Two LSNs between which something may be missing; neither is."""


def misfit(base: StoredBase, told: Sequence[Manifest], missing: Sequence[Between]) -> str:
    """Say why the base is none of this log, in words; empty if nothing speaks against it.

    ``told``: the manifests of all segments, in LSN order. ``missing``: where entries may be missing, accepted or not. A base
    without a path is no base but a place in the log, and fits.
    """
    if not base.path:
        return ""
    return next((why for why in _problems(base, told, missing) if why), "")


def _problems(base: StoredBase, told: Sequence[Manifest], missing: Sequence[Between]) -> Iterable[str]:
    known = {(one.region_id, one.incarnation): one for one in base.manifest.feeds}
    for feed in base.manifest.feeds:
        yield misplaced(feed, told) or _between(feed, told, missing)
    begun = {
        (one.region_id, one.incarnation): one.first_sequence_id
        for manifest in told
        for one in manifest.registry
        if one.first_sequence_id
    }
    behind: set[tuple[int, str]] = set()
    for manifest in told:
        for part in sorted(manifest.feeds, key=lambda one: Lsn.parse(one.first_lsn)):
            history = part.region_id, part.incarnation
            if Lsn.parse(part.first_lsn) <= base.lsn:
                yield _below(base, part, known.get(history), missing)
            if Lsn.parse(part.last_lsn) > base.lsn and history not in behind:
                behind.add(history)
                yield _behind(base, part, known.get(history), begun, missing)


def misplaced(feed: BaseFeed, told: Iterable[Manifest]) -> str:
    """Say that the last entry which a base has of a feed is not in the segment that spans its LSN; empty if it is."""
    lsn = Lsn.parse(feed.lsn)
    for manifest in told:
        if not Lsn.parse(manifest.first_lsn) <= lsn <= Lsn.parse(manifest.last_lsn):
            continue
        if not any(
            (part.region_id, part.incarnation) == (feed.region_id, feed.incarnation)
            and part.first_sequence_id <= feed.sequence_id <= part.last_sequence_id
            for part in manifest.feeds
        ):
            return f"{manifest.file} has no entry {feed.sequence_id} of {feed.feed}, which it says is at lsn={lsn}"
    return ""


def _between(feed: BaseFeed, told: Sequence[Manifest], missing: Sequence[Between]) -> str:
    """Say that the entry stands where no segment is, though none is missing there."""
    lsn = Lsn.parse(feed.lsn)
    inside = bool(told) and Lsn.parse(told[0].first_lsn) < lsn < Lsn.parse(told[-1].last_lsn)
    spanned = any(Lsn.parse(one.first_lsn) <= lsn <= Lsn.parse(one.last_lsn) for one in told)
    if not inside or spanned or any(after < lsn < before for after, before in missing):
        return ""
    return f"the segments have nothing at lsn={lsn}, where it says entry {feed.sequence_id} of {feed.feed} is"


def _below(base: StoredBase, part: FeedRange, known: BaseFeed | None, missing: Sequence[Between]) -> str:
    """Say that the base lacks entries of a segment that are at or below its LSN."""
    first, end = Lsn.parse(part.first_lsn), min(Lsn.parse(part.last_lsn), base.lsn)
    whole = Lsn.parse(part.last_lsn) <= base.lsn
    if known is not None and known.sequence_id >= (
        part.last_sequence_id if whole else part.first_sequence_id
    ):
        return ""
    # A later history of the feed took its place, which is all that the base needs of it.
    if any(one.feed == part.feed and Lsn.parse(one.lsn) > end for one in base.manifest.feeds):
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
    begun: Mapping[tuple[int, str], int],
    missing: Sequence[Between],
) -> str:
    """Say that a history does not go on behind the base with the entry after the base's last one, nor behind a loss."""
    first = Lsn.parse(part.first_lsn)
    if first <= base.lsn:
        fits = known is None or part.first_sequence_id <= known.sequence_id
    elif known is not None:
        fits = part.first_sequence_id == known.sequence_id + 1
    else:
        began = begun.get((part.region_id, part.incarnation), 0)
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
