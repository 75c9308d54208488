"""What an agent and a listener do after each error: one table, which the classes of the tree are held to."""

from __future__ import annotations

import pickle

import pytest

from headrace.errors import (
    AgentFenced,
    Forbidden,
    HeadraceError,
    Recovery,
    Unavailable,
    every_error,
)

OTHERWISE: dict[str, tuple[Recovery, Recovery]] = {
    "archive-full": (Recovery.WAIT, Recovery.WAIT),
    "archive-unavailable": (Recovery.WAIT, Recovery.WAIT),
    "attach-unsafe": (Recovery.ATTEND, Recovery.ATTEND),
    "broker-unavailable": (Recovery.WAIT, Recovery.WAIT),
    "feed-not-found": (Recovery.END, Recovery.REGISTER),
    "feed-recreated": (Recovery.END, Recovery.REGISTER),
    "not-registered": (Recovery.REGISTER, Recovery.REGISTER),
    "offset-mismatch": (Recovery.REGISTER, Recovery.REGISTER),
    "source-unavailable": (Recovery.WAIT, Recovery.WAIT),
    "spark-busy": (Recovery.WAIT, Recovery.WAIT),
    "source-locked": (Recovery.WAIT, Recovery.WAIT),
    "stalled": (Recovery.WAIT, Recovery.WAIT),
    "stream-failed": (Recovery.WAIT, Recovery.WAIT),
    "table-not-found": (Recovery.ATTEND, Recovery.ATTEND),
    "unauthenticated": (Recovery.ATTEND, Recovery.ATTEND),
}
"""Code -> (a listener, an agent). What is Unavailable passes by itself, and all else ends both."""


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.code)
def test_what_each_error_means_to_who_goes_on_for_ever(kind: type[HeadraceError]) -> None:
    usual = Recovery.WAIT if issubclass(kind, Unavailable) else Recovery.END
    wanted = OTHERWISE.get(kind.code, (usual, usual))
    error = kind()
    assert (error.recovery, error.recovery_of_publisher) == wanted
    assert kind.retryable is (wanted[0] is Recovery.WAIT), "one says what the other does"
    assert error.may_pass is (wanted[0] in {Recovery.WAIT, Recovery.ATTEND})


def test_every_code_of_the_table_is_there() -> None:
    assert set(OTHERWISE) <= {kind.code for kind in every_error()}


def test_an_error_may_know_better_than_its_class() -> None:
    error = Forbidden()
    error.recovery = Recovery.ATTEND
    assert error.may_pass
    assert error.recovery_of_publisher is Recovery.ATTEND
    assert not Forbidden().may_pass


def test_a_pickled_error_is_of_its_class() -> None:
    assert pickle.loads(pickle.dumps(AgentFenced("x"))).recovery is Recovery.END
