"""The plan of a restore against a plain model: what is reachable, and which entry is the last one kept."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import RestorePlan, plan
from headrace.archive.moments.reachable import whole_below
from headrace.archive.moments.target import Asked
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, SegmentGap, TargetInsideAppend, TargetUnreachable
from tests.archive_model import (
    ALL,
    FEEDS,
    PAUSE_MAX_MS,
    Append,
    History,
    Known,
    is_whole,
    last_whole,
    write_archive,
    write_base,
)
from tests.scale import scaled, sized

_TX = st.sampled_from(["", "", "A", "B", "C"])
_LATE = st.integers(0, 6).map(lambda one: one % 2 + one // 2 * PAUSE_MAX_MS // 2)
"""Times around which a transaction counts as ended that nothing more comes of, and over which one that goes on is open."""


class Case(NamedTuple):
    """A history, and what became of its archive: which lost segments are ``accepted``, which bases are ``foreign``.

    ``old``: so many segments are an older agent's.
    """

    appends: list[Append]
    cuts: list[int]
    lost: list[int]
    bases: list[int]
    accepted: set[int]
    foreign: list[tuple[int, bool]]
    old: int = 0


@st.composite
def appends_of(draw: st.DrawFn) -> Append:
    ms = draw(st.integers(0, 6) | _LATE)
    entries = draw(st.lists(st.tuples(_TX, st.booleans()), min_size=1, max_size=3))
    return Append(
        draw(st.sampled_from(sorted(FEEDS))), ms, tuple((tx, last and bool(tx)) for tx, last in entries)
    )


_RUN = st.builds(lambda first, count: list(range(first, first + count)), st.integers(0, 4), st.integers(2, 3))
"""Segments that are lost one behind the other: of such a gap, a part may be accepted."""

CASES = st.builds(
    Case,
    st.lists(appends_of(), min_size=1, max_size=12),
    st.lists(st.integers(1, 11), max_size=4) | st.just(list(range(1, 12))),
    st.lists(st.integers(0, 4), max_size=2) | _RUN,
    st.lists(st.integers(0, 15), max_size=2),
    st.sets(st.integers(0, 5)) | st.just(set(range(6))),
    st.lists(st.tuples(st.integers(0, 15), st.booleans()), max_size=1),
    st.sampled_from([0, 1, 2, 3, ALL]),
)


_LINE = [Append(7, 10 * at) for at in range(6)]
LOST_IN_PART = Case(_LINE, [1, 2, 3, 4, 5], [1, 2], [], {1}, [])
"""Of two segments that are lost one behind the other, the first is accepted."""
FOREIGN = Case(_LINE, [3], [], [], set(), [(2, True)])
ONE_MS = Case([Append(7, ms) for ms in (0, 10, 10, 10, 30)], [2, 3, 4], [1], [], set(), [])
"""A gap that nobody accepted, in the middle of a millisecond."""


class Model:
    """The same archive as a list of entries, each there or lost."""

    def __init__(self, case: Case) -> None:
        self.history, self.old = History(case.appends), case.old
        entries = self.history.entries
        self.segments = self.history.segments(sorted(set(case.cuts)))
        self.old_to = self.segments[min(self.old, len(self.segments)) - 1].name.last if self.old else ZERO
        self.lost = sorted({at for at in case.lost if at < len(self.segments)})
        if len(self.lost) == len(self.segments):
            self.lost = []
        gone = [self.segments[at].name for at in self.lost]
        self.there = [not any(name.first <= one.lsn <= name.last for name in gone) for one in entries]
        # A base is made where the log may be cut: where something is lost, it was made before that.
        whole = [at for at in range(len(entries)) if is_whole(entries, at)]
        self.bases = sorted({at for at in case.bases if at in whole})
        # One is another's for sure where the segment that should have its last entry is there.
        self.foreign = [
            (at, same)
            for at, same in case.foreign
            if at < len(entries) and at not in self.bases and self.there[at]
        ]
        self.accepted = [
            (self.segments[at - 1].name.last, Lsn.from_int(int(self.segments[at].name.last) + 1))
            for at in self.lost
            if 0 < at < len(self.segments) - 1 and at in case.accepted
        ]

    def write(self, folder: Path) -> None:
        entries = self.history.entries
        bases = [entries[: at + 1] for at in self.bases]
        write_archive(
            folder, self.segments, lost=self.lost, bases=bases, accepted=self.accepted, old=self.old
        )
        for at, same in self.foreign:
            names = None if same else {region: f"other::{region}" for region in FEEDS}
            write_base(folder, self.history.entries[: at + 1], incarnation="another", names=names)

    def lost_between(self, start: int, last: int) -> set[int]:
        """Return the places behind ``start``, up to ``last``, whose entries are lost."""
        return {at for at in range(start + 1, last + 1) if not self.there[at]}

    def last_until(self, ms: int) -> int | None:
        """Return the place of the last entry up to a millisecond that the archive has, or lost in front of one it has."""
        end = self._end()
        below = (at for at in range(end, -1, -1) if self.history.entries[at].lsn.committed_at_ms <= ms)
        return next(below, None)

    def at_time(self, ms: int) -> int | None:
        """Return the place of the last entry up to a millisecond; None if nobody can tell which, or it can't be had."""
        last = self.last_until(ms)
        start = None if last is None else self.start_for(last)
        if last is None or start is None:
            return None
        # At its end, and in front of a loss, the archive does not know what else came up to a later time.
        at_end = last == self._end()
        if self.history.entries[last].lsn.committed_at_ms < ms if at_end else not self.there[last + 1]:
            return None
        return max(at for at in range(-1, last + 1) if at == start or (at > start and self.there[at]))

    def _end(self) -> int:
        return max([*(at for at, there in enumerate(self.there) if there), *self.bases])

    def is_missing(self, at: int) -> bool:
        """Tell whether an entry is lost, and nobody accepted that."""
        lsn = self.history.entries[at].lsn
        return not self.there[at] and not any(after < lsn < before for after, before in self.accepted)

    def start_for(self, at: int) -> int | None:
        """Return the place of the newest base from which nothing is missing; -1 for the beginning; None if there is none."""
        for base in (*reversed(self.bases), -1):
            if base <= at and not any(self.is_missing(place) for place in range(base + 1, at + 1)):
                return base
        return None

    def can(self, at: int) -> bool:
        """Tell whether the entry can be the last one of a restore, whole or not."""
        start = self.start_for(at)
        return start is not None and (self.there[at] or start == at)

    def expected(self, at: int) -> int | None:
        """Return the place of the last entry kept; None if there is none."""
        start = self.start_for(at)
        assert start is not None
        entries = self._known(at)
        known = [one for _, one in entries]
        end = known[-1].lsn if known else self.history.entries[max(start, 0)].lsn
        ahead = [
            one
            for one, there in zip(self.history.entries, self.there, strict=True)
            if there and one.lsn > end
        ]
        many = len([1 for number, _ in entries if number <= at])
        place = last_whole(known, many - 1, old=self.old_to, ahead=ahead)
        return entries[place][0] if place >= 0 else start if start >= 0 else None

    def _known(self, at: int) -> list[tuple[int, Known]]:
        """Return what a restore to ``at`` could know: all there is behind its start, as far as nothing is missing."""
        start = self.start_for(at)
        assert start is not None
        end = len(self.history.entries)
        for place in range(at + 1, end):
            if self.is_missing(place):
                end = place
                break
        return [(place, self.history.entries[place]) for place in range(start + 1, end) if self.there[place]]


