"""Whatever part of a slot's stream a client got, and whatever it confirmed of it: a replay loses nothing."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.server.pg.transactions import PAUSE_MAX_MS
from headrace.wire.frame import Frame
from tests.pg_journal import Journal, Sent, Slot, Wanted

ENTRIES = st.lists(
    st.builds(Wanted, st.sampled_from(["", "", "a", "b", "c"]), st.booleans()), min_size=1, max_size=6
)
APPENDS = st.lists(
    st.tuples(st.integers(1, 2), ENTRIES, st.sampled_from([1, 1, 1, PAUSE_MAX_MS // 2, PAUSE_MAX_MS + 1])),
    min_size=1,
    max_size=12,
)


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


@given(APPENDS, st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), max_size=8))
def test_nothing_is_lost_however_often_a_client_dies(
    appends: list[tuple[int, list[Wanted], int]], cuts: list[tuple[float, float, bool]]
) -> None:
    """A client gets a part of what was sent, keeps a part of that, confirms the greatest position of it, or dies before."""
    journal = journal_of(appends)
    wanted = {one.payload for one in Slot(journal).stream() if one.payload and b"/" in one.payload}
    slot, kept = Slot(journal), set[bytes]()
    for got, flushed, confirms in cuts:
        messages = slot.stream()
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
    kept |= payloads(slot.stream())
    assert kept >= wanted


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


def payloads(messages: list[Sent]) -> set[bytes]:
    """The entries among messages."""
    return {one.payload for one in messages if one.payload is not None and b"/" in one.payload}
