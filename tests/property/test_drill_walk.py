"""The drill's own walk to the last whole entry against a plain model that looks at everything, and against the plan."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.links import LOOK_MAX_MS, LOOK_SEGMENTS_MAX
from headrace.archive.moments.planning import plan
from headrace.archive.moments.target import Asked
from headrace.entries.lsn import ZERO, Lsn
from headrace.pipeline.drill.walking import (
    LOOK_MS,
    LOOK_SEGMENTS,
    PAUSE_MS,
    Entry,
    last_whole,
    own_target,
    whole_below,
)
from tests.archive_model import ALL, FEEDS, PAUSE_MAX_MS, Append, History, write_archive
from tests.archive_model import last_whole as last_whole_of
from tests.scale import sized

_TX = st.sampled_from(["", "", "A", "B", "C"])
_LATE = st.integers(0, 16).map(lambda one: one % 2 + one // 2 * PAUSE_MAX_MS // 2)
"""Times around which a transaction counts as ended that nothing more comes of, and over which one that goes on is open."""

_OLD = st.sampled_from([0, 1, 2, 3, ALL])
"""So many segments are an older agent's."""


@st.composite
def appends_of(draw: st.DrawFn) -> Append:
    entries = draw(st.lists(st.tuples(_TX, st.booleans()), min_size=1, max_size=3))
    ms = draw(st.integers(0, 6) | _LATE)
    changes = tuple((tx, last and bool(tx)) for tx, last in entries)
    return Append(draw(st.sampled_from(sorted(FEEDS))), ms, changes)


APPENDS = st.lists(appends_of(), min_size=1, max_size=14).map(
    lambda made: sorted(made, key=lambda one: one.ms)
)


@settings(max_examples=sized(60, soak=200), deadline=None)
@given(APPENDS)
def test_the_walk_over_entries_is_the_models(appends: list[Append]) -> None:
    known = History(appends).entries
    entries = [
        Entry(one.lsn, (one.region, ""), one.append_end, one.tx.encode(), one.tx_last) for one in known
    ]
    for at, one in enumerate(known):
        place = last_whole_of(known, at)
        found = whole_below(entries, one.lsn, end_ms=known[-1].lsn.committed_at_ms)
        assert found == (known[place].lsn if place >= 0 else None)


@settings(max_examples=sized(20, soak=30), deadline=None)
@given(APPENDS, st.sets(st.integers(1, 13)), _OLD)
def test_the_walk_over_segments_is_the_models(appends: list[Append], cuts: set[int], old: int) -> None:
    history = History(appends)
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder), history.segments(sorted(cuts)), old=old)
        archive = Archive.read(folder)
        for at, one in enumerate(history.entries):
            place = last_whole_of(history.entries, at)
            expected = history.entries[place].lsn if place >= 0 else ZERO
            assert last_whole(archive, ZERO, one.lsn) == expected


@settings(max_examples=sized(30, soak=60), deadline=None)
@given(APPENDS, st.sets(st.integers(1, 13)), st.sets(st.integers(1, 12), min_size=1), _OLD)
def test_the_walk_over_accepted_gaps_is_the_models_and_the_plans(
    appends: list[Append], cuts: set[int], lost: set[int], old: int
) -> None:
    history = History(appends)
    segments = history.segments(sorted(cuts))
    gone = [at for at in sorted(lost) if at < len(segments) - 1]
    names = [segments[at].name for at in gone]
    gaps = [
        (segments[at - 1].name.last, Lsn.from_int(int(name.last) + 1))
        for at, name in zip(gone, names, strict=True)
    ]
    # What is there follows one another, as if nothing had been between.
    old_to = segments[min(old, len(segments)) - 1].name.last if old else ZERO
    there = [one for one in history.entries if not any(name.first <= one.lsn <= name.last for name in names)]
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder), segments, lost=gone, accepted=gaps, old=old)
        archive = Archive.read(folder)
        for at, one in enumerate(there):
            place = last_whole_of(there, at, old=old_to)
            expected = there[place].lsn if place >= 0 else ZERO
            assert last_whole(archive, ZERO, one.lsn) == expected
            if one.append_end and place >= 0:
                assert plan(archive, Asked(to_lsn=one.lsn)).target_lsn == expected


def test_an_archive_that_grew_meanwhile() -> None:
    tx = (("A", False),)
    history = History([Append(7, 0), Append(8, 1, tx), Append(7, 2), Append(8, 3, (("A", True),))])
    first, asked, last = (history.entries[at].lsn for at in (0, 2, 3))
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder), history.segments([3])[:1])
        earlier = Archive.read(folder)
        assert own_target(earlier, earlier, ZERO, asked, first) == first
        assert own_target(earlier, earlier, ZERO, asked, asked) == first
        write_archive(Path(folder), history.segments([3]))
        later = Archive.read(folder)
        # The transaction ended: a plan of the earlier archive ends before it, and one of the later archive behind it.
        assert own_target(earlier, later, ZERO, last, first) == first
        assert own_target(earlier, later, ZERO, last, last) == last
        assert own_target(later, later, ZERO, last, first) == last


def test_the_bounds_are_those_of_a_plan() -> None:
    assert (PAUSE_MS, LOOK_SEGMENTS, LOOK_MS) == (PAUSE_MAX_MS, LOOK_SEGMENTS_MAX, LOOK_MAX_MS)
