"""Batches become segments: nothing is lost or torn, however batches are cut and however small segments are."""

from __future__ import annotations

from array import array
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.backup import gathering
from headrace.backup.gathering import Finished, Gatherer, front, split
from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn
from headrace.errors import JournalCorrupt
from headrace.wire.batch import ReceivedBatch
from headrace.wire.entry import bare_message_of, message_of
from headrace.wire.kwal_columns import Segment
from headrace.wire.kwal_feeds import survey
from tests.kwal import TS, Stamped, bytes_of, stamped


def batch_of(appends: list[Stamped]) -> ReceivedBatch:
    """The appends as one batch, as a subscriber gets them."""
    sizes = array("I", [size for one in appends for size in one.sizes])
    body = memoryview(b"".join(one.body for one in appends))
    return ReceivedBatch(appends[0].first, appends[-1].last, 0, 0, {}, body, sizes)


def appends_of(shapes: list[list[int]]) -> list[Stamped]:
    """An append for each list: an entry for each number, with a value of so many bytes."""
    made, first = [], 1
    for number, values in enumerate(shapes):
        changes = [Change(b"v" * size, key=b"k", source_time_ms=size) for size in values]
        made.append(stamped(changes, first, ts=TS + number))
        first += len(values)
    return made


def contents(finished: list[Finished]) -> list[bytes]:
    """All entries of segments that are read back."""
    found: list[bytes] = []
    for one in finished:
        segment = Segment(bytes_of(one.sealed), where="a segment", name=one.sealed.name)
        assert survey(one.blocks()) == survey(segment.blocks())
        found += map(bytes, segment.entries())
    return found


def stored(batch: ReceivedBatch) -> list[bytes]:
    """The entries of a batch as segments hold them."""
    return [message_of(entry).SerializeToString() for entry in batch.entries()]


SHAPES = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=6), min_size=1, max_size=12)


@given(shapes=SHAPES, segment_bytes=st.integers(100, 3_000), data=st.data())
def test_any_batches_become_whole_segments(
    shapes: list[list[int]], segment_bytes: int, data: st.DataObject
) -> None:
    appends = appends_of(shapes)
    whole = batch_of(appends)
    gatherer = Gatherer(segment_bytes)
    finished: list[Finished] = []
    rest: ReceivedBatch | None = whole
    while rest is not None:
        batch, rest = split(rest, data.draw(st.integers(1, len(rest.sizes))))
        assert batch is not None
        finished += gatherer.add(batch)
        assert gatherer.last == batch.last_lsn
        if data.draw(st.booleans()) and (rotated := gatherer.rotate()) is not None:
            finished.append(rotated)
    if gatherer.entries:
        finished.append(gatherer.seal())
    entries = contents(finished)
    assert [bare_message_of(memoryview(entry)).lsn for entry in entries] == [
        message_of(entry).lsn for entry in whole.entries()
    ]
    at = 0
    ends = list(accumulate(map(len, shapes)))
    for one in finished:
        at += one.sealed.entries
        assert at in ends, "a segment ends where an append does"
        last = sum(appends[ends.index(at)].sizes)
        assert one.sealed.size - last <= segment_bytes, "larger only by what belongs to its last append"


def test_a_rotation_inside_an_append_waits_for_its_end() -> None:
    batch = batch_of(appends_of([[1, 2, 3], [4]]))
    first, rest = split(batch, 2)
    assert first is not None
    assert rest is not None
    gatherer = Gatherer(1 << 20)
    assert gatherer.rotate() is None, "there is nothing"
    assert list(gatherer.add(first)) == []
    assert gatherer.rotate() is None
    (finished,) = gatherer.add(rest)
    assert (finished.sealed.entries, gatherer.entries) == (3, 1)


def test_a_stream_that_says_of_no_append_where_it_ends_is_cut_nevertheless(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """RFC-010's own servers don't say it."""
    monkeypatch.setattr(gathering, "OVERRUN_BYTES_MAX", 500)
    append = appends_of([[100] * 20])[0]
    gatherer, count = Gatherer(1_000), 0
    rest: ReceivedBatch | None = batch_of([append])
    while rest is not None:
        batch, rest = split(rest, 2)
        assert batch is not None
        count += len(list(gatherer.add(batch)))
    assert count == 2
    assert gatherer.entries < 20


def test_small_batches_are_joined_and_large_ones_are_not_copied_twice() -> None:
    gatherer = Gatherer(1 << 30)
    for one in appends_of([[10]] * 200):
        assert not list(gatherer.add(batch_of([one])))
    finished = gatherer.seal()
    assert len(finished.sealed.pieces) == 3, "head, entries, checksum"
    assert [len(sizes) for sizes in finished.sizes] == [200]


def test_batches_out_of_order_are_refused() -> None:
    one, two = appends_of([[1], [2]])
    gatherer = Gatherer(1 << 20)
    list(gatherer.add(batch_of([two])))
    for again in (one, two):
        with pytest.raises(JournalCorrupt):
            list(gatherer.add(batch_of([again])))
    assert gatherer.rotate() is not None
    with pytest.raises(JournalCorrupt):
        list(gatherer.add(batch_of([one])))


def test_what_split_returns_knows_its_ends() -> None:
    batch = batch_of(appends_of([[1, 2], [3]]))
    assert split(batch, 0) == (None, batch)
    assert split(batch, 3) == (batch, None)
    first, rest = split(batch, 2)
    assert first is not None
    assert rest is not None
    assert (first.last_lsn, rest.first_lsn) == (Lsn(TS, 7, 2), Lsn(TS + 1, 7, 3))
    assert stored(first) + stored(rest) == stored(batch)


def test_the_front_of_a_segment_is_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_PART_BYTES", 1)
    appends = appends_of([[1, 200], [0], [3, 4, 5]])
    gatherer = Gatherer(1 << 20)
    for one in appends:
        assert list(gatherer.add(batch_of([one]))) == []
    whole = gatherer.seal()
    entries = contents([whole])
    lsns = [Lsn.parse(bare_message_of(memoryview(one)).lsn) for one in entries]
    assert len(whole.sealed.pieces) == 5
    assert front(whole, lsns[0]) is None
    for count in range(1, len(lsns)):
        part = front(whole, lsns[count])
        assert part is not None
        assert contents([part]) == entries[:count]
        assert (part.sealed.name.first, part.sealed.name.last) == (lsns[0], lsns[count - 1])
    behind = front(whole, Lsn.from_int(int(lsns[-1]) + 1))
    assert behind is not None
    assert bytes_of(behind.sealed) == bytes_of(whole.sealed)
