"""When a work counts as stuck, and what is said of it."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SourceLocked
from headrace.runtime.progress import Progress, State, in_words
from headrace.testing.clock import ManualClock


def test_idle_for_ever_is_not_stuck() -> None:
    clock = ManualClock()
    progress = Progress(clock=clock, stalled_after_s=60)
    work = progress.work("relay shop", feed="shop")
    clock.seconds += 1_000_000
    assert progress.state() is State.IDLE
    work.set_waiting(1)
    assert progress.state() is State.MOVING, "the time counts from when there was something to do"


def test_work_that_waits_without_moving_is_stuck_and_says_why() -> None:
    clock = ManualClock()
    progress = Progress(clock=clock, stalled_after_s=60)
    work = progress.work("relay shop", feed="shop")
    work.set_position("7")
    work.set_waiting(3, oldest_ms=5)
    since_ms = clock.ms
    clock.seconds, clock.ms = 59.9, clock.ms + 59_900
    assert progress.not_ready() == []
    clock.seconds += 0.1
    work.set_trouble(SourceLocked("the table is locked"))
    (standing,) = progress.standings()
    assert standing.state is State.STUCK
    assert (standing.since_ms, standing.waiting, standing.oldest_waiting_ms) == (since_ms, 3, 5)
    assert (
        progress.not_ready()
        == [in_words(standing)]
        == ["relay shop does not move at 7 though 3 wait: the table is locked (source-locked)"]
    )
    work.set_position("7")
    assert progress.state() is State.STUCK, "the same position is no progress"
    work.set_position("8")
    assert progress.state() is State.MOVING
    assert progress.standings()[0].detail == "", "what moves has no trouble"


def test_more_that_waits_is_no_progress() -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("w")
    work.set_waiting(1)
    for waiting in range(2, 63):
        clock.seconds += 1
        work.set_waiting(waiting)
    assert work.standing().state is State.STUCK


def test_a_call_that_never_returns_is_seen_while_it_lasts() -> None:
    clock = ManualClock()
    progress = Progress(clock=clock, stalled_after_s=60)
    work = progress.work("relay shop")
    with work.during("the source's answer"):
        assert work.standing().waiting == 1
        clock.seconds += 60
        assert progress.not_ready() == [
            "relay shop does not move though 1 wait: it waits for the source's answer"
        ]
    assert progress.state() is State.IDLE


def test_calls_that_fail_again_and_again_add_up() -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("w")

    def fails() -> None:
        with work.during("the source's answer"):
            clock.seconds += 30
            raise SourceLocked("the table is locked")

    for _ in range(2):
        with pytest.raises(SourceLocked):
            fails()
    assert work.standing().state is State.STUCK
    with work.during("the source's answer"):
        pass
    assert work.standing().state is State.STUCK, "an answer alone is no progress"
    work.set_waiting(0)
    assert work.standing().state is State.IDLE


def test_short_calls_without_work_never_add_up() -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("w")
    for _ in range(1000):
        with work.during("an answer"):
            clock.seconds += 1
        assert work.standing().state is State.IDLE


def test_other_reasons_are_asked_too() -> None:
    progress = Progress(clock=ManualClock())
    progress.also(lambda: ["the server is stopping"])
    assert progress.not_ready() == ["the server is stopping"]
    assert progress.work("w") is progress.work("w")


@given(
    st.lists(
        st.tuples(st.sampled_from(["wait", "rest", "move", "again", "time"]), st.integers(1, 40)), max_size=60
    )
)
def test_stuck_means_something_waited_and_stood_for_so_long(steps: list[tuple[str, int]]) -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("w")
    waiting, position, still_s = 0, 0, 0.0
    work.set_position(position)
    for step, much in steps:
        if step == "time":
            clock.seconds += much
            still_s += much
        elif step == "move":
            position += much
            work.set_position(position)
            still_s = 0
        elif step == "again":
            work.set_position(position)
        else:
            new = much if step == "wait" else 0
            still_s = 0 if bool(new) != bool(waiting) else still_s
            waiting = new
            work.set_waiting(waiting)
        expected = State.STUCK if waiting and still_s >= 60 else State.MOVING if waiting else State.IDLE
        assert work.standing().state is expected


def test_many_threads_may_tell_and_ask() -> None:
    progress = Progress()
    work = progress.work("w")

    def tell() -> None:
        for number in range(2_000):
            with work.during("x"):
                work.set_waiting(number % 2)
                work.set_position(number)
                progress.not_ready()

    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    work.set_waiting(0)
    assert progress.state() is State.IDLE


def test_a_call_that_may_take_long_waits_for_something_only_once_it_is_overdue() -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("listener")
    with work.during("the server's answer to a poll", within_s=30):
        assert work.standing().state is State.IDLE
        clock.seconds += 30
        clock.ms += 30_000
        assert work.standing().state is State.MOVING
        overdue_ms = work.standing().since_ms
        clock.seconds += 59.9
        clock.ms += 59_900
        assert work.standing().state is State.MOVING, "the time counts from when the answer was due"
        clock.seconds += 0.1
        standing = work.standing()
        assert (standing.state, standing.since_ms, standing.waiting) == (State.STUCK, overdue_ms, 1)
        assert standing.detail == "it waits for the server's answer to a poll"
    assert work.standing().state is State.IDLE
    with work.during("the server's answer to a poll", within_s=30):
        clock.seconds += 20
    assert work.standing().state is State.IDLE


def test_what_becomes_overdue_and_then_waits_counts_from_then_on() -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("listener")
    clock.seconds += 1000
    with work.during("the server's answer", within_s=10):
        clock.seconds += 50
        work.set_waiting(3)
        assert work.standing().state is State.MOVING
        clock.seconds += 20
        assert work.standing().state is State.STUCK


def test_a_step_within_is_progress_and_the_same_one_is_none() -> None:
    clock = ManualClock()
    work = Progress(clock=clock, stalled_after_s=60).work("tables")
    work.set_waiting(5, what="a batch to end")
    for step in range(4):
        clock.seconds += 50
        assert work.standing().state is State.MOVING
        work.set_step((7, step))
    clock.seconds += 59
    work.set_step((7, 3))
    clock.seconds += 1
    standing = work.standing()
    assert (standing.state, standing.detail) == (State.STUCK, "it waits for a batch to end")
