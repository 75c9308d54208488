"""What becomes of a batch, by what the feed says of the one before it."""

from __future__ import annotations

import msgspec
import pytest

from headrace.errors import BatchChanged, BatchMissing, BatchSplit, BatchStale, FormatTooNew, SinkTaken
from headrace.pipeline.sink.position import (
    UNSETTLED,
    LastAppend,
    Place,
    Settlement,
    SinkPosition,
    decode,
    encode,
    place_of,
)
from headrace.wire.documents import LastFrame

OWN = SinkPosition(query="q", batch=7, attempt="second", task=0)
LAST = LastFrame(first_sequence_id=40, count=3)
NEXT = 50  # other producers have appended since


def placed(
    found: SinkPosition | None,
    rows: int = 3,
    settled: Settlement = UNSETTLED,
    own: SinkPosition = OWN,
    kept: LastAppend | None = None,
) -> Place | None:
    last = LAST if found is not None else None
    return place_of(
        own, rows, feed="f", next_sequence_id=NEXT, last=last, found=found, settled=settled, kept=kept
    )


def found(**differences: object) -> SinkPosition:
    """The batch as an earlier attempt of it left it, save what differs."""
    return msgspec.structs.replace(OWN, **({"attempt": "first"} | differences))


def test_a_later_version_is_read_as_far_as_it_says() -> None:
    text = encode(OWN)
    assert decode(text) == OWN
    later = text.replace(b'"task":0', b'"task":0,"new":true').replace(b'"written-as":1', b'"written-as":2')
    assert decode(later) == OWN
    with pytest.raises(FormatTooNew, match="sink position"):
        decode(text.replace(b'"readable-from":1', b'"readable-from":2'))


@pytest.mark.parametrize("other", [b"", b"\xff", b"[]", b"0-1-4711", b'{"readable-from":1,"gtid":"0-1-2"}'])
def test_the_position_of_another_kind_of_producer_is_told(other: bytes) -> None:
    with pytest.raises(SinkTaken, match="not made by Spark's sink"):
        decode(other)


@pytest.mark.parametrize("before", [None, found(batch=6), found(batch=0, task=5)])
def test_a_new_batch_goes_to_the_end(before: SinkPosition | None) -> None:
    assert placed(before) == Place(NEXT, stored=False)


@pytest.mark.parametrize("same", [found(), found(task=3), OWN])
def test_a_batch_that_is_there_names_the_place_where_it_stands(same: SinkPosition) -> None:
    # Another task number is no split where it is another attempt: the data frame was put into one task meanwhile.
    assert placed(same) == Place(40, stored=True)


@pytest.mark.parametrize("rows", [2, 4])
def test_fewer_or_more_rows_are_another_batch(rows: int) -> None:
    with pytest.raises(
        BatchChanged, match=r"the feed f holds batch 7 of the query q as the entries 40 to 42"
    ):
        placed(found(), rows)


def test_two_tasks_of_one_attempt_are_a_split_batch() -> None:
    with pytest.raises(BatchSplit, match=r"the rows of task 4 of batch 7; task 0 has rows"):
        placed(found(attempt=OWN.attempt, task=4))


def test_an_older_batch_is_stale() -> None:
    with pytest.raises(BatchStale, match=r"they are batch 8 of the query q, this is batch 7"):
        placed(found(batch=8))


def test_another_query_has_to_be_named_to_be_replaced() -> None:
    with pytest.raises(SinkTaken, match=r"entries 40 to 42.*batch 7 of the query other, this is the query q"):
        placed(found(query="other"))
    with pytest.raises(SinkTaken):
        placed(found(query="other"), settled=Settlement(replaces="third"))
    assert placed(found(query="other"), settled=Settlement(replaces="other")) == Place(NEXT, stored=False)
    # Once this query has written, the permission means nothing any more.
    with pytest.raises(BatchStale):
        placed(found(batch=8), settled=Settlement(replaces="other"))


