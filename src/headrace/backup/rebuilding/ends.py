"""What a gap took of a feed's end, or all of it: nothing of the feed follows in the archive, only the server's word. Pure.

Each segment's manifest says what a feed's next sequence id was when the segment was finished. The agent may have been far
behind the server then, so an entry that was there by that time may stand in any later segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.backup.rebuilding.parts import Hole, Part
from headrace.wire.base_manifest import BaseManifest
from headrace.wire.kwal_manifest import Manifest, RegisteredFeed


class LostEnd(NamedTuple):
    """Entries that were there before the target, and are not. ``since``: the number of the segment behind the gap."""

    hole: Hole
    since: int


class Said(NamedTuple):
    """What the server said of a feed when the segment of this number was finished; -1 for what a base has of it."""

    segment: int
    feed: RegisteredFeed


def said_of(manifests: Sequence[Manifest], base: BaseManifest | None) -> list[Said]:
    """Return all that was said up to the target, oldest first."""
    first = [Said(-1, one) for one in (base.registry if base is not None else ())]
    return [*first, *(Said(number, one) for number, each in enumerate(manifests) for one in each.registry)]


def lost_end(
    last: Part | None, said: Iterable[Said], breaks: Iterable[int], archived: Iterable[int]
) -> LostEnd | None:
    """Return which entries behind the ``last`` one of a history a gap took; None if there is no gap that can have.

    ``last``: None if the archive has nothing of the feed up to the target; ``said``: of this history alone, oldest first;
    ``breaks``: numbers of the segments in front of which entries may be missing; ``archived``: first sequence ids of the
    history's runs in the whole archive. Where several gaps can have taken them, it is the last one.
    """
    told = list(said)
    began = next((one.feed.first_sequence_id for one in told if one.feed.first_sequence_id), 1)
    first = last.last_id + 1 if last is not None else began
    known = [one for one in told if one.feed.next_sequence_id > first]
    if not known:
        return None
    earliest = max(known[0].segment, last.segment + 1 if last is not None else 0)
    since = max((number for number in breaks if number >= earliest), default=None)
    if since is None:
        return None
    due = max(one.feed.next_sequence_id for one in known if one.segment <= since)
    due = min([due, *(number for number in archived if number >= first)])
    return LostEnd(Hole(first, due - 1), since) if due > first else None
