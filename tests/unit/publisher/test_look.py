"""Which transactions a look marks, and which it remembers: the trap of ids that are handed out before commits."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.publisher.postgres.look import (
    NOWHERE,
    Choice,
    Place,
    Snapshot,
    Transaction,
    choose,
    may_wait,
    parse_snapshot,
)

QUIET = Snapshot(1000, frozenset())


def test_a_snapshot_is_read() -> None:
    assert parse_snapshot("10:20:") == Snapshot(20, frozenset())
    snapshot = parse_snapshot("10:20:10,14")
    assert snapshot == Snapshot(20, frozenset({10, 14}))
    assert [snapshot.is_over(xid) for xid in (9, 10, 11, 14, 19, 20)] == [
        True,
        False,
        True,
        False,
        True,
        False,
    ]


def place(looked_id: int, *late: int, open_from: int = 1000, open_to: int = 1000) -> Place:
    return Place(looked_id, frozenset(late), open_from, open_to)


def test_transactions_come_by_their_greatest_id() -> None:
    first = Transaction(tx=5, first_id=1, last_id=9, rows=2)
    second = Transaction(tx=6, first_id=2, last_id=3, rows=2)
    assert choose([first, second], [], QUIET, place(9), 10) == Choice([second, first], place(9))


def test_what_does_not_fit_is_remembered_and_one_is_always_taken() -> None:
    large = Transaction(tx=5, first_id=1, last_id=9, rows=50)
    small = Transaction(tx=6, first_id=10, last_id=10, rows=1)
    assert choose([large, small], [], QUIET, place(10), 10) == Choice([large], place(10, 6))


def test_running_and_unfinished_transactions_are_remembered_and_finished_ones_forgotten() -> None:
    snapshot = Snapshot(20, frozenset({14, 15}))
    found = choose([], [12], snapshot, place(30, 10, 12, 14, 25, open_from=0, open_to=27), 10)
    assert found.place == place(30, 12, 14, 15, 25, open_from=20, open_to=27)


@pytest.mark.parametrize(
    ("newest", "xmax", "expected"),
    [(9, 20, False), (10, 20, True), (9, 21, True), (9, 30, True)],
    ids=["nothing new", "a new id", "one of the unlisted is over", "all of them are"],
)
def test_when_a_look_is_worth_it(newest: int, xmax: int, expected: bool) -> None:
    where = place(9, 14, open_from=20, open_to=23)
    assert may_wait(where, newest, Snapshot(xmax, frozenset({14}))) is expected
    assert may_wait(where, newest, Snapshot(xmax, frozenset()))


class _World:
    """A model of what a database shows: transactions take ids, commit or roll back at any time, in any order."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.next_xid, self.next_id = 100, 1
        self.open: dict[int, list[int]] = {}
        self.committed: dict[int, list[int]] = {}
        self.commits: list[int] = []
        self.ended = False

    def step(self) -> None:
        if self.ended:
            return
        act = self.chance.random()
        if act < 0.35 or not self.open:
            self.open[self.next_xid] = []
            self.next_xid += 1
        elif act < 0.75:
            self.open[self.chance.choice(list(self.open))].append(self.next_id)
            self.next_id += 1
        else:
            xid = self.chance.choice(list(self.open))
            ids = self.open.pop(xid)
            if self.chance.random() < 0.8 and ids:
                self.committed[xid] = ids
                self.commits.append(xid)

    def snapshot(self) -> Snapshot:
        """As PostgreSQL gives it: what has begun after the newest that is over is not listed."""
        xmax = max(set(range(100, self.next_xid)) - set(self.open), default=99) + 1
        return Snapshot(xmax, frozenset(xid for xid in self.open if xid < xmax))

    def visible(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        for xid, ids in self.committed.items():
            for one in ids:
                if low < one <= high:
                    yield xid, one


def _look(world: _World, place: Place, window: int, rows_max: int) -> Choice:
    """What ``looking.look`` does in SQL, on the model."""
    newest, next_xid = world.next_id - 1, world.next_xid
    for _ in range(world.chance.randrange(4)):
        world.step()  # what happens between the two is seen by the snapshot
    snapshot = world.snapshot()
    end = min(newest, place.looked_id + window)
    over = {xid for xid in place.late if snapshot.is_over(xid)}
    opened = range(place.open_from, min(place.open_to, snapshot.xmax))
    over |= {xid for xid, one in world.visible(0, place.looked_id) if xid in opened}
    asked = over | {xid for xid, _ in world.visible(place.looked_id, end)}
    going_on = {xid for xid in asked if any(one > end for one in world.committed.get(xid, []))}
    whole = [
        Transaction(xid, min(ids), max(ids), len(ids))
        for xid in asked - going_on
        if (ids := world.committed.get(xid))
    ]
    return choose(whole, going_on, snapshot, Place(end, place.late, 0, next_xid), rows_max)


@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 8))
def test_no_transaction_is_lost_doubled_or_out_of_order(seed: int, window: int, rows_max: int) -> None:
    chance = random.Random(seed)
    world, place = _World(chance), NOWHERE
    marked: list[int] = []

    def mark() -> None:
        nonlocal place
        choice = _look(world, place, window, rows_max)
        place = choice.place
        marked.extend(one.tx for one in choice.transactions)

    for _ in range(300):
        world.step()
        if chance.random() < 0.3:
            mark()
    world.open.clear()
    world.ended = True
    for _ in range(400):
        mark()
    assert sorted(marked) == sorted(world.committed)
    ranks = {xid: rank for rank, xid in enumerate(marked)}
    for later, ids in world.committed.items():
        for earlier in world.commits[: world.commits.index(later)]:
            # Whoever wrote its first row after another's commit depends on it; ids tell: all of the other's are smaller.
            if max(world.committed[earlier]) < min(ids):
                assert ranks[earlier] < ranks[later]
