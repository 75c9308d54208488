"""What joining a feed comes to: a registration that holds, or the end of the feed. For the relay and the agent."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError
from headrace.publisher.owner import FeedPlace


class FeedEnded(Exception):
    """The feed can't go on; ``error`` says why. Kept apart from what a repetition may mend.

    FeedRecreated comes from two sides: it is not clear what it means as an answer of the server, so the feed is joined anew;
    from the comparison with the outbox it is the end.
    """

    def __init__(self, error: HeadraceError) -> None:
        super().__init__(error.detail)
        self.error = error


@dataclass(slots=True)
class Joined:
    """A registration that holds: the feed's place then, and the opening of the source that it was compared with."""

    place: FeedPlace
    generation: int
