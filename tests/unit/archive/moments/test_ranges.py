"""What planning costs in an archive of many segments and feeds: counted in steps, not in time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from headrace.archive.files.bases import StoredBase
from headrace.archive.files.segments import Stored
from headrace.archive.moments import fitting
from headrace.archive.moments.chain import Chain
from headrace.archive.moments.marks import Marks
from headrace.archive.moments.pieces import Piece, Pieces
from headrace.archive.moments.ranges import Ranges, between, in_order
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import BaseFeed, BaseManifest, base_folder
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange, Manifest, Predecessor

EACH = 10
"""Entries of each feed in each segment."""


def lsn_of(segment: int, feed: int, index: int, ms: int = 0) -> Lsn:
    return Lsn(1_700_000_000_000 + 60_000 * segment + feed + ms << 18, feed + 1, index)


def part(segment: int, feed: int, incarnation: str = "i") -> FeedRange:
    """Return what a segment has of a feed."""
    first, last = EACH * segment + 1, EACH * segment + EACH
    return FeedRange(
        feed=f"feed{feed}",
        region_id=feed + 1,
        incarnation=incarnation,
        first_sequence_id=first,
        last_sequence_id=last,
        first_lsn=str(lsn_of(segment, feed, first)),
        last_lsn=str(lsn_of(segment, feed, last, 30_000)),
        ends_whole=True,
    )


class Wide(NamedTuple):
    """An archive in memory: each feed has entries in each segment; bases in the middle, one segment after the other."""

    segments: list[Stored]
    manifests: dict[str, Manifest]
    bases: list[StoredBase]

    @classmethod
    def of(cls, segments: int, feeds: int, bases: int) -> Wide:
        found = cls([], {}, [])
        before: Predecessor | None = None
        for at in range(segments):
            parts = tuple(part(at, feed) for feed in range(feeds))
            name = SegmentName(Lsn.parse(parts[0].first_lsn), Lsn.parse(parts[-1].last_lsn))
            one = Stored(name, str(name), 1000, True)
            found.segments.append(one)
            found.manifests[one.file] = Manifest(
                segment=str(name),
                first_lsn=str(name.first),
                last_lsn=str(name.last),
                entries=EACH * feeds,
                size=1000,
                crc=at,
                walked_from=before.last_lsn if before is not None else str(ZERO),
                predecessor=before,
                feeds=parts,
            )
            before = Predecessor(name=str(name), last_lsn=str(name.last), crc=at)
        for at in range(segments // 2, segments // 2 + bases):
            found.bases.append(found.base(at))
        return found

    def base(self, at: int) -> StoredBase:
        """Return the base at a segment's end."""
        last = self.segments[at].name.last
        feeds = tuple(
            BaseFeed(
                feed=one.feed,
                region_id=one.region_id,
                incarnation=one.incarnation,
                first_sequence_id=1,
                sequence_id=one.last_sequence_id,
                lsn=one.last_lsn,
                entries=0,
            )
            for one in self.manifests[self.segments[at].file].feeds
        )
        manifest = BaseManifest(
            lsn=str(last),
            committed_at_ms=last.committed_at_ms,
            created_at_ms=0,
            buckets=1,
            feeds=feeds,
            files=(),
        )
        return StoredBase(last, base_folder(last), manifest)


def unread(_start: Lsn) -> Marks:
    """Nobody reads a segment to lay it out."""
    pytest.fail("a segment was read")


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count LSNs that are read from text, and ranges that are held against a base."""
    found: Counter[str] = Counter()

    def counted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any) -> Any:
            found[name] += 1
            return call(*args)

        return made

    monkeypatch.setattr(Lsn, "parse", staticmethod(counted("parsed", Lsn.parse)))
    for name in ("_lacks", "_behind"):
        monkeypatch.setattr(fitting, name, counted("judged", getattr(fitting, name)))
    return found


def test_bases_are_compared_without_a_look_at_each_range(steps: Counter[str]) -> None:
    feeds, bases = 12, 3
    parsed = []
    for segments in (20, 40):
        wide = Wide.of(segments, feeds, bases)
        steps.clear()
        chain = Chain(wide.segments, wide.manifests, wide.bases)
        assert chain.misfits == []
        assert [one.last for one in chain.windows()] == [wide.segments[-1].name.last]
        assert 0 < steps["judged"] <= 2 * feeds * bases
        parsed.append(steps["parsed"])
    # Of each segment what it follows, and of each base where it ends, however many feeds there are.
    assert parsed[1] - parsed[0] <= 5 * 20
    assert parsed[0] <= 5 * 20 + 4 * feeds * bases


def test_a_history_that_ended_costs_as_little(steps: Counter[str]) -> None:
    """The base has nothing of it, as a later one took its place: no range of it is looked at for itself."""
    wide = Wide.of(20, 2, 1)
    ended = {one.file for one in wide.segments[:8]}
    for file in ended:
        told = wide.manifests[file]
        parts = (part(told.crc, 0, "ended"), told.feeds[1])
        wide.manifests[file] = replace(told, feeds=parts)
    steps.clear()
    assert Chain(wide.segments, wide.manifests, wide.bases).misfits == []
    assert steps["judged"] <= 2 * 2


def test_a_restores_pieces_are_laid_out_without_a_look_at_each_range(steps: Counter[str]) -> None:
    wide = Wide.of(20, 12, 0)
    steps.clear()
    pieces = [Piece(one.name, wide.manifests[one.file].feeds, unread) for one in wide.segments]
    assert Pieces(pieces).of_feed[3] == list(range(20))
    assert steps["parsed"] == 0
    # But of the one segment around the start: its feeds that have nothing above it are not in it.
    start = lsn_of(4, 5, EACH * 5, 30_000)
    above = Pieces(pieces, start)
    assert steps["parsed"] == 12
    assert [above.of_feed[region][0] for region in (6, 7)] == [1, 0]


def test_which_segment_spans_an_lsn() -> None:
    wide = Wide.of(3, 2, 0)
    told = [wide.manifests[one.file] for one in wide.segments]
    names = [one.name for one in wide.segments]
    ranges = Ranges(names, told)
    for name, manifest in zip(names, told, strict=True):
        assert ranges.at(name.first) is ranges.at(name.last) is manifest
    inside = lsn_of(1, 1, 11)
    assert ranges.at(inside) is told[1]
    assert [ranges.below(one) for one in (ZERO, names[0].last, inside, names[2].last)] == [0, 1, 1, 3]
    between_two = Lsn.from_int(int(names[1].last) + 1)
    assert ranges.at(between_two) is None
    assert ranges.spans(between_two)
    outside = (names[0].first, names[2].last, Lsn.from_int(int(names[2].last) + 1), ZERO)
    assert [ranges.spans(one) for one in outside] == [False] * 4
    assert [ranges.at(one) for one in outside[2:]] == [None, None]
    assert Ranges([], []).at(inside) is None
    assert not Ranges([], []).spans(inside)


def test_two_histories_of_one_feed_stand_in_lsn_order() -> None:
    parts = (part(2, 0, "late"), part(1, 1), part(1, 0, "early"))
    assert [one.incarnation for one in in_order(parts) if one.region_id == 1] == ["early", "late"]
    name = SegmentName(lsn_of(1, 0, 11), lsn_of(2, 1, 30))
    assert list(between(parts, name, ZERO, name.last)) == list(in_order(parts))
    assert list(between(parts, name, Lsn.parse(parts[1].last_lsn), name.last)) == [parts[0]]
    assert list(between(parts, name, ZERO, name.first)) == [parts[2]]