@settings(max_examples=sized(scaled(20), soak=scaled(25)), deadline=None)
@given(CASES)
@example(LOST_IN_PART)
@example(FOREIGN)
def test_the_plan_for_every_entry_is_the_models(case: Case) -> None:
    model = Model(case)
    with tempfile.TemporaryDirectory() as folder:
        model.write(Path(folder))
        archive = Archive.read(folder)
        for at, entry in enumerate(model.history.entries):
            _check_lsn(model, archive, at, entry)
            _check_exact(model, archive, at, entry)


def _check_lsn(model: Model, archive: Archive, at: int, entry: Known) -> None:
    found = _plan(archive, Asked(to_lsn=entry.lsn))
    if not model.can(at):
        assert isinstance(found, TargetUnreachable | SegmentGap), (entry, found)
        assert found.exit_code == (4 if isinstance(found, TargetUnreachable) else 3)
        return
    if not entry.append_end and at not in model.bases:
        assert isinstance(found, TargetInsideAppend), (entry, found)
        return
    expected = model.expected(at)
    if expected is None:
        assert isinstance(found, TargetUnreachable), (entry, found)
        return
    assert isinstance(found, RestorePlan), (entry, found)
    entries = model.history.entries
    assert found.target_lsn == entries[expected].lsn
    assert found.moved_from == (entry.lsn if expected != at else None)
    _check_told(model, found, expected, at)
    start = model.start_for(expected)
    assert start is not None
    assert found.after_lsn == (entries[start].lsn if start >= 0 else ZERO)
    assert (found.base is not None) == (start >= 0)
    kept = {
        one.region: one.sequence_id
        for at, one in enumerate(entries[: expected + 1])
        if model.there[at] or at <= start
    }
    assert {one.region_id: one.last_sequence_id for one in found.feeds} == kept
    used = [
        one.name
        for number, one in enumerate(model.segments)
        if number not in model.lost
        and any(
            one.name.first <= known.lsn <= one.name.last and found.after_lsn < known.lsn <= found.target_lsn
            for known in entries
        )
    ]
    assert [one.name for one in found.segments] == used
    whole = [place for place in range(len(entries)) if model.can(place) and model.expected(place) == place]
    before, after = [one for one in whole if one < expected], [one for one in whole if one > expected]
    assert found.nearest_before == (entries[before[-1]].lsn if before else None)
    assert found.nearest_after == (entries[after[0]].lsn if after else None)


