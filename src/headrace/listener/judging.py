"""What of a server's answer fits behind a listener's place, and what says that it is another history. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from headrace import errors
from headrace.entries.bookmark import Bookmark
from headrace.listener.events import Polled, Received, Registered
from headrace.wire.documents import EntryOut


def unfit(event: Received | Polled, place: Bookmark, asked: int) -> errors.HeadraceError | None:
    """Refuse an answer of another history; ``asked`` is the place that the call had named."""
    if refusal := recreated(event.incarnation, place):
        return refusal
    if event.head < asked and place.snapshot_id is None:
        return errors.BeyondHead(
            f"the feed ends at {event.head}, below this listener's bookmark {asked}", head=event.head
        )
    return None


def next_entries(entries: Sequence[EntryOut], last: int, oldest: int) -> Sequence[EntryOut]:
    """Return those of ``entries`` that follow ``last`` without a gap; what came before is dropped, what is beyond cut.

    A listener at 0 has read nothing: for it the feed begins where it begins, at ``oldest`` (a source that already counts
    goes on counting: RFD 5's example begins at 63). A range that retention dropped is an error of the server's, not this.
    """
    if last == 0 and entries and entries[0].sequence_id == oldest:
        last = oldest - 1
    if entries and entries[0].sequence_id == last + 1 and _dense(entries):
        return entries
    fresh: list[EntryOut] = []
    for entry in entries:
        if entry.sequence_id == last + 1:
            fresh.append(entry)
            last += 1
        elif entry.sequence_id > last:
            break
    return fresh


def _dense(entries: Sequence[EntryOut]) -> bool:
    first = entries[0].sequence_id
    return all(entry.sequence_id == first + index for index, entry in enumerate(entries))


def recreated(incarnation: str, place: Bookmark) -> errors.HeadraceError | None:
    """Refuse a feed that is not the one ``place`` was taken in."""
    if incarnation == place.incarnation:
        return None
    return errors.FeedRecreated(
        f"the feed's incarnation is {incarnation}, this listener's bookmark {place.sequence_id} is of "
        f"{place.incarnation}"
    )


def outside(first: int, bounds: Registered) -> errors.HeadraceError | None:
    """Refuse a named start outside the feed before it is pinned: a pinned place wins over every later choice."""
    holds = (
        f"the feed holds {bounds.oldest} to {bounds.head}" if bounds.head >= bounds.oldest else "it is empty"
    )
    if first > bounds.head + 1:
        return errors.BeyondHead(
            f"there is no entry {first} to start from: {holds}",
            hint="Start from oldest, from head, or from an entry that is there.",
            head=bounds.head,
        )
    if first < bounds.oldest:
        return errors.SequenceNotAvailable(
            f"entry {first} is not in the feed: {holds}",
            hint="Start from oldest, or take a snapshot of the publisher's state first.",
            oldest=bounds.oldest,
            head=bounds.head,
        )
    return None
