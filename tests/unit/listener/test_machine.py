"""The state machine plays every transcript, and keeps its promises under any answers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.listener import machine
from tests import transcripts

SCENARIOS = Path(__file__).parents[2] / "scenarios" / "listener"


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    did, told = transcripts.play(path)
    assert did == told


@given(
    st.lists(
        st.tuples(st.lists(st.integers(1, 12), max_size=6), st.integers(0, 12), st.booleans()), max_size=40
    )
)
def test_whatever_the_server_answers_entries_come_once_and_in_order(
    answers: list[tuple[list[int], int, bool]],
) -> None:
    listener = machine.Machine("oldest", None)
    actions = listener.take(machine.Registered("a", 1, 12)) if listener.begin() else []
    delivered: list[int] = []
    for numbers, head, fails in answers:
        if listener.state is machine.State.ENDED:
            break
        asked = actions[-1]
        if isinstance(asked, machine.Wait):
            actions = listener.take(machine.Waited())
        elif isinstance(asked, machine.Register):
            actions = listener.take(machine.Registered("a", 1, 12))
        elif fails:
            actions = listener.take(transcripts.event(["failed", "server-unreachable"]))
        else:
            entries = [transcripts.entry(str(number)) for number in numbers]
            actions = listener.take(machine.Received("a", 1, max([head, *delivered]), entries))
        for action in actions:
            if isinstance(action, machine.Deliver):
                delivered += [entry.sequence_id for entry in action.entries]
    assert delivered == list(range(1, len(delivered) + 1))