def test_a_decision_is_for_one_batch() -> None:
    keep, repeat = Settlement(keep_batch=7), Settlement(repeat_batch=7)
    split = found(attempt=OWN.attempt, task=4)
    assert placed(found(), 9, keep) is None
    assert placed(split, 9, keep) is None
    assert placed(found(), 9, repeat) == Place(NEXT, stored=False)
    # What this very task wrote is its own: it is not written once more when its answer was lost.
    assert placed(OWN, 3, repeat) == Place(40, stored=True)
    for other in (Settlement(keep_batch=6), Settlement(repeat_batch=8)):
        with pytest.raises(BatchChanged):
            placed(found(), 9, other)
    assert placed(found(batch=6), 9, keep) == Place(NEXT, stored=False)


def remembered(batch: int, first: int = 40) -> LastAppend:
    return LastAppend(batch=batch, first_sequence_id=first, rows=3)


@pytest.mark.parametrize(
    ("there", "kept", "said"),
    [
        (None, remembered(6), "the feed knows no append of this agent id"),
        (found(batch=4), remembered(6, 43), "is batch 4 of the query q, as the entries from 40 on"),
        (found(batch=6), remembered(6, 43), "is batch 6 of the query q, as the entries from 40 on"),
        (found(), remembered(7, 43), "is batch 7 of the query q, as the entries from 40 on"),
        (found(query="older"), remembered(6, 43), "is batch 7 of the query older"),
    ],
    ids=["anew", "older copy", "another history", "another history of this batch", "replaced before"],
)
def test_what_the_query_remembers_and_the_feed_lacks_is_told(
    there: SinkPosition | None, kept: LastAppend, said: str
) -> None:
    with pytest.raises(
        BatchMissing, match=f"the feed f has lost batch {kept.batch} of the query q"
    ) as caught:
        placed(there, kept=kept, settled=Settlement(replaces="older"))
    assert said in caught.value.detail
    assert f"the entries {kept.first_sequence_id} to {kept.first_sequence_id + 2}:" in caught.value.detail
    assert caught.value.exit_code == 3


def test_a_batch_that_was_repeated_behind_itself_is_not_missing() -> None:
    """``repeat-batch`` appended it anew, and the task died before the query noted where."""
    before, repeat = remembered(7, 30), Settlement(repeat_batch=7)
    assert placed(OWN, kept=before, settled=repeat) == Place(40, stored=True)
    assert placed(found(), kept=before) == Place(40, stored=True)
    assert placed(found(), 9, kept=before, settled=repeat) == Place(NEXT, stored=False)
    with pytest.raises(BatchChanged):
        placed(found(), 9, kept=before)


@pytest.mark.parametrize("settled", [UNSETTLED, Settlement(replaces="newer")])
def test_a_query_that_was_replaced_since_has_lost_nothing(settled: Settlement) -> None:
    with pytest.raises(SinkTaken, match=r"batch 7 of the query newer, this is the query q") as caught:
        placed(found(query="newer"), kept=remembered(6, 30), settled=settled)
    if settled.replaces:
        assert (
            "was replaced since: its own newest batch was 6, as the entries 30 to 32" in caught.value.detail
        )
        assert "headrace-appends.json" in caught.value.advice


def test_what_the_query_remembers_and_the_feed_holds_changes_nothing() -> None:
    # The append after the one that is remembered may be there: its batch was not finished.
    for kept in (remembered(6), remembered(7), remembered(3, 1)):
        assert placed(found(), kept=kept) == Place(40, stored=True)
    for kept in (remembered(6), remembered(4, 30)):
        assert placed(found(batch=6), kept=kept) == Place(NEXT, stored=False)
    with pytest.raises(BatchStale):
        placed(found(batch=8), kept=remembered(8))
    with pytest.raises(SinkTaken):
        placed(found(query="newer"), kept=remembered(6))
