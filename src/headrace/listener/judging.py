"""What of a server's answer says that it is not of the history that a listener has read. Pure."""

from __future__ import annotations

from headrace import errors
from headrace.entries.bookmark import Bookmark
from headrace.listener.events import Polled, Received, Registered


def unfit(event: Received | Polled, place: Bookmark, asked: int) -> errors.HeadraceError | None:
    """Refuse an answer of another history; ``asked`` is the place that the call had named."""
    if refusal := recreated(event.incarnation, place):
        return refusal
    if event.head < asked and place.snapshot_id is None:
        return errors.BeyondHead(
            f"the feed ends at {event.head}, below this listener's bookmark {asked}", head=event.head
        )
    return None


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
