"""Which entries of each feed a restore keeps: those of the histories that make up its state at the target. Pure.

A feed whose server was rebuilt goes on under a new history, above entries of the one before; both are its state
(:mod:`headrace.archive.moments.histories`). What is not whole is refused here, before a byte of a segment is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.archive.moments.chain import Gap
from headrace.archive.moments.histories import Line, Span, lines_of
from headrace.archive.moments.planning import RestorePlan
from headrace.entries.lsn import Lsn
from headrace.errors import RestoreInexact, Usage
from headrace.pipeline.restore.surveying import Control, Survey
from headrace.wire.kwal_manifest import FeedRange, Manifest


class Kept(NamedTuple):
    """One feed at the target: the histories that make it up, the newest last, its last entry, and what is not restored.

    ``first``: sequence id of the first entry that the base or the segments stand for. ``older``: incarnations of which
    nothing is restored. ``lost``: its beginning went with an accepted gap.
    """

    feed: str
    spans: tuple[Span, ...]
    first: int
    last: int
    lsn: Lsn
    older: tuple[str, ...]
    lost: bool = False

    @property
    def incarnation(self) -> str:
        """The newest history."""
        return self.spans[-1].incarnation

    def controls(self, survey: Survey) -> list[Control]:
        """Return the feed's control entries that count, in order."""
        of = {span.incarnation: span for span in self.spans}
        mine = (one for one in survey.controls if one.feed == self.feed and one.incarnation in of)
        counted = (one for one in mine if one.sequence_id <= of[one.incarnation].last)
        return sorted(counted, key=lambda one: one.sequence_id)

    def entries(self, survey: Survey) -> int:
        """Return how many entries that count there are."""
        of = {span.incarnation: span for span in self.spans}
        return sum(
            # Of a history that a later one wrote again, from some entry on, those above do not count.
            one.entries - max(0, one.last - of[one.incarnation].last)
            for one in survey.held
            if one.feed == self.feed and one.incarnation in of
        )


def kept_feeds(plan: RestorePlan, manifests: Sequence[Manifest], only: Sequence[str]) -> tuple[Kept, ...]:
    """Return the feeds at the plan's target. ``manifests``: of its segments. ``only``: the feeds wanted, () for all.

    Usage for a feed that there is none of; RestoreInexact for one whose beginning, or a history that it goes on from, is
    not in the archive, unless an accepted gap took its beginning.
    """
    lines = _lines(plan, manifests)
    unknown = sorted(set(only) - set(lines))
    if unknown:
        known = ", ".join(sorted(lines)) or "none"
        raise Usage(
            f"--feeds: the archive has no feed {unknown[0]} up to lsn={plan.target_lsn}; it has {known}"
        )
    ends = {(one.feed, one.incarnation): one for one in plan.feeds}
    found = []
    for feed, (line, lost) in sorted(lines.items()):
        if only and feed not in only:
            continue
        if line.problem and not lost:
            raise RestoreInexact(
                f"{feed} would not be whole: {line.problem}",
                hint="Restore another moment, or the other feeds: --feeds.",
            )
        end = ends.get((feed, line.incarnation))
        if end is None or not end.current:
            raise RestoreInexact(
                f"the plan does not tell where {feed} ends in its history {line.incarnation}"
            )
        restored = {span.incarnation for span in line.spans}
        older = (span.incarnation for span in line.older if span.incarnation not in restored)
        found.append(
            Kept(
                feed, line.spans, line.first, end.last_sequence_id, end.lsn, tuple(dict.fromkeys(older)), lost
            )
        )
    return tuple(found)


def _lines(plan: RestorePlan, manifests: Sequence[Manifest]) -> dict[str, tuple[Line, bool]]:
    """Return each feed's line, and whether an accepted gap took its beginning."""
    base = plan.base.manifest if plan.base is not None else None
    gaps = bool(plan.gaps)
    # A plan without a base begins with the log, and a base knows all feeds that there were: nothing is before either.
    lines = lines_of(base, manifests, plan.target_lsn, from_start=True, over_gaps=gaps)
    if not gaps:
        return {feed: (line, False) for feed, line in lines.items()}
    strict = lines_of(base, manifests, plan.target_lsn, over_gaps=True)
    behind = min(gap.before for gap in plan.gaps)
    found = {}
    for feed, line in lines.items():
        told = strict[feed] if line.spans[0].first_lsn >= behind else line
        found[feed] = told, bool(told.problem) and told is strict[feed] and not line.older
    return found


def ranges_of(
    manifests: Iterable[Manifest], history: tuple[str, str], after: Lsn, target: Lsn
) -> Iterator[FeedRange]:
    """Yield what segments have of one history between two LSNs, in order; whole, where one goes on beyond."""
    for manifest in manifests:
        for one in manifest.feeds:
            is_inside = Lsn.parse(one.last_lsn) > after and Lsn.parse(one.first_lsn) <= target
            if (one.feed, one.incarnation) == history and is_inside:
                yield one


def entries_of(ranges: Sequence[FeedRange], first: int, last: int, gaps: Sequence[Gap], after: Lsn) -> int:
    """Return how many of the entries ``first`` … ``last`` there are in the ranges: all, but what accepted gaps took.

    ``after``: where the ranges begin, the base's LSN. RestoreInexact if others are missing.
    """
    if not ranges:
        return 0
    place, lsn, count = first, after, 0
    for one in ranges:
        begins = Lsn.parse(one.first_lsn)
        if one.first_sequence_id > place and not any(
            lsn <= gap.after and gap.before <= begins for gap in gaps
        ):
            raise RestoreInexact(
                f"{one.feed}: its entries {place} to {one.first_sequence_id - 1} are in no segment, and no accepted gap "
                "took them"
            )
        end = min(one.last_sequence_id, last)
        count += max(0, end - max(one.first_sequence_id, place) + 1)
        place, lsn = max(place, end + 1), Lsn.parse(one.last_lsn)
    return count
