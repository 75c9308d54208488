"""Whose a listener is: the subject that registered it first, and how many one subject may have. Pure.

A place that is moved forward, a ``hold`` that is taken away, a lease that is ended: each lets retention drop what the
listener still needs. So only its owner may do that, or an admin.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace.errors import ListenersTooMany, ListenerTaken
from headrace.log.metadata.rows import OwnerRow

OF_SUBJECT_MAX: Final = 1_000
"""Listeners that one subject may have registered with a feed."""
OF_FEED_MAX: Final = 10_000
"""Listeners that a feed may have, whoever registered them."""


class Claimant(NamedTuple):
    """Who asks for a listener. ``subject``: empty for who has no name, who can own nothing."""

    subject: str
    may_take_over: bool


ANYBODY: Final = Claimant("", True)
"""Everybody, at a server that asks nobody who they are."""


def check_owner(owner: str | None, who: Claimant, listener_id: str, feed: str) -> None:
    """Raise ListenerTaken if the listener is another subject's (``owner``; None: nobody's), unless ``who`` may take over."""
    if owner is not None and owner != who.subject and not who.may_take_over:
        raise ListenerTaken(
            f"the listener {listener_id[:80]!r} of the feed {feed} was registered by another subject",
            listener_id=listener_id[:80],
        )


def owner_after(known: OwnerRow | None, who: Claimant, listener_id: str, feed: str) -> OwnerRow | None:
    """Return whose the listener is once ``who`` has registered it where ``known`` stood. ListenerTaken."""
    check_owner(None if known is None else known.subject, who, listener_id, feed)
    return OwnerRow(listener_id, feed, who.subject) if who.subject else known


def check_room(of_feed: int, of_subject: int, who: Claimant, feed: str) -> None:
    """Raise ListenersTooMany if one more would be too many where so many are registered."""
    if of_feed >= OF_FEED_MAX:
        raise ListenersTooMany(f"the feed {feed} has {of_feed} listeners", listeners_max=OF_FEED_MAX)
    if who.subject and of_subject >= OF_SUBJECT_MAX:
        raise ListenersTooMany(
            f"this token's subject has {of_subject} listeners of the feed {feed}",
            listeners_max=OF_SUBJECT_MAX,
        )
