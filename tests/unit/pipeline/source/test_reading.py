"""What a worker reads of its partition: exactly it, of one history, with nothing left out."""

from __future__ import annotations

import pytest

from headrace.client.http import FramesRange
from headrace.errors import FeedRecreated, JournalCorrupt
from headrace.pipeline.source.planner import Range
from headrace.pipeline.source.reading import read_batches
from tests.unit.pipeline.feeds import StoredFeed


def stored() -> StoredFeed:
    feed = StoredFeed(frames_max=2)
    for _ in range(5):
        feed.add(4)
    return feed


def part(feed: StoredFeed, first: int, last: int) -> Range:
    return Range(feed.name, feed.incarnation, first, last, feed.lsn(first - 1), feed.lsn(last))


def test_a_partition_is_read_exactly() -> None:
    feed = stored()
    batches = list(read_batches(feed, part(feed, 3, 18), ["key", "sequence_id"]))
    assert [batch.schema.names for batch in batches] == [["key", "sequence_id"]] * 3
    assert [number for batch in batches for number in batch["sequence_id"].to_pylist()] == list(range(3, 19))
    assert feed.asked == [(3, 18), (9, 18), (17, 18)]


def test_columns_that_only_checks_need_are_left_out() -> None:
    feed = stored()
    (batch,) = read_batches(feed, part(feed, 1, 2), ["value"])
    assert batch.schema.names == ["value"]


def test_another_history_is_refused() -> None:
    feed = stored()
    wanted = part(feed, 5, 8)
    with pytest.raises(FeedRecreated):
        list(read_batches(feed.reborn(), wanted, ["key"]))
    with pytest.raises(FeedRecreated):
        list(read_batches(feed, wanted._replace(lsn_before=feed.lsn(1)), ["key"]))
    with pytest.raises(FeedRecreated, match="an old copy"):
        list(read_batches(feed, wanted._replace(lsn_last=feed.lsn(1)), ["key"]))


class Forgetful(StoredFeed):
    """Leaves out the frame that holds entry 5."""

    def frames(
        self, feed: str, first: int, last: int, *, incarnation: str | None = None, lsn: str | None = None
    ) -> FramesRange:
        kept = self.frames_stored
        self.frames_stored = [frame for frame in kept if frame.header.first_sequence_id != 5]
        try:
            return super().frames(feed, first, last, incarnation=incarnation, lsn=lsn)
        finally:
            self.frames_stored = kept


def test_a_gap_in_an_answer_is_never_passed_over() -> None:
    feed = Forgetful(frames_stored=stored().frames_stored, frames_max=9)
    with pytest.raises(JournalCorrupt, match="left out entries of f::1 from 1 to 20"):
        list(read_batches(feed, part(feed, 1, 20), ["key"]))
    with pytest.raises(JournalCorrupt, match="left out"):
        list(read_batches(feed, part(feed, 5, 6), ["key"]))
