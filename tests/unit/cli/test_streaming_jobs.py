"""A stuck query is started anew, and then left alone for twice as long each time until a batch of it has ended."""

from __future__ import annotations

import dataclasses

from headrace.cli.streaming_jobs import JobSeen
from headrace.runtime.progress import Progress
from tests.waiting import wait_until


@dataclasses.dataclass(frozen=True)
class Told:
    """What a job tells of its progress."""

    batches: int
    sequence_id: int
    lag: int | None
    lag_seconds: float | None = None
    done: int = 0
    batch_seconds: float | None = None


def test_a_query_is_not_started_anew_while_its_batch_is_repeated() -> None:
    progress = Progress(stalled_after_s=0.2)
    seen = JobSeen(progress.work("tables of shop", feed="shop"), 0.2)
    told: list[Told] = []
    tell = seen.telling(told.append)
    tell(Told(0, 0, 5))
    seen.reconnect([])
    assert seen.anew.is_set(), "the first time at once"
    seen.anew.clear()
    seen.reconnect([])
    assert not seen.anew.is_set(), "its batch has not ended, and twice the time has not passed"

    def again() -> bool:
        seen.reconnect([])
        return seen.anew.is_set()

    wait_until(again, what="twice the time to pass")
    seen.anew.clear()
    tell(Told(1, 9, 0))
    seen.reconnect([])
    assert seen.anew.is_set(), "a batch has ended since"
    (standing,) = progress.standings()
    assert (standing.position, standing.waiting, standing.reachable) == ("9", 0, True)
    tell(Told(1, 9, None))
    (standing,) = progress.standings()
    assert (standing.waiting, standing.reachable) == (1, False)
    assert [one.batches for one in told] == [0, 1, 1]
