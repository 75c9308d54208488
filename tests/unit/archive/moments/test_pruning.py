"""Why something goes or stays, and what a refusal says."""

from __future__ import annotations

from headrace.archive.files.segments import Stored
from headrace.archive.moments.pruning import Base, Contents, Fate, Held, Terms, plan_prune
from headrace.entries.lsn import Lsn
from headrace.wire.base_manifest import base_folder
from tests.kwal import TS
from tests.prune_model import DAY_MS, base_at, segment

BEGIN_MS = TS >> 18
ENTRIES = [Lsn(BEGIN_MS + day * DAY_MS << 18, 7, day + 1) for day in range(12)]
"""One a day."""
THREE_DAYS = Terms(3, 1)


def contents(*bases: int, lost: int | None = None) -> Contents:
    """A segment a day, and bases of these days."""
    manifests = [
        segment(
            ENTRIES, day, day, (day - 1, day - 1) if day else None, ENTRIES[day - 1] if day else Lsn(0, 0, 0)
        )
        for day in range(12)
    ]
    there = [one for day, one in enumerate(manifests) if day != lost]
    return Contents(
        [Stored(one.name, one.segment, 1, True) for one in there],
        {one.segment: one for one in there},
        [Base(ENTRIES[day], base_folder(ENTRIES[day]), base_at(ENTRIES, day)) for day in bases],
    )


def fates(of: Contents, terms: Terms = THREE_DAYS, day: float = 11) -> tuple[list[Fate], list[Fate], str]:
    plan = plan_prune(of, terms, BEGIN_MS + round(day * DAY_MS))
    return [one.fate for one in plan.segments], [one.fate for one in plan.bases], plan.refused


def test_what_the_retention_needs_stays() -> None:
    segments, bases, refused = fates(contents(2, 5, 9))
    assert segments == [Fate.AGED] * 5 + [Fate.NEEDED] * 3 + [Fate.YOUNG] * 3 + [Fate.NEWEST]
    assert bases == [Fate.AGED, Fate.NEEDED, Fate.YOUNG]
    assert not refused


def test_a_base_within_the_buffer_keeps_what_follows_it() -> None:
    segments, bases, _ = fates(contents(2, 5, 6), Terms(3, 4))
    assert segments[:7] == [Fate.AGED] * 5 + [Fate.BUFFERED] + [Fate.NEEDED]
    assert bases == [Fate.AGED, Fate.BUFFERED, Fate.NEEDED]


def test_a_clock_that_is_ahead_takes_nothing_more() -> None:
    assert fates(contents(2, 5, 9), day=11) == fates(contents(2, 5, 9), day=4000)
    assert set(fates(contents(2, 5, 9), day=-50)[0]) == {Fate.YOUNG, Fate.NEWEST}


def test_nothing_goes_without_a_base_that_can_be_used() -> None:
    segments, _, refused = fates(contents())
    assert not any(one.goes for one in segments)
    assert "no base snapshot can be used" in refused
    torn = contents(2, 5)
    torn = torn._replace(bases=[one._replace(stored=None, problem="torn") for one in torn.bases])
    assert "no base snapshot can be used" in fates(torn)[2]
    assert fates(contents(9)) == ([Fate.NEEDED] * 8 + [Fate.YOUNG] * 3 + [Fate.NEWEST], [Fate.YOUNG], "")


def test_nothing_goes_while_something_is_missing_behind_the_anchor() -> None:
    segments, bases, refused = fates(contents(2, 5, lost=7))
    assert segments[:5] == [Fate.BLOCKED] * 5
    assert bases == [Fate.BLOCKED, Fate.NEEDED]
    assert "something is missing that nobody has accepted" in refused
    below = fates(contents(2, 5, lost=3))
    assert below[0][:4] == [Fate.AGED] * 4
    assert not below[2]


def test_nothing_goes_under_who_holds_it() -> None:
    held = contents(2, 5)._replace(holds=[Held("restore, process 7 of host", ENTRIES[2])])
    segments, bases, refused = fates(held)
    assert segments[:6] == [Fate.AGED] * 2 + [Fate.HELD] * 3 + [Fate.NEEDED]
    assert bases == [Fate.HELD, Fate.NEEDED]
    assert not refused
    all_held = held._replace(holds=[Held("restore, process 7 of host", ENTRIES[0])])
    assert fates(all_held)[2] == f"restore, process 7 of host needs everything from lsn={ENTRIES[0]} on"


def test_the_newest_segment_may_still_be_without_a_manifest() -> None:
    whole = contents(2, 5)
    newest = whole.segments[-1]
    young = whole._replace(
        segments=[*whole.segments[:-1], newest._replace(told=False)],
        manifests={file: one for file, one in whole.manifests.items() if file != newest.file},
    )
    assert fates(young) == fates(whole)


def test_a_base_that_the_segments_do_not_go_on_from_is_no_anchor() -> None:
    found = contents(2, 5)
    manifest = base_at(ENTRIES, 3).manifest
    short = base_at(ENTRIES, 5)._replace(manifest=manifest)
    found = found._replace(bases=[found.bases[0], found.bases[1]._replace(stored=short)])
    segments, _, _ = fates(found)
    assert segments[:3] == [Fate.AGED] * 2 + [Fate.NEEDED]
