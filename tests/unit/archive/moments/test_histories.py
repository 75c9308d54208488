"""Which histories make up a feed's state, and when its beginning is not in the archive."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headrace.archive.moments.histories import Line, lines_of, newest_registry
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import BaseFeed, BaseManifest
from headrace.wire.kwal_manifest import FeedRange, Manifest, RegisteredFeed

END = Lsn(1000, 7, 0)


def segment(at: int, *ranges: tuple[str, int, int], begun: dict[str, int] | None = None) -> Manifest:
    """A segment from ``at`` on, with ranges (history, first and last id); ``begun``: history -> its first id."""
    feeds = tuple(
        FeedRange(
            feed="f",
            region_id=7,
            incarnation=history,
            first_sequence_id=first,
            last_sequence_id=last,
            first_lsn=str(Lsn(at + place, 7, first)),
            last_lsn=str(Lsn(at + place, 7, last)),
        )
        for place, (history, first, last) in enumerate(ranges)
    )
    registry = tuple(
        RegisteredFeed(
            feed="f",
            region_id=7,
            tenant_id="acme",
            mode="owned",
            owner="agent",
            epoch=at,
            next_sequence_id=1,
            incarnation=history,
            first_sequence_id=first,
        )
        for history, first in (begun or {}).items()
    )
    name = f"kdb-wal-{feeds[0].first_lsn}-{feeds[-1].last_lsn}.bin"
    return Manifest(
        segment=name,
        first_lsn=feeds[0].first_lsn,
        last_lsn=feeds[-1].last_lsn,
        entries=1,
        size=1,
        crc=1,
        walked_from=str(ZERO),
        feeds=feeds,
        registry=registry,
    )


def base(at: int, *ranges: tuple[str, int, int]) -> BaseManifest:
    feeds = tuple(
        BaseFeed(
            feed="f",
            region_id=7,
            incarnation=history,
            first_sequence_id=first,
            sequence_id=last,
            lsn=str(Lsn(at, 7, last)),
            entries=0,
        )
        for history, first, last in ranges
    )
    return BaseManifest(
        lsn=str(Lsn(at, 9, 0)), committed_at_ms=0, created_at_ms=0, buckets=1, feeds=feeds, files=()
    )


def line(manifests: Sequence[Manifest], below: BaseManifest | None = None, **terms: bool) -> Line:
    return lines_of(below, manifests, END, **terms)["f"]


def spans(found: Line) -> list[tuple[str, int, int]]:
    return [(one.incarnation, one.first, one.last) for one in found.spans]


def test_one_history_from_its_beginning() -> None:
    found = line([segment(10, ("a", 1, 4)), segment(20, ("a", 5, 9)), segment(2000, ("a", 10, 12))])
    assert (spans(found), found.problem, found.incarnation) == ([("a", 1, 9)], "", "a")


def test_a_feed_whose_first_entries_are_gone() -> None:
    late = [segment(10, ("a", 5, 9))]
    assert "before 5" in line(late).problem
    assert not line(late, from_start=True).problem
    assert "before 5" in line([segment(10, ("a", 5, 9), begun={"a": 2})], from_start=True).problem
    assert not line([segment(10, ("a", 63, 70), begun={"a": 63})]).problem


def test_a_feed_that_was_made_anew_leaves_its_old_history_behind() -> None:
    found = line([segment(10, ("a", 1, 4)), segment(20, ("b", 1, 2))])
    assert (spans(found), [one.incarnation for one in found.older]) == ([("b", 1, 2)], ["a"])
    named = line([segment(10, ("a", 1, 99)), segment(20, ("b", 63, 70), begun={"b": 63})])
    assert spans(named) == [("b", 63, 70)]


def test_a_rebuilt_journal_goes_on_above_the_history_before() -> None:
    known = {"b": 1}
    found = line([segment(10, ("a", 1, 9)), segment(20, ("b", 10, 12), begun=known)])
    assert (spans(found), found.problem) == ([("a", 1, 9), ("b", 10, 12)], "")
    back = line([segment(10, ("a", 1, 9)), segment(20, ("b", 6, 12), begun=known)])
    assert spans(back) == [("a", 1, 5), ("b", 6, 12)]
    assert [(one.first, one.last) for one in back.older] == [(6, 9)]
    lost = line([segment(10, ("a", 1, 7)), segment(20, ("b", 10, 12), begun=known)])
    assert "entry 9" in lost.problem
    unsaid = line([segment(10, ("a", 1, 9)), segment(20, ("b", 10, 12))])
    assert "no manifest says" in unsaid.problem


def test_histories_that_were_written_again_do_not_count() -> None:
    rebuilt = [
        segment(10, ("a", 1, 9)),
        segment(20, ("b", 10, 12), begun={"b": 1}),
        segment(30, ("c", 8, 8), begun={"c": 1}),
    ]
    found = line(rebuilt)
    assert spans(found) == [("a", 1, 7), ("c", 8, 8)]
    assert [(one.incarnation, one.first, one.last) for one in found.older] == [("a", 8, 9), ("b", 10, 12)]


def test_behind_a_base() -> None:
    below = base(15, ("a", 1, 9))
    assert spans(line([], below)) == [("a", 1, 9)]
    assert spans(line([segment(10, ("a", 4, 8)), segment(16, ("a", 7, 12))], below)) == [("a", 1, 12)]
    assert "does not follow" in line([segment(20, ("a", 11, 12))], below).problem
    assert not line([segment(20, ("a", 11, 12))], below, over_gaps=True).problem
    rebuilt = line([segment(20, ("b", 10, 12), begun={"b": 1})], below)
    assert (spans(rebuilt), rebuilt.problem) == ([("a", 1, 9), ("b", 10, 12)], "")
    assert "does not follow" in line([segment(20, ("b", 6, 12), begun={"b": 1})], below).problem
    anew = line([segment(20, ("b", 1, 2))], below)
    assert (spans(anew), [one.incarnation for one in anew.older]) == ([("b", 1, 2)], ["a"])
    again = base(15, ("a", 1, 9), ("b", 10, 12))
    assert spans(line([segment(20, ("b", 13, 14))], again)) == [("a", 1, 9), ("b", 10, 14)]


def test_the_newest_registry_at_or_below() -> None:
    told = [segment(at, ("a", at, at), begun={"a": 1}) for at in (10, 20, 2000)]
    assert newest_registry(None, told, END)["f"].epoch == 20
    assert newest_registry(None, told[2:], END)["f"].epoch == 2000
    below = msgspec.structs.replace(base(5, ("a", 1, 1)), registry=told[0].registry)
    assert newest_registry(below, told[2:], END)["f"].epoch == 10
    assert newest_registry(None, [], END) == {}
