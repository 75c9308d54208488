"""The writer's groups: what is said of each request of a group that could not be written, and how large a group gets."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from headrace.errors import ClockLead, DiskReserve, HeadraceError, JournalCorrupt, refusal_of
from headrace.log.contract import Begin, Group
from headrace.log.files.store import FileStore
from headrace.log.requests import Append, Appended, Outcome, Request
from headrace.log.tail import FeedTail
from headrace.log.writer import Writer
from headrace.testing.clock import ManualClock
from headrace.testing.disk import Fault, FaultyDisk, Step
from tests.bench import append, expecting, register

FEED = "f"
RESERVE = 1 << 20


class RoomyDisk(FaultyDisk):
    """A disk whose free space is set by hand."""

    free = 10 << 30

    def free_bytes(self, folder: Path) -> int:
        return self.free


class Bureau:
    """A writer without its thread: what is asked at once is one group, if it is not too large for one."""

    def __init__(self, folder: Path) -> None:
        self.disk, self.clock = RoomyDisk(), ManualClock()
        self.store = FileStore(folder, disk=self.disk, disk_reserve_bytes=RESERVE)
        self.writer = Writer(self.store, self.clock, region="eu", clock_lead_ms_max=1000)

    def ask(self, *requests: Request) -> list[Outcome | HeadraceError]:
        """Let the requests wait together, and return their answers in the order in which these were given."""
        answers: list[Outcome | HeadraceError] = []
        for request in requests:
            self.writer.enqueue(request, answers.append)
        self.writer.handle_waiting()
        return answers

    def one(self, request: Request) -> Outcome:
        """Ask alone; raises the refusal."""
        (answer,) = self.ask(request)
        if isinstance(answer, HeadraceError):
            raise answer
        return answer


@pytest.fixture
def bureau(tmp_path: Path) -> Iterator[Bureau]:
    """A feed with a and b."""
    made = Bureau(tmp_path)
    made.one(register(FEED))
    made.one(expecting(FEED, 1, "a", "b"))
    yield made
    made.store.close()


ASKED: list[tuple[Append, str]] = [
    (expecting(FEED, 3, "c"), "none"),
    (expecting(FEED, 1, "a", "b"), "possible"),
    (expecting(FEED, 2, "b"), "possible"),
    (expecting(FEED, 2, "b", "c"), "possible"),
    (append(FEED, "b"), "possible"),
    (expecting(FEED, 9, "x"), "none"),
]
"""New, repeated whole and in part, without a place, beyond the end; and what to think of each if nothing is written."""


def test_below_the_reserve_only_what_was_new_left_nothing(bureau: Bureau) -> None:
    bureau.disk.free = RESERVE
    answers = bureau.ask(*(asked for asked, _ in ASKED))
    assert [type(answer) for answer in answers] == [DiskReserve] * len(ASKED)
    refusals = [refusal_of(answer) for answer in answers if isinstance(answer, HeadraceError)]
    assert [refusal.side_effects for refusal in refusals] == [side_effects for _, side_effects in ASKED]
    assert all(refusal.retryable for refusal in refusals)
    repeated = bureau.one(ASKED[1][0])
    assert isinstance(repeated, Appended)
    assert repeated.duplicate, "a retry alone needs no room, and is recognised"


def test_while_the_clock_leads_only_what_was_new_left_nothing(bureau: Bureau) -> None:
    bureau.clock.ms -= 10_000
    for asked, side_effects in ASKED:
        with pytest.raises(ClockLead) as refusal:
            bureau.one(asked)
        assert refusal_of(refusal.value).side_effects == side_effects


def test_failed_sync_leaves_everything_open(bureau: Bureau) -> None:
    bureau.disk.faults.append(Fault(Step.SYNC, errno.EIO, suffix=".seg"))
    answers = bureau.ask(*(asked for asked, _ in ASKED))
    assert {refusal_of(answer).side_effects for answer in answers if isinstance(answer, HeadraceError)} == {
        "possible"
    }
    assert len({id(answer) for answer in answers}) == len(ASKED), "each has a refusal of its own"


def test_registrations_too_large_for_one_group_are_several(
    bureau: Bureau, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each control frame holds the whole feed, so a thousand of them may be far more than what was asked."""
    monkeypatch.setattr(bureau.writer, "_group_bytes_max", 20_000)
    puts: list[int] = []
    put = bureau.store.put

    def noting(begin: Begin, group: Group) -> None:
        puts.append(sum(len(data) for _, data in group.frames))
        put(begin, group)

    monkeypatch.setattr(bureau.store, "put", noting)
    asked: list[Request] = [register(f"g{number}", agent_id="a" * 1000) for number in range(30)]
    asked.insert(7, expecting(FEED, 3, "c"))
    asked.append(expecting(FEED, 4, "d"))
    answers = bureau.ask(*asked)
    assert [answer.name for answer in answers if isinstance(answer, FeedTail)] == [
        f"g{number}" for number in range(30)
    ]
    assert [answer.first_sequence_id for answer in answers if isinstance(answer, Appended)] == [3, 4]
    assert len(puts) > 3
    assert max(puts) < 20_000 + 10_000, "and one frame more"


def test_group_that_fails_leaves_the_answers_of_the_one_before(
    bureau: Bureau, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bureau.writer, "_group_bytes_max", 1)

    room = iter([10 << 30, RESERVE])
    monkeypatch.setattr(bureau.disk, "free_bytes", lambda folder: next(room))
    first, second = bureau.ask(expecting(FEED, 3, "c"), expecting(FEED, 4, "d"))
    assert isinstance(first, Appended)
    assert isinstance(second, DiskReserve)
    assert bureau.store.tail(FEED) is not None


def test_feed_that_is_hurt_keeps_its_turn_among_several_groups(
    bureau: Bureau, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bureau.writer, "_group_bytes_max", 1)
    begin = bureau.store.begin

    def hurt(feeds: Collection[str]) -> Begin:
        if "hurt" in feeds:
            raise JournalCorrupt("its state is damaged", change_feed_id="hurt")
        return begin(feeds)

    monkeypatch.setattr(bureau.store, "begin", hurt)
    asked = [expecting(FEED, 3, "c"), append("hurt", "x"), expecting(FEED, 4, "d"), append("hurt", "y")]
    answers = bureau.ask(*asked)
    assert [type(answer) for answer in answers] == [Appended, JournalCorrupt, Appended, JournalCorrupt]
