"""The documents of ``GET /retention``: what retention keeps, what it would drop now, when the rest goes, who holds it.

And that of ``POST /streams/rotate``, by which those who hold it are asked to let go.
"""

from __future__ import annotations

from headrace.wire.documents import Answer, TimeToLoss


class RetentionTerms(Answer):
    """What is in force. ``bytes_max`` is the byte cap, filled in where it was left to the volume."""

    retention_seconds: float
    bytes_max: int
    subscriber_expiry_seconds: float
    every_seconds: float


class SegmentRetention(Answer):
    """One journal segment. ``fate``: why it goes at the next pass, or stays.

    ``old_at``: when it is older than the retention. ``goes_at``: when it goes if nobody moves or is seen again, None while
    it is open. ``held_by``: who holds it, in words.
    """

    first_position: int
    end_position: int
    bytes: int
    newest_at: str
    fate: str
    goes: bool
    old_at: str
    goes_at: str | None
    held_by: list[str]


class ConsumerRetention(Answer):
    """Someone with a place in the journal.

    ``feed`` is empty for a consumer of all feeds. ``bytes_held``: what the segments from its place on take. ``holds_until``:
    retention waits for it until then, if it is not seen again; None: it does not hold. ``forgotten_at``: a subscriber
    is removed then, if it is not seen again; None: it is kept for ever. ``lost``: what it needs next is gone.
    ``loses_now``: it loses its place at the next pass.
    """

    kind: str
    name: str
    feed: str
    place: str
    position: int | None
    bytes_held: int
    seen_at: str
    holds_until: str | None
    forgotten_at: str | None
    lost: bool
    loses_now: bool
    time_to_loss: TimeToLoss


class FeedRetention(Answer):
    """What the next pass changes for a feed; entries ``oldest`` to ``oldest_afterwards`` - 1 go."""

    change_feed_id: str
    oldest_sequence_id: int
    oldest_afterwards: int
    next_sequence_id: int


class RetentionView(Answer):
    """``GET /retention``: the plan as it is now. The next pass carries out what still holds then.

    ``bytes``: what the journal takes; ``bytes_afterwards``: once ``drops_before`` (a position) is dropped.
    """

    now: str
    terms: RetentionTerms
    bytes: int
    bytes_afterwards: int
    oldest_position: int
    drops_before: int
    newest_dropped_lsn: str
    segments: list[SegmentRetention]
    consumers: list[ConsumerRetention]
    feeds: list[FeedRetention]


class Rotated(Answer):
    """``streams``: of how many open streams the subscribers were asked to begin a new file."""

    streams: int
