"""How a source and its feeds stand, as ``headrace agent status`` shows it. Values only."""

from __future__ import annotations

from typing import NamedTuple

from headrace.publisher.owner import Alarm


class FeedStanding(NamedTuple):
    """One feed in the outbox: who owns it, how far it is, and what waits.

    ``processed_next``: the first sequence id that is not known to be in the feed. ``oldest_waiting_ms``: when the oldest
    waiting row was written, UTC milliseconds; None if nothing waits.
    """

    feed: str
    agent_id: str
    epoch: int
    incarnation: str | None
    next_sequence_id: int
    processed_next: int
    waiting_rows: int
    oldest_waiting_ms: int | None
    alarm: Alarm | None


class Holder(NamedTuple):
    """Something in the database that keeps old row versions from being removed, oldest first.

    ``what``: a session, a prepared transaction, a replication slot or a standby, with its name. ``age_s``: how long its
    transaction is open, None where that is not known. ``transactions``: how many transactions began since.
    """

    what: str
    detail: str
    age_s: int | None
    transactions: int
