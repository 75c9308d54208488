"""Places in a checkpoint: the same JSON for the same place, versions, and nobody else's place taken for one's own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import FormatTooNew, InvalidRequest
from headrace.pipeline.source.offset import FeedOffset, FeedStart, Place, from_json, to_json

places = st.one_of(
    st.builds(
        FeedOffset,
        feed=st.just("f::1"),
        incarnation=st.uuids().map(str),
        sequence_id=st.integers(0, (1 << 63) - 1),
        lsn=st.sampled_from(["", "0687ef9388b00000.0000000001.0000020000"]),
        began_after=st.one_of(st.none(), st.integers(0, 99)),
    ),
    st.builds(FeedStart, feed=st.just("f::1"), begin=st.sampled_from(["oldest", "head"])),
)


@given(places)
def test_a_place_comes_back_as_it_was(place: Place) -> None:
    text = json.dumps(to_json(place))
    assert from_json(json.loads(text), "f::1") == place
    assert json.dumps(to_json(from_json(json.loads(text), "f::1"))) == text


def test_the_written_form_is_as_documented() -> None:
    offset = FeedOffset(feed="f::1", incarnation="i", sequence_id=7, lsn="0.1.7")
    assert json.dumps(to_json(offset)) == (
        '{"feed": "f::1", "incarnation": "i", "lsn": "0.1.7", "readable-from": 1, "sequence-id": 7, "written-as": 1}'
    )
    start = FeedStart(feed="f::1", begin="oldest")
    assert json.dumps(to_json(start)) == (
        '{"begin": "oldest", "feed": "f::1", "readable-from": 1, "written-as": 1}'
    )


def test_a_newer_form_is_refused() -> None:
    document = to_json(FeedStart(feed="f::1", begin="oldest"))
    with pytest.raises(FormatTooNew):
        from_json(document | {"readable-from": 2}, "f::1")
    assert from_json(document | {"written-as": 2, "more": True}, "f::1").feed == "f::1"


@pytest.mark.parametrize(
    "document",
    [{}, {"feed": "f::1"}, {"begin": "middle", "feed": "f::1"}, {"feed": "f::1", "sequence-id": "7"}],
    ids=json.dumps,
)
def test_what_is_no_place_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="none of a feed"):
        from_json(document, "f::1")


def test_another_feeds_checkpoint_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the checkpoint is of the feed f::1, the query reads f::2"):
        from_json(to_json(FeedStart(feed="f::1", begin="head")), "f::2")
