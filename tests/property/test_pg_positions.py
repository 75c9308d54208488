"""Whatever part of a slot's stream a client got, and whatever it confirmed of it: a replay loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.lsn import ZERO
from headrace.server.pg import transactions
from headrace.server.pg.transactions import PAUSE_MAX_MS
from headrace.wire.frame import Frame
from tests.pg_journal import Journal, Seen, Sent, Slot, Wanted

ENTRIES = st.lists(
    st.builds(Wanted, st.sampled_from(["", "", "a", "b", "c"]), st.booleans(), st.sampled_from(["k", "l"])),
    min_size=1,
    max_size=6,
)
APPENDS = st.lists(
    st.tuples(st.integers(1, 2), ENTRIES, st.sampled_from([1, 1, 1, PAUSE_MAX_MS // 2, PAUSE_MAX_MS + 1])),
    min_size=1,
    max_size=12,
)
SEEN = st.builds(
    Seen,
    st.sampled_from([None, (1,), (2,)]),
    st.sampled_from(["", "", "local:default:feed-1:k", "local:default:feed-2:k"]),
)
CUTS = st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans(), SEEN), max_size=8)


@pytest.fixture(autouse=True, scope="module")
def small_bounds() -> Iterator[None]:
    """Bounds that a random journal meets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transactions, "PARTS_MAX", 3)
        patch.setattr(transactions, "AGE_MAX_MS", PAUSE_MAX_MS + PAUSE_MAX_MS // 4)
        yield


def journal_of(appends: list[tuple[int, list[Wanted], int]]) -> Journal:
    journal = Journal()
    for feed, entries, pause_ms in appends:
        journal.append(feed, entries, pause_ms=pause_ms)
    return journal


def frame_at(journal: Journal, position: int) -> Frame:
    """The frame that a record's position is of: it is inside it, or its end."""
    return next(one for one in journal.frames if one.header.position < position <= one.header.end)


@given(APPENDS, st.integers(1, 400))
def test_only_the_last_record_of_a_frame_has_its_end(
    appends: list[tuple[int, list[Wanted], int]], chunk_bytes: int
) -> None:
    journal = journal_of(appends)
    records = [one for one in Slot(journal).stream(chunk_bytes=chunk_bytes) if one.payload is not None]
    assert [one.position for one in records] == sorted(one.position for one in records)
    for one, following in pairwise(records):
        ends = one.position == frame_at(journal, one.position).header.end
        assert ends == (
            frame_at(journal, one.position).header.position
            != frame_at(journal, following.position).header.position
        )
    if records:
        assert records[-1].position == frame_at(journal, records[-1].position).header.end


@given(APPENDS)
def test_a_keepalive_is_never_ahead_of_what_was_sent(appends: list[tuple[int, list[Wanted], int]]) -> None:
    journal = journal_of(appends)
    messages = Slot(journal).stream()
    edges = {256, *(frame.header.end for frame in journal.frames)}
    for number, one in enumerate(messages):
        if one.payload is None:
            assert one.position in edges
            later = [other for other in messages[number:] if other.payload is not None]
            assert all(other.position > one.position for other in later)


@given(APPENDS)
def test_a_transaction_is_sent_whole(appends: list[tuple[int, list[Wanted], int]]) -> None:
    records = [one.payload for one in Slot(journal_of(appends)).stream() if one.payload is not None]
    open_now = None
    for payload in records:
        word, _, rest = payload.partition(b" ")
        if word == b"B":
            assert open_now is None
            open_now = rest
        elif word == b"C":
            assert open_now == rest
            open_now = None
        else:
            assert open_now is not None
    assert open_now is None
    entries = [payload for payload in records if b"/" in payload]
    assert len(entries) == len(set(entries))


@given(APPENDS, CUTS, SEEN)
def test_nothing_is_lost_however_often_a_client_dies(
    appends: list[tuple[int, list[Wanted], int]], cuts: list[tuple[float, float, bool, Seen]], last: Seen
) -> None:
    """A client gets a part of what was sent, keeps a part of that, confirms the greatest position of it, or dies before.

    Each stream may carry other feeds and keys than the one before it: what all of them carry is all there.
    """
    journal = journal_of(appends)
    wanted = payloads(Slot(journal).stream(last))
    for *_, seen in cuts:
        wanted &= payloads(Slot(journal).stream(seen))
    slot, kept = Slot(journal), set[bytes]()
    for got, flushed, confirms, seen in cuts:
        messages = slot.stream(seen)
        before = slot.position
        records = [one for one in messages if one.payload is not None]
        assert all(frame_at(journal, one.position).header.end > before for one in records), (
            "it has them whole"
        )
        mine = messages[: round(got * len(messages))]
        mine = mine[: round(flushed * len(mine))]
        kept |= payloads(mine)
        if confirms and mine:
            slot.confirm(max(one.position for one in mine))
            journal.drop_up_to(slot.place)
    kept |= payloads(slot.stream(last))
    assert kept >= wanted


@given(APPENDS, SEEN, st.data())
def test_where_an_entry_is_sent_depends_neither_on_the_start_nor_on_what_else_a_stream_carries(
    appends: list[tuple[int, list[Wanted], int]], seen: Seen, data: st.DataObject
) -> None:
    journal = journal_of(appends)
    sent = frames_of(journal, Slot(journal).stream())
    begin = data.draw(st.sampled_from([ZERO, *(frame.header.lsn(0) for frame in journal.frames)]))
    for payload, position in frames_of(journal, Slot(journal, place=begin).stream(seen)).items():
        assert sent[payload] == position


def frames_of(journal: Journal, messages: list[Sent]) -> dict[bytes, int]:
    """For each entry that was sent the frame that it was sent with."""
    found = [one for one in messages if one.payload is not None and b"/" in one.payload]
    return {one.payload or b"": frame_at(journal, one.position).header.position for one in found}


@given(APPENDS, st.data())
def test_any_confirmed_prefix_may_be_followed_by_the_rest(
    appends: list[tuple[int, list[Wanted], int]], data: st.DataObject
) -> None:
    journal = journal_of(appends)
    slot = Slot(journal)
    messages = slot.stream()
    cut = data.draw(st.integers(0, len(messages)))
    slot.confirm(max((one.position for one in messages[:cut]), default=0))
    journal.drop_up_to(slot.place)
    assert payloads(messages[:cut]) | payloads(slot.stream()) == payloads(messages)


@given(APPENDS, SEEN, SEEN, st.integers(0, 12))
def test_who_confirms_more_than_was_sent_loses_nothing(
    appends: list[tuple[int, list[Wanted], int]], seen: Seen, then: Seen, chunks: int
) -> None:
    """It counts as what was sent by then, be that in the middle of a frame."""
    journal = journal_of(appends)
    wanted = payloads(Slot(journal).stream(seen)) & payloads(Slot(journal).stream(then))
    slot, kept = Slot(journal), set[bytes]()
    for messages, _ in zip(slot.steps(seen, chunk_bytes=1), range(chunks), strict=False):
        kept |= payloads(messages)
        slot.confirm(1 << 63)
        assert slot.position == max(one.position for one in messages)
    journal.drop_up_to(slot.place)
    assert kept | payloads(slot.stream(then)) >= wanted


def payloads(messages: list[Sent]) -> set[bytes]:
    """The entries among messages."""
    return {one.payload for one in messages if one.payload is not None and b"/" in one.payload}
