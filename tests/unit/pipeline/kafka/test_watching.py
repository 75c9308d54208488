"""What cuts a write off, and when."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.sql import DataFrame

from headrace.errors import BrokerUnavailable, TopicGone
from headrace.pipeline.kafka.batches import Batches
from headrace.pipeline.kafka.schemas import FeedSchemas
from headrace.pipeline.kafka.sink import parse_sink
from headrace.pipeline.kafka.watching import THREAD, Watch, wait_writable
from tests.waiting import wait_until

PATIENCE_S = 0.02


class Brokers:
    """Say what they are told to say; a write that hangs until it is cut off."""

    def __init__(self, *answers: BaseException | None) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.cuts = 0
        self.cut_off = threading.Event()

    def check(self) -> None:
        self.asked += 1
        answer = self.answers[min(self.asked, len(self.answers)) - 1]
        if answer is not None:
            raise answer

    def cut(self) -> None:
        self.cuts += 1
        if self.cuts == 2:
            self.cut_off.set()

    def watch(self, patience_s: float = PATIENCE_S) -> Watch:
        return Watch(self.check, self.cut, patience_s)


def test_a_topic_that_is_gone_cuts_a_write_off_at_once() -> None:
    brokers = Brokers(None, TopicGone("gone"))
    with brokers.watch() as watch:
        assert brokers.cut_off.wait(30), "the first cut may come before there is anything to cut off"
    assert isinstance(watch.error, TopicGone)
    assert brokers.asked == 2


def test_brokers_that_come_back_in_time_cut_nothing_off() -> None:
    brokers = Brokers(*[BrokerUnavailable("away"), None] * 6)
    with brokers.watch(patience_s=0.2) as watch:
        wait_until(lambda: brokers.asked >= 12)
    assert watch.error is None
    assert brokers.cuts == 0


def test_brokers_that_stay_away_cut_a_write_off() -> None:
    brokers = Brokers(BrokerUnavailable("away"))
    with brokers.watch() as watch:
        assert brokers.cut_off.wait(30)
    assert isinstance(watch.error, BrokerUnavailable)
    assert brokers.asked >= 2, "away once is not yet away for long"


class JavaError(Py4JJavaError):  # type: ignore[misc]  # py4j has no types
    """An exception that Java threw, without Java."""

    def __init__(self) -> None:
        Exception.__init__(self, "java.lang.IllegalStateException")

    __str__ = Exception.__str__


ODD = [JavaError(), Py4JError("An error occurred while calling o1.x. Trace:\nno method x"), KeyError("all")]


@pytest.mark.parametrize("odd", ODD, ids=lambda one: type(one).__name__)
def test_a_look_that_fails_oddly_does_not_end_the_watch(odd: Exception) -> None:
    brokers = Brokers(odd, TopicGone("gone"))
    with brokers.watch(patience_s=0.2) as watch:
        assert brokers.cut_off.wait(30)
    assert isinstance(watch.error, TopicGone)


@pytest.mark.parametrize("odd", ODD, ids=lambda one: type(one).__name__)
def test_brokers_that_can_not_be_looked_at_for_long_cut_a_write_off(odd: Exception) -> None:
    brokers = Brokers(odd)
    with brokers.watch() as watch:
        assert brokers.cut_off.wait(30)
    assert isinstance(watch.error, BrokerUnavailable)
    assert f"can't be looked at: {type(odd).__name__}" in watch.error.detail


def test_a_cut_that_java_refuses_once_is_tried_again() -> None:
    brokers = Brokers(TopicGone("gone"))
    refusals = [JavaError()]

    def cut() -> None:
        if refusals:
            raise refusals.pop()
        brokers.cut()

    with Watch(brokers.check, cut, PATIENCE_S):
        assert brokers.cut_off.wait(30)


@pytest.mark.parametrize(
    "cause", [OSError("Spark's Java has ended"), Py4JNetworkError("no answer"), Py4JError("calling o1.x")]
)
def test_a_write_that_nobody_does_any_more_is_not_watched(cause: Exception) -> None:
    brokers = Brokers(cause)
    with brokers.watch() as watch:
        wait_until(lambda: brokers.asked == 1)
        threads = [one for one in threading.enumerate() if one.name == THREAD]
        wait_until(lambda: not any(one.is_alive() for one in threads), what="the watch to end")
    assert watch.error is None
    assert (brokers.asked, brokers.cuts) == (1, 0)


def test_rows_wait_for_brokers_that_take_them() -> None:
    brokers = Brokers(BrokerUnavailable("away"), BrokerUnavailable("away"), None)
    wait_writable(brokers.check, 30, look_s=0.01)
    assert brokers.asked == 3
    away = Brokers(BrokerUnavailable("away"))
    with pytest.raises(BrokerUnavailable):
        wait_writable(away.check, 0.05, look_s=0.01)
    assert away.asked >= 2
    with pytest.raises(TopicGone):
        wait_writable(Brokers(TopicGone("gone")).check, 30)


def test_no_row_is_given_to_a_client_while_brokers_take_nothing() -> None:
    """What a new client holds is never given up: each attempt of a long outage would leave one behind."""

    class Away:
        def check_writable(self, topics: object) -> None:
            raise BrokerUnavailable("away")

    sink = parse_sink("kafka://h:1/all?kafka-client-id=x")
    batches = Batches(cast(FeedSchemas, None), sink, cast(Any, Away()), print, patience_s=0.02)
    with pytest.raises(BrokerUnavailable, match="away"):
        batches.write_rows(cast(DataFrame, None), "rows of shop.a")
