"""Whether a base fits the segments, against a plain model that looks at each range of each segment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import event, given
from hypothesis import strategies as st

from headrace.archive.files.bases import StoredBase
from headrace.archive.moments.fitting import misfit
from headrace.archive.moments.ranges import Ranges
from headrace.entries.lsn import Lsn
from headrace.wire.base_manifest import BaseFeed, BaseGap, BaseManifest, base_folder
from headrace.wire.kwal import SegmentName
from headrace.wire.kwal_manifest import FeedRange, Manifest, RegisteredFeed

Between = tuple[Lsn, Lsn]


class Known(NamedTuple):
    """An entry: its history is the feed's n-th."""

    lsn: Lsn
    region: int
    history: int
    id: int


class Told(NamedTuple):
    """A base, the manifests, and where something may be missing."""

    base: StoredBase
    manifests: list[Manifest]
    missing: list[Between]

    @property
    def names(self) -> list[SegmentName]:
        return [one.name for one in self.manifests]


def place(tick: int, region: int = 0, id_: int = 0) -> Lsn:
    return Lsn(tick + 1 << 18, region, id_)


def ranges_of(entries: list[Known]) -> tuple[FeedRange, ...]:
    """Return a segment's ranges: one for each stretch of a history without a hole."""
    rows: dict[tuple[int, int], list[list[Known]]] = {}
    for one in entries:
        row = rows.setdefault((one.region, one.history), [])
        if row and row[-1][-1].id + 1 == one.id:
            row[-1].append(one)
        else:
            row.append([one])
    return tuple(
        FeedRange(
            feed=f"feed{region}",
            region_id=region,
            incarnation=f"h{history}",
            first_sequence_id=run[0].id,
            last_sequence_id=run[-1].id,
            first_lsn=str(run[0].lsn),
            last_lsn=str(run[-1].lsn),
        )
        for (region, history), row in rows.items()
        for run in row
    )


def manifest_of(entries: list[Known], registry: tuple[RegisteredFeed, ...]) -> Manifest:
    name = SegmentName(entries[0].lsn, entries[-1].lsn)
    return Manifest(
        segment=str(name),
        first_lsn=str(name.first),
        last_lsn=str(name.last),
        entries=len(entries),
        size=1,
        crc=1,
        walked_from=str(place(-1)),
        feeds=ranges_of(entries),
        registry=registry,
    )


@st.composite
def cases(draw: st.DrawFn) -> Told:
    """Draw a log of two feeds; what of it is archived; a base, mostly made of that very log."""
    entries: list[Known] = []
    now = {1: (1, 0), 2: (1, 0)}
    for tick in range(draw(st.integers(2, 14))):
        region = draw(st.sampled_from([1, 2]))
        history, last = now[region]
        if draw(st.integers(0, 7)) == 0:
            history, last = history + 1, draw(st.sampled_from([0, last]))
        last += 1 if draw(st.integers(0, 7)) else 2
        now[region] = history, last
        entries.append(Known(place(tick, region, last), region, history, last))
    cuts = sorted(draw(st.sets(st.integers(1, len(entries) - 1), max_size=5)))
    segments = [entries[at:end] for at, end in zip([0, *cuts], [*cuts, len(entries)], strict=True)]
    registered = [
        RegisteredFeed(
            feed=f"feed{region}",
            region_id=region,
            tenant_id="",
            mode="owned",
            owner="",
            epoch=1,
            next_sequence_id=9,
            incarnation=f"h{history}",
            first_sequence_id=draw(st.integers(0, 3)),
        )
        for region, history in sorted({(one.region, one.history) for one in entries})
        if draw(st.booleans())
    ]
    manifests = [manifest_of(one, tuple(registered)) for one in segments if draw(st.integers(0, 4))]
    ticks = st.sets(st.integers(-1, len(entries)), min_size=2, max_size=2).map(sorted)
    pairs = st.lists(ticks.map(lambda ends: (place(ends[0]), place(ends[1]))), max_size=2)
    at = draw(st.integers(0, len(entries) - 1))
    gaps = tuple(BaseGap(after_lsn=str(after), before_lsn=str(before)) for after, before in draw(pairs))
    feeds = tuple(based(draw, entries[: at + 1]))
    manifest = BaseManifest(
        lsn=str(entries[at].lsn),
        committed_at_ms=1,
        created_at_ms=1,
        buckets=1,
        feeds=feeds,
        files=(),
        gaps=gaps,
    )
    lsn = entries[at].lsn
    return Told(StoredBase(lsn, base_folder(lsn), manifest), manifests, draw(pairs))


