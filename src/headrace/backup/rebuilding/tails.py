"""The states of feeds in a rebuilt journal: who may append, under which epoch, and where the feed goes on. Pure.

Each feed gets a new incarnation, so that whoever knows the old one finds out, and an epoch above all that were, or may have
been, given: whoever appended before must register again. The archive does not say which agents had registered, what their
last appends were, or who was quarantined.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from headrace.backup.rebuilding.feeds import JournalFeed, Selection
from headrace.entries.hlc import to_ms
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import RestoreInexact
from headrace.log.tail import FeedSettings, FeedTail, JournalState
from headrace.wire.lost_lsns import LostLsns

SHARED = "shared"
"""A registered feed's mode, if it has no owner."""
DEFAULT_TENANT = "default"


def begin_state(
    selection: Selection, clock: int, new_incarnation: Callable[[], str], target: Lsn = ZERO
) -> JournalState:
    """Return what the journal's first segment continues from. ``clock``: the ``global_ts`` from which the server goes on.

    ``target``: the last entry of the journal; no LSN between that and the clock is of this history. What earlier rebuilds
    lost stays lost.

    A feed's epoch is that time in milliseconds, if it is above the newest one known: no feed can have had as many
    registrations. RestoreInexact if what the archive says of a feed's settings can't be read.
    """
    lost = united([*selection.lost, LostLsns(str(target), str(Lsn(clock, 0, 0)))])
    feeds = [
        _tail(kept, to_ms(clock), new_incarnation(), lost)
        for kept in sorted(selection.feeds.values(), key=lambda kept: kept.region_id)
    ]
    newest = max((tail.newest for tail in feeds), default=ZERO)
    return JournalState(
        global_ts=newest.global_ts,
        next_region_id=selection.next_region_id,
        dropped_lsn=str(newest),
        feeds={tail.name: tail for tail in feeds},
    )


def united(ranges: Iterable[LostLsns]) -> tuple[LostLsns, ...]:
    """Return the same LSNs as few ranges, in LSN order."""
    found: list[tuple[Lsn, Lsn]] = []
    for after, before in sorted((Lsn.parse(one.after), Lsn.parse(one.before)) for one in ranges):
        if found and after < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], before)
        else:
            found.append((after, before))
    return tuple(LostLsns(str(after), str(before)) for after, before in found)


def _tail(kept: JournalFeed, now_ms: int, incarnation: str, lost: tuple[LostLsns, ...]) -> FeedTail:
    said, below = kept.registered, kept.below
    shared = said is not None and said.mode == SHARED
    return FeedTail(
        name=kept.feed,
        region_id=kept.region_id,
        tenant=said.tenant_id if said is not None else DEFAULT_TENANT,
        incarnation=incarnation,
        owner=said.owner if said is not None and not shared else "",
        instance="",
        epoch=max(kept.epoch + 1, now_ms),
        next_sequence_id=kept.first or (below.sequence_id + 1 if below is not None else 1),
        newest_lsn=str(below.lsn if below is not None else ZERO),
        first_sequence_id=0 if below is None else kept.began or 1,
        settings=_settings(kept),
        shared=shared,
        lost_lsns=lost,
    )


def _settings(kept: JournalFeed) -> FeedSettings:
    try:
        return msgspec.convert(kept.registered.settings if kept.registered is not None else {}, FeedSettings)
    except msgspec.ValidationError as error:
        raise RestoreInexact(
            f"the archive's settings of {kept.feed} can't be read: {error}",
            hint="They were written by another version: rebuild with that one.",
        ) from None
