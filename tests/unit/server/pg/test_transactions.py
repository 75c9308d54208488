"""Which transactions end in a frame, which are open behind it, and from where a slot must hold for them."""

from __future__ import annotations

import pytest

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import LsnNotAvailable
from headrace.server.pg import transactions, walking
from headrace.server.pg.positions import Mark, Marks, entry_positions
from headrace.server.pg.transactions import PAUSE_MAX_MS, Part, Run, Transactions, runs_of
from headrace.server.pg.walking import find_beginning
from headrace.wire.frame import Frame
from tests.pg_journal import Journal, Seen, Sent, Slot, Wanted

A, A_LAST, B, B_LAST, BARE = Wanted("a"), Wanted("a", True), Wanted("b"), Wanted("b", True), Wanted()


def last_lsn(frame: Frame) -> Lsn:
    return frame.header.lsn(frame.header.count - 1)


def test_runs_are_of_one_transaction_each() -> None:
    frame = Journal().append(1, [BARE, BARE, A, A, A_LAST, A, B_LAST, BARE])
    assert runs_of(frame) == [
        Run(0, 1, b"", True),
        Run(2, 4, b"a", True),
        Run(5, 5, b"a", False),
        Run(6, 6, b"b", True),
        Run(7, 7, b"", True),
    ]


def test_an_append_without_names_is_one_transaction() -> None:
    frame = Journal().append(1, [BARE] * 3)
    (one,) = Transactions(ZERO).follow(frame)
    assert one.parts == [Part(256, 0, 2, None)]


def test_what_a_named_transaction_parts_has_two_numbers() -> None:
    frame = Journal().append(1, [BARE, A, A_LAST, BARE])
    first, named, last = Transactions(ZERO).follow(frame)
    assert len({first.xid, named.xid, last.xid}) == 3
    assert [one.xid for one in Transactions(ZERO).follow(frame)] == [first.xid, named.xid, last.xid]


def test_a_transaction_that_spans_frames_ends_in_the_last_and_holds_from_the_first() -> None:
    journal = Journal()
    before, first, between, last = (
        journal.append(1, entries) for entries in ([BARE], [BARE, A], [A, B_LAST], [A_LAST])
    )
    open_now = Transactions(ZERO)
    open_now.follow(before)
    assert open_now.hold == last_lsn(before)
    assert len(open_now.follow(first)) == 1
    assert open_now.hold == last_lsn(before)
    assert open_now.walked == last_lsn(first)
    assert [len(one.parts) for one in open_now.follow(between)] == [1]
    (ended,) = open_now.follow(last)
    assert [part.position for part in ended.parts] == [one.header.position for one in (first, between, last)]
    assert open_now.hold == open_now.walked == last_lsn(last)


def test_two_feeds_have_transactions_of_their_own() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    assert open_now.follow(journal.append(1, [A])) == []
    (other,) = open_now.follow(journal.append(2, [A_LAST]))
    assert other.region_id == 2
    assert open_now.hold == ZERO


def test_silence_ends_a_transaction_in_the_frame_that_shows_it() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    first = journal.append(1, [A])
    open_now.follow(first)
    assert len(open_now.follow(journal.append(2, [BARE], pause_ms=PAUSE_MAX_MS))) == 1
    silent, shown = open_now.follow(journal.append(2, [BARE], pause_ms=1))
    assert [part.position for part in silent.parts] == [first.header.position]
    assert shown.region_id == 2


def test_a_frame_that_is_passed_by_ends_by_its_time_what_another_feed_left_open() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    first = journal.append(1, [A])
    open_now.follow(first)
    other = journal.append(2, [BARE], pause_ms=PAUSE_MAX_MS + 1)
    (silent,) = open_now.pass_by(other)
    assert [part.position for part in silent.parts] == [first.header.position]
    assert open_now.hold == open_now.walked == last_lsn(other)


def test_a_stream_of_a_quiet_feed_gets_what_was_left_open_and_holds_nothing() -> None:
    journal = Journal()
    journal.append(1, [A])
    other = journal.append(2, [BARE], pause_ms=PAUSE_MAX_MS + 1)
    slot = Slot(journal)
    sent = slot.stream(Seen((1,)))
    assert [one for one in sent if one.payload] == [
        Sent(entry_positions(other)[0], sent[0].payload),
        Sent(entry_positions(other)[0], b"1/1"),
        Sent(other.header.end, sent[2].payload),
    ]
    slot.confirm(other.header.end)
    assert slot.place == last_lsn(other)


def test_what_was_open_comes_also_where_the_next_stream_carries_more_feeds() -> None:
    journal = Journal()
    journal.append(1, [BARE])
    journal.append(1, [A])
    journal.append(2, [BARE], pause_ms=PAUSE_MAX_MS + 1)
    slot = Slot(journal)
    narrow = slot.stream(Seen((1,)))
    slot.confirm(max(one.position for one in narrow))
    journal.drop_up_to(slot.place)
    sent = [one.payload for one in narrow + slot.stream() if one.payload and b"/" in one.payload]
    assert sent == [b"1/1", b"1/2"]


