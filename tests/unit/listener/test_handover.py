"""Refused entries: retried, parked with later ones of their key only, or the end; each with a real store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from headrace.entries.bookmark import Bookmark
from headrace.errors import BookmarkMoved, EntryRefused, ParkedTooMany
from headrace.listener import Change, FileBookmarks, Handover, OnError, Refusals, Refused
from headrace.wire.documents import EntryOut
from tests.scale import scaled

PLACE = ("l", "f")


def change(number: int, key: str = "a", *, control: str | None = None, op: str = "put") -> Change:
    return Change(
        "i",
        EntryOut(
            sequence_id=number, lsn=f"{number}.1.{number}", committed_at="t", changes=Raw(b'{"n":%d}' % number), key=key,
            op=op, control=UNSET if control is None else control,
        ),
    )  # fmt: skip


class Consumer:
    """Refuses the entries of ``bad``; a number is how often yet."""

    def __init__(self, bad: dict[int, int] | None = None) -> None:
        self.bad = bad if bad is not None else {}
        self.taken: list[int] = []
        self.asked: list[int] = []
        self.told: list[Refused] = []

    async def take(self, given: Change) -> None:
        self.asked.append(given.sequence_id)
        if self.bad.get(given.sequence_id, 0) > 0:
            self.bad[given.sequence_id] -= 1
            raise ValueError(f"no {given.sequence_id}")
        self.taken.append(given.sequence_id)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileBookmarks]:
    with closing(FileBookmarks(tmp_path / "bookmarks")) as opened:
        yield opened


def handover(store: FileBookmarks, consumer: Consumer, on_error: OnError, **options: int) -> Handover:
    async def move(bookmark: Bookmark) -> None:
        store.store(*PLACE, bookmark)

    refusals = Refusals(on_error, **options, first_s=0.0)
    return Handover(
        store,
        PLACE,
        consumer.take,
        refusals,
        move=move,
        moved=lambda _: None,
        on_refused=consumer.told.append,
    )


def place(store: FileBookmarks) -> int:
    found = store.load(*PLACE)
    return found.sequence_id if found is not None else 0


def parked(store: FileBookmarks) -> list[tuple[int, bool]]:
    return [(entry.sequence_id, entry.held) for entry in store.parked(*PLACE)]


async def test_retry_asks_until_it_is_taken(store: FileBookmarks) -> None:
    consumer = Consumer({2: 7})
    handing = handover(store, consumer, OnError.RETRY)
    await handing.begin()
    await handing.hand_all([change(1), change(2), change(3)])
    assert consumer.taken == [1, 2, 3]
    assert consumer.asked.count(2) == 8
    assert [(refused.change.sequence_id, refused.attempts) for refused in consumer.told] == [
        (2, number) for number in range(1, 8)
    ]
    assert place(store) == 3


async def test_bookmark_moves_past_what_a_filter_took_away_behind_the_last_change(
    store: FileBookmarks,
) -> None:
    consumer = Consumer({2: 99})
    handing = handover(store, consumer, OnError.PARK, attempts_max=1)
    await handing.begin()
    await handing.hand_all([change(1, "a")], behind=Bookmark("i", 1, change(1).place.lsn))
    assert store.load(*PLACE) == change(1).place
    await handing.hand_all([change(2, "b"), change(4, "b")], behind=Bookmark("i", 9))
    assert (place(store), parked(store)) == (9, [(2, False), (4, True)])
    await handing.hand_all([change(10, "a"), change(12, "a")], lambda: True, behind=Bookmark("i", 20))
    assert place(store) == 10, "left off before the last of them"


async def test_retry_with_a_bound_and_stop_end_before_the_entry(store: FileBookmarks) -> None:
    for on_error, tries in ((OnError.RETRY, 3), (OnError.STOP, 3), (OnError.STOP, None)):
        consumer = Consumer({2: 99})
        handing = handover(store, consumer, on_error, **({"attempts_max": tries} if tries else {}))
        await handing.begin()
        with pytest.raises(EntryRefused, match=f"no 2 on entry 2, {tries or 5} times"):
            await handing.hand_all([change(1), change(2), change(3)])
        assert consumer.taken == [1]
        assert place(store) == 1


async def test_park_holds_later_entries_of_that_key_only_in_order(store: FileBookmarks) -> None:
    consumer = Consumer({2: 2})
    handing = handover(store, consumer, OnError.PARK, attempts_max=2)
    await handing.begin()
    given = [change(1, "a"), change(2, "b"), change(3, "a"), change(4, "b"), change(5, "c"), change(6, "b")]
    await handing.hand_all(given)
    assert consumer.taken == [1, 3, 5]
    assert consumer.asked.count(4) == 0, "never asked: it waits"
    assert parked(store) == [(2, False), (4, True), (6, True)]
    refused = store.parked(*PLACE)[0]
    assert (refused.reason, refused.attempts) == ("ValueError: no 2", 2)
    assert place(store) == 6

    again = handover(store, consumer, OnError.PARK, attempts_max=2)
    await again.begin()
    await again.hand_all([change(7, "b"), change(8, "a")])
    assert consumer.taken == [1, 3, 5, 8], "a restart knows what is parked"
    assert await again.replay(lambda _: True) == (4, 0)
    assert consumer.taken == [1, 3, 5, 8, 2, 4, 6, 7]
    assert parked(store) == []


async def test_replay_stops_at_what_is_refused_again(store: FileBookmarks) -> None:
    consumer = Consumer({2: 1, 3: 1, 5: 1})
    handing = handover(store, consumer, OnError.PARK, attempts_max=1)
    await handing.begin()
    await handing.hand_all([change(2, "b"), change(3, "c"), change(4, "b"), change(5, "b"), change(6, "b")])
    assert await handing.replay(lambda entry: entry.sequence_id == 4) == (2, 2), (
        "the key of 4, from its first on"
    )
    assert consumer.taken == [2, 4]
    assert parked(store) == [(3, False), (5, False), (6, True)]
    consumer.bad.clear()
    assert await handing.replay(lambda _: True) == (3, 0)
    assert consumer.taken == [2, 4, 3, 5, 6]


async def test_after_a_drop_what_waited_is_due_at_the_next_start(store: FileBookmarks) -> None:
    consumer = Consumer({2: 99, 3: 99})
    handing = handover(store, consumer, OnError.PARK, attempts_max=1)
    await handing.begin()
    await handing.hand_all([change(2, "b"), change(3, "c"), change(4, "b"), change(5, "c")])
    store.unpark(*PLACE, 2)
    again = handover(store, consumer, OnError.PARK, attempts_max=1)
    await again.begin()
    assert consumer.taken == [4]
    await again.hand_all([change(6, "b")])
    assert consumer.taken == [4, 6]
    assert parked(store) == [(3, False), (5, True)]


async def test_parked_max_stops_before_the_entry(store: FileBookmarks) -> None:
    handing = handover(store, Consumer({2: 9, 3: 9}), OnError.PARK, attempts_max=1, parked_max=1)
    await handing.begin()
    with pytest.raises(ParkedTooMany):
        await handing.hand_all([change(1), change(2), change(3)])
    assert parked(store) == [(2, False)]
    assert place(store) == 2


@pytest.mark.parametrize(
    "entry",
    [change(3, "\0truncate/main/vm/1", control="truncate"), change(3, op="batch")],
    ids=["truncate", "batch"],
)
async def test_what_concerns_other_keys_does_not_pass_parked_ones(
    store: FileBookmarks, entry: Change
) -> None:
    consumer = Consumer({2: 1})
    handing = handover(store, consumer, OnError.PARK, attempts_max=1)
    await handing.begin()
    with pytest.raises(EntryRefused, match="parked"):
        await handing.hand_all([change(2), entry])
    assert place(store) == 2
    await handing.replay(lambda _: True)
    again = handover(store, consumer, OnError.PARK, attempts_max=1)
    await again.begin()
    await again.hand_all([entry])
    assert consumer.taken == [2, 3]


async def test_control_entry_that_is_refused_is_never_parked(store: FileBookmarks) -> None:
    handing = handover(store, Consumer({1: 9}), OnError.PARK)
    await handing.begin()
    with pytest.raises(EntryRefused):
        await handing.hand_all([change(1, "\0schema/main/vm/1", control="schema")])


async def test_what_stops_the_process_is_no_refusal(store: FileBookmarks) -> None:
    async def moved(_: Change) -> None:
        raise BookmarkMoved

    handing = handover(store, Consumer(), OnError.PARK)
    handing._take = moved
    await handing.begin()
    with pytest.raises(BookmarkMoved):
        await handing.hand_all([change(1)])
    assert parked(store) == []


@settings(max_examples=scaled(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_no_key_is_ever_overtaken(data: st.DataObject, tmp_path: Path) -> None:
    """Random keys and refusals, restarts, drops and replays: each key in order, none twice, none lost."""
    path = tmp_path / "model"
    path.unlink(missing_ok=True)
    consumer = Consumer()
    keys = {
        number: data.draw(st.sampled_from("abc")) for number in range(1, data.draw(st.integers(1, 15)) + 1)
    }
    dropped: set[int] = set()
    with closing(FileBookmarks(path)) as store:
        while place(store) < len(keys):
            consumer.bad = {number: 1 for number in keys if data.draw(st.integers(0, 3)) == 0}
            handing = handover(store, consumer, OnError.PARK, attempts_max=1)
            await handing.begin()
            first = place(store) + 1
            last = data.draw(st.integers(first, len(keys)))
            await handing.hand_all([change(number, keys[number]) for number in range(first, last + 1)])
            waiting = [number for number, _ in parked(store)]
            if data.draw(st.booleans()) and waiting:
                number = data.draw(st.sampled_from(waiting))
                store.unpark(*PLACE, number)
                dropped.add(number)
        consumer.bad = {}
        handing = handover(store, consumer, OnError.PARK, attempts_max=1)
        await handing.begin()
        await handing.replay(lambda _: True)
        assert parked(store) == []
    assert sorted(consumer.taken) == sorted(set(keys) - dropped)
    for key in "abc":
        of_key = [number for number in consumer.taken if keys[number] == key]
        assert of_key == sorted(of_key)
