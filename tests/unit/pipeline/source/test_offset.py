"""Places in a checkpoint: the same JSON for the same place, versions, and nobody else's place taken for one's own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import FormatTooNew, InvalidRequest
from headrace.pipeline.source.offset import Asked, Offset, Place, from_json, read_offset, to_json

LSN = "0687ef9388b00000.0000000001.0000020000"
place = st.builds(
    Place,
    incarnation=st.uuids().map(str),
    sequence_id=st.integers(0, (1 << 63) - 1),
    lsn=st.sampled_from(["", LSN]),
    began_after=st.one_of(st.none(), st.integers(0, 99)),
)
offsets = st.one_of(
    st.builds(Offset, st.fixed_dictionaries({"f::2": place, "f::1": place})),
    st.builds(Asked, st.just(("f::1", "f::2")), st.sampled_from(["oldest", "head", "7", LSN])),
)


@given(offsets)
def test_an_offset_comes_back_as_it_was(offset: Offset | Asked) -> None:
    text = json.dumps(to_json(offset))
    assert from_json(json.loads(text), ["f::2", "f::1"]) == offset
    assert from_json(text, ["f::1", "f::2"]) == offset
    assert json.dumps(to_json(read_offset(text))) == text


def test_the_written_form_is_as_documented() -> None:
    offset = Offset({"f::1": Place(incarnation="i", sequence_id=7, lsn="0.1.7")})
    assert json.dumps(to_json(offset)) == (
        '{"feeds": {"f::1": {"incarnation": "i", "lsn": "0.1.7", "sequence-id": 7}}, "readable-from": 2, "written-as": 2}'
    )
    one = Place(incarnation="i", sequence_id=7)
    assert to_json(Offset({"b": one, "a": one})) == to_json(Offset({"a": one, "b": one}))
    assert list(to_json(Offset({"b": one, "a": one}))["feeds"]) == ["a", "b"]
    start = Asked(("f::2", "f::1"), "oldest")
    assert json.dumps(to_json(start)) == (
        '{"feeds": ["f::1", "f::2"], "readable-from": 2, "start": "oldest", "written-as": 2}'
    )


def test_the_first_version_is_read() -> None:
    old = {"feed": "f::1", "incarnation": "i", "lsn": "0.1.7", "readable-from": 1, "sequence-id": 7}
    assert read_offset(old) == Offset({"f::1": Place(incarnation="i", sequence_id=7, lsn="0.1.7")})
    assert read_offset({"feed": "f::1", "begin": "head"}) == Asked(("f::1",), "head")


def test_a_newer_form_is_refused() -> None:
    document = to_json(Asked(("f::1",), "oldest"))
    with pytest.raises(FormatTooNew):
        from_json(document | {"readable-from": 3}, ["f::1"])
    assert from_json(document | {"written-as": 3, "more": True}, ["f::1"]).feeds == ("f::1",)


@pytest.mark.parametrize(
    "document",
    [
        {},
        [],
        {"feeds": ["f::1"]},
        {"feeds": {"f::1": {"incarnation": "i"}}},
        {"feed": "f::1"},
        {"feed": "f::1", "sequence-id": "7"},
        {"feeds": 7, "start": "oldest"},
    ],
    ids=json.dumps,
)
def test_what_is_no_offset_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest, match="none of a feed"):
        from_json(json.dumps(document), ["f::1"])


def test_another_querys_checkpoint_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="of the feeds f::1, f::3, the query reads f::1, f::2"):
        from_json(to_json(Asked(("f::1", "f::3"), "head")), ["f::1", "f::2"])