def test_a_name_that_is_never_silent_holds_an_hour_of_the_journal() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    frames = [journal.append(1, [A], pause_ms=PAUSE_MAX_MS) for _ in range(7)]
    assert [one for frame in frames for one in open_now.follow(frame)] == []
    assert open_now.hold == ZERO
    for oldest in frames[:3]:
        (ended,) = open_now.follow(journal.append(1, [A], pause_ms=PAUSE_MAX_MS))
        assert [part.position for part in ended.parts] == [oldest.header.position]
        assert open_now.hold == last_lsn(oldest)
    old, rest = open_now.follow(journal.append(1, [A_LAST], pause_ms=1))
    assert [part.position for part in old.parts] == [frames[3].header.position]
    assert [part.position for part in rest.parts][:3] == [frame.header.position for frame in frames[4:]]
    assert open_now.hold == open_now.walked


def test_another_feeds_frame_ends_what_is_too_old() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    for _ in range(7):
        open_now.follow(journal.append(1, [A], pause_ms=PAUSE_MAX_MS))
    (ended,) = open_now.pass_by(journal.append(2, [BARE]))
    assert [part.position for part in ended.parts] == [256]


def test_what_is_open_of_a_feed_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PARTS_MAX", 2)
    journal = Journal()
    open_now = Transactions(ZERO)
    assert not open_now.follow(journal.append(1, [A]))
    assert not open_now.follow(journal.append(1, [B]))
    assert not open_now.follow(journal.append(2, [A])), "each feed by itself"
    ended = open_now.follow(journal.append(1, [A]))
    assert [part.position for one in ended for part in one.parts] == [256], "the oldest part"
    assert len(open_now.follow(journal.append(1, [BARE, Wanted("c", True)]))) == 2, (
        "what ends at once counts not"
    )


def test_nothing_is_remembered_of_what_is_not_wanted() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    for _ in range(100):
        assert open_now.follow(journal.append(1, [A, B, A]), []) == []
    assert open_now.waiting == 0
    assert open_now.hold == open_now.walked
    (one,) = open_now.follow(journal.append(1, [A, A_LAST]), [1])
    assert [part.wanted for part in one.parts] == [[1]]


def test_an_entry_that_is_not_wanted_keeps_its_transaction_from_being_silent() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    open_now.follow(journal.append(1, [A]), [0])
    for _ in range(3):
        assert open_now.follow(journal.append(1, [A], pause_ms=PAUSE_MAX_MS), []) == []
    assert len(open_now.follow(journal.append(1, [A_LAST], pause_ms=PAUSE_MAX_MS), [])) == 1


def test_a_transaction_of_which_nothing_is_wanted_is_not_sent() -> None:
    journal = Journal()
    open_now = Transactions(ZERO)
    assert open_now.follow(journal.append(1, [A, A]), []) == []
    assert open_now.follow(journal.append(1, [A_LAST, B_LAST]), [1]) != []
    open_now = Transactions(ZERO)
    assert open_now.follow(journal.append(1, [A, A_LAST]), []) == []


def test_a_number_is_the_same_after_each_replay() -> None:
    journal = Journal()
    frames = [journal.append(1, entries) for entries in ([A], [BARE], [A_LAST])]
    seen = []
    for _ in range(2):
        open_now = Transactions(ZERO)
        seen.append([one.xid for frame in frames for one in open_now.follow(frame)])
    assert seen[0] == seen[1]
    assert all(seen[0])


def test_a_new_slot_gets_what_is_open_whole() -> None:
    journal = Journal()
    for entries in ([BARE], [A, BARE], [B, B_LAST]):
        journal.append(1, entries)
    begin = find_beginning(journal.store, None)
    assert begin.position == journal.end()
    slot = Slot(journal, begin.position, begin.hold)
    journal.append(1, [A_LAST])
    sent = [one.payload for one in slot.stream() if one.payload and b"/" in one.payload]
    assert sent == [b"1/2", b"1/6"]


def test_a_new_slot_on_an_empty_journal_begins_at_its_beginning() -> None:
    journal = Journal()
    assert find_beginning(journal.store, None) == (256, ZERO, True)


def test_a_new_slot_is_told_where_less_was_looked_over_than_a_transaction_may_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    journal = Journal()
    for entries in ([A], [BARE], [BARE]):
        journal.append(1, entries)
    assert find_beginning(journal.store, None).is_whole
    monkeypatch.setattr(walking, "LOOK_BACK_BYTES", 700)
    assert not find_beginning(journal.store, None).is_whole


def test_a_stream_whose_beginning_was_dropped_since_says_so() -> None:
    journal = Journal()
    frames = [journal.append(1, [BARE]) for _ in range(3)]
    slot = Slot(journal, place=last_lsn(frames[0]))
    journal.drop_up_to(last_lsn(frames[0]))
    assert [one.payload for one in slot.stream() if one.payload and b"/" in one.payload] == [b"1/2", b"1/3"]
    journal.drop_up_to(last_lsn(frames[1]))
    with pytest.raises(LsnNotAvailable):
        slot.stream()


def test_marks_are_bounded_and_the_newest_stays() -> None:
    marks = Marks(4)
    marks.add(Mark(end, Lsn(end, 1, 1), Lsn(end, 1, 1)) for end in range(10, 70, 10))
    assert len(marks) <= 4
    assert marks.confirm(9) is None
    passed = marks.confirm(65)
    assert passed is not None
    assert passed.end == 60
    assert not len(marks)
