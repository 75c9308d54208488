"""Any archive, any terms, any moment: after a prune every moment of the retention is as reachable as it was before."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.archive.files.gaps import AcceptedGap
from headrace.archive.files.segments import Stored
from headrace.archive.moments.pruning import Base, Contents, Fate, Held, PrunePlan, Terms, plan_prune
from headrace.entries.lsn import Lsn
from headrace.wire.base_manifest import base_folder
from tests.prune_model import DAY_MS, REGION, base_at, segment
from tests.scale import scaled, sized

HOUR_MS = 3_600_000
BEGIN_MS = 1_800_000_000_000
ROUNDS = settings(max_examples=sized(scaled(90), soak=scaled(300)), deadline=None)


def lsn(at: int, ms: int) -> Lsn:
    return Lsn(BEGIN_MS + ms << 18 | at, REGION, at + 1)


class Past(NamedTuple):
    """A log of one feed, an entry a place of ``entries``, and the archive of it."""

    entries: list[Lsn]
    contents: Contents


@st.composite
def pasts(draw: st.DrawFn) -> Past:
    """Up to 14 days of entries in segments, some lost, some untold, with bases that can be used and others, and gaps."""
    pauses = draw(st.lists(st.integers(0, 60), min_size=4, max_size=14))
    times = [sum(pauses[: at + 1]) * HOUR_MS for at in range(len(pauses))]
    entries = [lsn(at, ms) for at, ms in enumerate(times)]
    cuts = sorted(draw(st.sets(st.integers(1, len(entries) - 1), max_size=6)))
    bounds = list(zip([0, *cuts], [cut - 1 for cut in [*cuts, len(entries)]], strict=True))
    begin_unknown = draw(st.booleans())
    lost = draw(st.sets(st.integers(0, len(bounds) - 2), max_size=1)) if len(bounds) > 1 else set()
    untold = draw(st.sets(st.sampled_from(range(len(bounds))), max_size=1))
    stored, manifests = [], {}
    for at, (first, last) in enumerate(bounds):
        if at in lost:
            continue
        before = bounds[at - 1] if at else None
        walked = entries[before[1]] if before is not None else Lsn(1 if begin_unknown else 0, 0, 0)
        manifest = segment(entries, first, last, before, walked)
        stored.append(Stored(manifest.name, manifest.segment, 1, at not in untold))
        if at not in untold:
            manifests[manifest.segment] = manifest
    places = sorted(draw(st.sets(st.sampled_from(range(len(entries))), max_size=4)))
    bases = [
        Base(
            entries[at],
            base_folder(entries[at]),
            base_at(entries, at) if usable else None,
            "" if usable else "torn",
        )
        for at in places
        for usable in (draw(st.sampled_from([True, True, False])),)
    ]
    accepted = [
        AcceptedGap(
            after=str(entries[bounds[at][0] - 1] if at else Lsn(1, 0, 0)),
            before=str(entries[bounds[at][1] + 1]),
            reason="lost",
            by="me",
            at_ms=0,
        )
        for at in lost
        if draw(st.booleans())
    ]
    holds = [
        Held("a restore", entries[at])
        for at in draw(st.lists(st.sampled_from(range(len(entries))), max_size=1))
    ]
    return Past(entries, Contents(stored, manifests, bases, accepted, holds))


TERMS = st.builds(
    Terms, retention_days=st.sampled_from([0, 0.5, 2, 7, 30]), buffer_days=st.sampled_from([0, 1, 5])
)
NOWS = st.integers(0, 900 * 24).map(lambda hours: BEGIN_MS + hours * HOUR_MS)


def pruned(past: Past, plan: PrunePlan) -> Contents:
    """The archive after the plan was carried out."""
    gone = {one.file for one in plan.segments_going}
    paths = {one.path for one in plan.bases_going}
    return past.contents._replace(
        segments=[one for one in past.contents.segments if one.file not in gone],
        bases=[one for one in past.contents.bases if one.path not in paths],
        accepted=[one for one in past.contents.accepted if one not in plan.accepted],
    )


def can_rebuild(past: Past, contents: Contents, target: Lsn) -> bool:
    """Whether all entries up to ``target`` are there, behind some base or from the first one on: by looking at each."""
    there = set()
    for one in contents.segments:
        there |= {entry for entry in past.entries if one.told and one.name.first <= entry <= one.name.last}
    for gap in contents.accepted:
        after, before = gap.span
        there |= {entry for entry in past.entries if after < entry < before}
    starts = [one.lsn for one in contents.bases if one.stored] + [Lsn(0, 0, 0)]
    return any(
        all(entry in there for entry in past.entries if start < entry <= target)
        for start in starts
        if start <= target
    )


@ROUNDS
@given(pasts(), TERMS, NOWS)
def test_every_moment_of_the_retention_comes_to_the_same_entry(past: Past, terms: Terms, now_ms: int) -> None:
    plan = plan_prune(past.contents, terms, now_ms)
    after = pruned(past, plan)
    since = min(now_ms, past.entries[-1].committed_at_ms) - terms.retention_days * DAY_MS
    for at, target in enumerate(past.entries):
        # The entry is the last one of moments from its own time up to the next one's.
        until = past.entries[at + 1].committed_at_ms if at + 1 < len(past.entries) else None
        in_retention = until is None or until > since
        if in_retention and can_rebuild(past, past.contents, target):
            assert can_rebuild(past, after, target), (target, plan)


@ROUNDS
@given(pasts(), TERMS, NOWS)
def test_what_a_plan_never_does(past: Past, terms: Terms, now_ms: int) -> None:
    contents = past.contents
    plan = plan_prune(contents, terms, now_ms)
    after = pruned(past, plan)
    assert after.segments[-1] == contents.segments[-1], "the agent goes on behind the newest"
    if plan.segments_going or plan.bases_going:
        assert not plan.refused
        assert plan.anchor in after.bases
        assert plan.anchor is not None
        assert plan.anchor.stored is not None
    for held in contents.holds:
        assert all(one.name.last < held.lsn_from for one in plan.segments_going)
        assert all(one.lsn < held.lsn_from for one in plan.bases_going)
    # What stays is one piece: segments go from the oldest on, and every base that stays has what follows it.
    assert after.segments == contents.segments[len(plan.segments_going) :]
    if plan.segments_going:
        assert all(one.lsn > plan.segments_going[-1].name.last for one in after.bases)
    again = plan_prune(after, terms, now_ms)
    assert not again.segments_going
    assert not again.bases_going


@ROUNDS
@given(pasts(), TERMS, NOWS, st.integers(1, 100))
def test_as_time_passes_more_goes(past: Past, terms: Terms, now_ms: int, days: int) -> None:
    now = plan_prune(past.contents, terms, now_ms)
    later = plan_prune(past.contents, terms, now_ms + days * DAY_MS)
    if not later.refused:
        assert set(now.segments_going) <= set(later.segments_going)
    fates = {one.fate for one in now.segments} | {one.fate for one in now.bases}
    assert (Fate.BLOCKED in fates) <= bool(now.refused)
