"""What follows a failure: again after a while, for how long, or the end."""

from __future__ import annotations

import random
import socket

import pytest
from py4j.protocol import Py4JError
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import (
    ConfigInvalid,
    FeedRecreated,
    HeadraceError,
    QueryFailed,
    ServerUnreachable,
    SparkBusy,
    SparkEnded,
    Unauthenticated,
)
from headrace.pipeline.supervision import BUSY_MAX, FOLLOWING, ONCE, Failures, Restart, Terms, supervise
from headrace.runtime.backoff import Backoff
from tests.ports import free_port

AWAY = ServerUnreachable("no answer")
UNKNOWN = QueryFailed("java.lang.OutOfMemoryError")


def failures(terms: Terms) -> Failures:
    return Failures(terms, Backoff(1.0, terms.delay_s_max, random.Random(1)))


def test_a_server_that_is_away_is_waited_for_for_ever_and_ever_more_slowly() -> None:
    mine, now, delays = failures(FOLLOWING), 0.0, []
    for _ in range(200):
        delay = mine.next_delay(AWAY, progressed=False, now=now)
        assert delay is not None
        delays.append(delay)
        now += delay
    assert delays[0] <= 1.0
    assert all(30.0 <= delay <= 60.0 for delay in delays[10:])


def test_patience_ends_and_begins_anew_with_each_batch() -> None:
    mine = failures(Terms(patience_s=100.0))
    assert mine.next_delay(AWAY, progressed=False, now=0.0) is not None
    assert mine.next_delay(AWAY, progressed=False, now=99.0) is not None
    assert mine.next_delay(AWAY, progressed=True, now=101.0) is not None
    assert mine.next_delay(AWAY, progressed=False, now=200.0) is not None
    assert mine.next_delay(AWAY, progressed=False, now=201.0) is None


def test_what_nobody_knows_is_tried_a_few_times_between_two_batches() -> None:
    mine = failures(Terms(failures_max=3))
    assert all(mine.next_delay(UNKNOWN, progressed=False, now=0.0) is not None for _ in range(3))
    assert all(mine.next_delay(UNKNOWN, progressed=not at, now=0.0) is not None for at in range(3))
    assert mine.next_delay(UNKNOWN, progressed=False, now=0.0) is None


def test_a_server_that_is_away_does_not_use_up_the_tries_of_what_nobody_knows() -> None:
    mine = failures(Terms(failures_max=1))
    assert all(mine.next_delay(AWAY, progressed=False, now=0.0) is not None for _ in range(9))
    assert mine.next_delay(UNKNOWN, progressed=False, now=0.0) is not None
    assert mine.next_delay(UNKNOWN, progressed=False, now=0.0) is None


def test_a_batch_sets_the_wait_back() -> None:
    mine = failures(FOLLOWING)
    late = [mine.next_delay(AWAY, progressed=False, now=0.0) for _ in range(9)][-1]
    first = mine.next_delay(AWAY, progressed=True, now=0.0)
    assert late is not None
    assert first is not None
    assert first <= 1.0
    assert late >= 30.0


@pytest.mark.parametrize("error", [FeedRecreated(), Unauthenticated(), ConfigInvalid()])
def test_what_no_start_mends_is_the_end(error: HeadraceError) -> None:
    assert failures(FOLLOWING).next_delay(error, progressed=True, now=0.0) is None


@pytest.mark.parametrize("error", [AWAY, UNKNOWN])
def test_a_job_that_is_run_once_ends_with_its_first_failure(error: HeadraceError) -> None:
    assert failures(ONCE).next_delay(error, progressed=False, now=0.0) is None


def test_a_busy_machine_is_waited_for_by_a_job_that_is_run_once_but_not_for_ever() -> None:
    once = failures(ONCE)
    delays = [
        once.next_delay(SparkBusy(), progressed=False, now=float(number)) for number in range(BUSY_MAX + 1)
    ]
    assert None not in delays[:-1]
    assert delays[-1] is None
    assert once.next_delay(SparkBusy(), progressed=True, now=99.0) is not None
    following = failures(FOLLOWING)
    assert None not in {
        following.next_delay(SparkBusy(), progressed=False, now=1e6 * one) for one in range(50)
    }


def test_nothing_is_tried_again_once_sparks_java_is_gone() -> None:
    restarts: list[Restart] = []

    def start() -> StreamingQuery:  # as py4j does whose Java has ended
        socket.create_connection(("127.0.0.1", free_port()))
        raise AssertionError("nobody listens there")

    with pytest.raises(SparkEnded, match="Connection refused") as ended:
        supervise(start, restarting=restarts.append)
    assert restarts == []
    assert ended.value.exit_code == 1
    assert "log file" in ended.value.advice


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("An error occurred while calling o98.set", "spark-ended"),
        (
            "An error occurred while calling o98.set. Trace:\npy4j.Py4JException: no such method",
            "query-failed",
        ),
    ],
    ids=["nobody", "java"],
)
def test_a_call_that_nobody_answers_is_the_end_of_spark(said: str, code: str) -> None:
    def start() -> StreamingQuery:
        raise Py4JError(said)

    with pytest.raises(HeadraceError) as caught:
        supervise(start)
    assert caught.value.code == code