def based(draw: st.DrawFn, entries: list[Known]) -> Iterator[BaseFeed]:
    """Draw what a base says of its feeds: the newest history of each, or all, and now and then something wrong."""
    older = draw(st.booleans())
    ends = {(one.region, one.history): one for one in entries}
    for (region, history), end in ends.items():
        if not older and (region, history + 1) in ends:
            continue
        wrong = draw(st.sampled_from(["", "", "", "", "", "gone", "id", "incarnation", "tick"]))
        if wrong == "gone":
            continue
        if draw(st.integers(0, 3)) == 0:
            row = [one for one in entries if (one.region, one.history) == (region, history)]
            end = draw(st.sampled_from(row))  # it ends too early
        lsn = end.lsn if wrong != "tick" else Lsn(end.lsn.global_ts - (1 << 17), region, end.id)
        yield BaseFeed(
            feed=f"feed{region}",
            region_id=region,
            incarnation=f"h{history}" if wrong != "incarnation" else "other",
            first_sequence_id=1,
            sequence_id=end.id - 1 if wrong == "id" else end.id,
            lsn=str(lsn),
            entries=0,
        )


# -- the model ---------------------------------------------------------------------------------------------------------


def is_within(lsns: tuple[Lsn, Lsn], spans: list[Between]) -> bool:
    return any(after < lsns[0] and lsns[1] < before for after, before in spans)


def faults(told: Told) -> Iterator[str]:
    """Yield what speaks against the base, one range after the other."""
    base, feeds = told.base, told.base.manifest.feeds
    for feed in feeds:
        lsn = Lsn.parse(feed.lsn)
        around = [one for one in told.manifests if one.name.first <= lsn <= one.name.last]
        for one in around:
            if not any(
                (part.region_id, part.incarnation) == (feed.region_id, feed.incarnation)
                and part.first_sequence_id <= feed.sequence_id <= part.last_sequence_id
                for part in one.feeds
            ):
                yield f"has no entry {feed.sequence_id} of {feed.feed}, which"
        inside = bool(told.manifests) and told.manifests[0].name.first < lsn < told.manifests[-1].name.last
        if inside and not around and not is_within((lsn, lsn), told.missing):
            yield f"the segments have nothing at lsn={lsn}"
    seen = set()
    for manifest in told.manifests:
        for part in sorted(manifest.feeds, key=lambda one: one.first_lsn):
            history = part.region_id, part.incarnation
            has = next((one for one in feeds if (one.region_id, one.incarnation) == history), None)
            first, last = Lsn.parse(part.first_lsn), Lsn.parse(part.last_lsn)
            if first <= base.lsn and lacks(told, part, has, first, min(last, base.lsn)):
                yield f"the segments hold entries {part.first_sequence_id} to {part.last_sequence_id} of {part.feed}"
            if last > base.lsn and history not in seen:
                seen.add(history)
                if is_cut_off(told, part, has, first):
                    yield f"the segments go on behind it with entry {part.first_sequence_id} of {part.feed}"


def lacks(told: Told, part: FeedRange, has: BaseFeed | None, first: Lsn, end: Lsn) -> bool:
    base = told.base.manifest
    needed = part.last_sequence_id if str(end) == part.last_lsn else part.first_sequence_id
    gaps = [(Lsn.parse(one.after_lsn), Lsn.parse(one.before_lsn)) for one in base.gaps]
    return not (
        (has is not None and has.sequence_id >= needed)
        or any(one.feed == part.feed and Lsn.parse(one.lsn) > end for one in base.feeds)
        or is_within((first, end), gaps)
        or (has is None and any(end <= after < told.base.lsn for after, _ in told.missing))
    )


def is_cut_off(told: Told, part: FeedRange, has: BaseFeed | None, first: Lsn) -> bool:
    base = told.base
    begun = [
        one.first_sequence_id
        for manifest in told.manifests
        for one in manifest.registry
        if (one.region_id, one.incarnation) == (part.region_id, part.incarnation)
    ]
    began = begun[-1] if begun else 0
    if first <= base.lsn:
        fits = has is None or part.first_sequence_id <= has.sequence_id
    elif has is not None:
        fits = part.first_sequence_id == has.sequence_id + 1
    else:
        rebuilt = any(
            (one.region_id, one.feed) == (part.region_id, part.feed)
            and began <= one.first_sequence_id
            and part.first_sequence_id == one.sequence_id + 1
            for one in base.manifest.feeds
        )
        fits = not began or part.first_sequence_id <= began or rebuilt
    return not fits and not any(
        after < first and int(before) - 1 > int(base.lsn) for after, before in told.missing
    )


@given(cases())
def test_a_base_fits_as_the_plain_model_says_and_for_the_same_reason(told: Told) -> None:
    expected = next(faults(told), "")
    found = misfit(told.base, Ranges(told.names, told.manifests), told.missing)
    event(expected.partition(" entr")[0].partition(" at lsn")[0])
    assert bool(found) == bool(expected), (expected, found)
    assert expected in found