def _check_told(model: Model, found: RestorePlan, kept: int, asked: int) -> None:
    """Check that each entry lost up to the moment asked for is in a gap that is told, and each gap has one."""
    start = model.start_for(kept)
    assert start is not None
    for gaps, lost in (
        (found.gaps, model.lost_between(start, kept)),
        (found.gaps_beyond, model.lost_between(kept, asked)),
    ):
        inside = [
            {at for at, one in enumerate(model.history.entries) if gap.after < one.lsn < gap.before}
            for gap in gaps
        ]
        assert set().union(*inside) == lost
        assert all(inside)
    assert sum("that was accepted" in one for one in found.warnings) == len(found.gaps + found.gaps_beyond)


def _check_exact(model: Model, archive: Archive, at: int, entry: Known) -> None:
    found = _plan(archive, Asked(to_lsn=entry.lsn, exact_entry=True))
    assert isinstance(found, RestorePlan) == model.can(at), (entry, found)
    if isinstance(found, RestorePlan):
        assert found.target_lsn == entry.lsn


@settings(max_examples=sized(scaled(30), soak=scaled(60)), deadline=None)
@given(CASES, st.integers(-2, 8))
@example(ONE_MS, 10)
@example(LOST_IN_PART, 10)
def test_the_plan_for_every_time_is_the_models(case: Case, ms: int) -> None:
    model = Model(case)
    entries = model.history.entries
    with tempfile.TemporaryDirectory() as folder:
        model.write(Path(folder))
        archive = Archive.read(folder)
        wanted = entries[0].lsn.committed_at_ms + ms
        found = _plan(archive, Asked(to_time_ms=wanted))
    at, last = model.at_time(wanted), model.last_until(wanted)
    expected = None if at is None else model.expected(at)
    if last is None or expected is None:
        # Nothing is at or below it, or what is can't all be had, or can't be had whole.
        assert isinstance(found, TargetUnreachable | SegmentGap), found
        return
    assert isinstance(found, RestorePlan), found
    assert found.target_lsn == entries[expected].lsn
    _check_told(model, found, expected, last)


PAUSED = [
    Append(7, 0),
    Append(8, 1, (("A", False),)),
    Append(7, 2 * PAUSE_MAX_MS),
    Append(9, 3 * PAUSE_MAX_MS),
    Append(8, 4 * PAUSE_MAX_MS, (("A", True),)),
    Append(7, 5 * PAUSE_MAX_MS),
]
"""A transaction that had counted as ended when the base was made."""
_GROWING = st.lists(appends_of(), min_size=1, max_size=12).map(
    lambda made: sorted(made, key=lambda one: one.ms)
)


@settings(max_examples=sized(scaled(20), soak=scaled(25)), deadline=None)
@given(_GROWING, st.lists(st.integers(1, 11), max_size=6), st.integers(0, 11))
@example(PAUSED, [3], 0)
@example(PAUSED, [2, 3, 4], 1)
def test_a_base_that_was_made_while_the_archive_grew_changes_no_target(
    appends: list[Append], cuts: list[int], made: int
) -> None:
    """What was whole then, as nothing more of a transaction was known, may be inside of it now."""
    history = History(appends)
    segments, entries = history.segments(sorted(set(cuts))), history.entries
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder), segments[: made % len(segments) + 1])
        lsn = whole_below(Archive.read(folder), entries[-1].lsn)
        places = [at + 1 for at, one in enumerate(entries) if one.lsn == lsn]
        write_archive(Path(folder), segments, bases=[entries[:count] for count in places])
        archive = Archive.read(folder)
        for at, entry in enumerate(entries):
            if not entry.append_end:
                continue
            place = last_whole(entries, at)
            found = _plan(archive, Asked(to_lsn=entry.lsn))
            assert isinstance(found, RestorePlan) == (place >= 0), (entry, found)
            if isinstance(found, RestorePlan):
                assert found.target_lsn == entries[place].lsn


def _plan(archive: Archive, asked: Asked) -> RestorePlan | HeadraceError:
    try:
        return plan(archive, asked)
    except HeadraceError as error:
        return error
