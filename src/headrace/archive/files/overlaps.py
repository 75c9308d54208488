"""Segments of agents that had lost an object store to others, told from the archive's own. For all that list segments. Pure.

There a put may arrive long after who sent it was taken for dead: between the look at the lease and the put that follows it
nothing holds a process. The next agent writes the same entries of the same log meanwhile, perhaps with other cuts. So the
segments of an archive may branch, and each branch says the same. Nothing is acked before its manifest stands, and nobody
takes away what has one; so the branch that reaches farthest has all that was ever acked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.archive.files.segments import Stored, ordered, overlapping
from headrace.entries.lsn import Lsn
from headrace.errors import SegmentsOverlap
from headrace.wire.kwal_manifest import Manifest

Manifests = Mapping[str, Manifest]
"""By the segment's file."""


class Parted(NamedTuple):
    """Segments in LSN order. ``own``: the archive, none of which overlaps another. ``spare``: what it has without them."""

    own: list[Stored]
    spare: list[Stored]


def part(segments: Collection[Stored], read: Callable[[Sequence[Stored]], Manifests]) -> Parted:
    """Tell the archive's own segments from those that only say again what these say, or were never acked.

    ``read`` gives the manifests that can be read; it is asked only about segments that overlap. Whatever the order in which
    files arrive, what was acked is in ``own``. SegmentsOverlap, naming the two, where that can't be told: two logs were
    written to one folder, or a manifest is damaged.
    """
    with suppress(SegmentsOverlap):
        return Parted(ordered(segments), [])
    own: list[Stored] = []
    spare: list[Stored] = []
    begins = True
    for heap in _heaps(sorted(segments)):
        if len(heap) == 1:
            own += heap
        else:
            row = _own(heap, read, begins=begins)
            own += row
            spare += [one for one in heap if one not in row]
        begins = begins and not any(one.told for one in heap)
    return Parted(own, spare)


def spare_beside(parted: Parted, going: Collection[Stored]) -> list[Stored]:
    """Return the spare segments, in LSN order, that are to go before the archive's own ones that are ``going``.

    All that overlap one another go at once. Later, nobody could tell any more whether they are spare.
    """
    spare: list[Stored] = []
    for heap in _heaps(sorted([*parted.own, *parted.spare])):
        if any(one in going for one in heap):
            spare += [one for one in heap if one in parted.spare]
    return spare


def _heaps(segments: Sequence[Stored]) -> Iterator[list[Stored]]:
    """Yield the segments in heaps, none of which overlaps another."""
    heap: list[Stored] = []
    for one in segments:
        if heap and one.name.first > max(other.name.last for other in heap):
            yield heap
            heap = []
        heap.append(one)
    if heap:
        yield heap


def _own(
    heap: Sequence[Stored], read: Callable[[Sequence[Stored]], Manifests], *, begins: bool
) -> list[Stored]:
    """Return those of the heap that stay; ``begins``: nothing in front of it has a manifest."""
    told = [one for one in heap if one.told]
    row = _farthest_branch(heap, told, read(told), begins=begins) if told else []
    rest = [one for one in heap if not one.told and not any(_overlap(one, other) for other in row)]
    return sorted([*row, *_longest(rest)])


def _farthest_branch(
    heap: Sequence[Stored], told: Sequence[Stored], manifests: Manifests, *, begins: bool
) -> list[Stored]:
    """Return the row of segments with manifests that reaches farthest, if it has all that the others of the heap have."""
    if any(one.file not in manifests or manifests[one.file].file != one.file for one in told):
        raise overlapping(heap[0], heap[1])
    rows = [_row_to(one, told, manifests) for one in told]
    row = min(rows, key=lambda found: (-int(found[-1].name.last), found))
    root = manifests[row[0].file]
    for other in rows:
        branches = other[0] in row or _begins_at(manifests[other[0].file]) == _begins_at(root)
        if not branches:
            raise overlapping(heap[0], heap[1])
    walked_from = Lsn.parse(root.walked_from)
    was_pruned = begins and root.predecessor is not None
    for one in heap:
        if not one.told and _overlap(one, row[0]) and one.name.first <= walked_from and not was_pruned:
            raise overlapping(*sorted((one, row[0])))
    return row


def _row_to(end: Stored, told: Sequence[Stored], manifests: Manifests) -> list[Stored]:
    """Return the segments up to ``end``, each of which goes on where the one before ends."""
    row = [end]
    while True:
        manifest = manifests[row[0].file]
        known = manifest.predecessor
        before = next(
            (
                one
                for one in told
                if known is not None
                and str(one.name) == known.name
                and manifests[one.file].crc == known.crc
                and manifest.walked_from == known.last_lsn
                and one.name.last < row[0].name.first
            ),
            None,
        )
        if before is None:
            return row
        row.insert(0, before)


def _begins_at(manifest: Manifest) -> tuple[object, ...]:
    return manifest.predecessor, manifest.walked_from


def _longest(segments: Sequence[Stored]) -> list[Stored]:
    """Return of segments without a manifest those that have all of the others: nobody can have acked just one of them."""
    found: list[Stored] = []
    for one in segments:
        if not found or not _overlap(found[-1], one):
            found.append(one)
        elif one.name.first != found[-1].name.first or one.name.last == found[-1].name.last:
            raise overlapping(found[-1], one)
        else:
            found[-1] = one  # in LSN order: it goes on farther
    return found


def _overlap(one: Stored, other: Stored) -> bool:
    return one.name.first <= other.name.last and other.name.first <= one.name.last
