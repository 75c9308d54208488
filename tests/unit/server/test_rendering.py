"""Stored entries to JSON: bytes untouched, bounds kept, cuts behind whole transactions where there is one."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.entries.entry import Change, Op
from headrace.log.tail import FeedSettings
from headrace.server.decoding import decode_entries
from headrace.server.encoding import change_of
from headrace.server.reading import Piece
from headrace.server.rendering import Form, Portion, Rendered, render, stored_frames
from headrace.wire.filters import EVERYTHING, EntryFilter
from headrace.wire.frame import frames_of
from tests.unit.server.frames import frame_of, piece_of

PLAIN = Change(b'{"n":1}', key=b"k")


def _tx(name: bytes, size: int) -> list[Change]:
    return [
        Change(b"{}", key=b"k", source_tx=name, tx_index=index, tx_last=index == size - 1)
        for index in range(size)
    ]


def _answer(
    piece: Piece, limit: int = 1_000, bytes_max: int = 1 << 20, wanted: EntryFilter = EVERYTHING
) -> Rendered:
    return render(piece, Portion(limit, bytes_max, wanted), Form.LIST)


def _ids(piece: Piece, limit: int = 1_000, bytes_max: int = 1 << 20) -> list[int]:
    answer = _answer(piece, limit, bytes_max)
    listed = json.loads(answer.content)
    ids = [entry["sequence-id"] for entry in listed["changes-list"]]
    assert answer.entries == len(ids)
    assert answer.last_sequence_id == listed["last-sequence-id"] == ids[-1]
    assert listed["last-lsn"] == listed["changes-list"][-1]["lsn"]
    return ids


def _only(change: Change) -> dict[str, Any]:
    (entry,) = json.loads(_answer(piece_of([change])).content)["changes-list"]
    return dict(entry)


def test_range_is_cut_out_of_whole_frames() -> None:
    frames = ([PLAIN] * 4, [PLAIN] * 4, [PLAIN] * 4)
    assert _ids(piece_of(*frames, first=3, last=10)) == [3, 4, 5, 6, 7, 8, 9, 10]
    assert _ids(piece_of(*frames, begins=63, first=64, last=65)) == [64, 65]


@pytest.mark.parametrize(
    ("limit", "ids"),
    [
        (1, [1]),
        (2, [1, 2]),
        (3, [1, 2]),
        (4, [1, 2]),
        (5, [1, 2, 3, 4, 5]),
        (7, [1, 2, 3, 4, 5]),
        (8, list(range(1, 9))),
    ],
)
def test_limit_cuts_behind_a_whole_transaction(limit: int, ids: list[int]) -> None:
    assert _ids(piece_of([*_tx(b"a", 2), *_tx(b"b", 3)], _tx(b"c", 3)), limit) == ids


def test_transaction_of_several_appends_is_cut_only_behind_its_last_entry() -> None:
    whole = _tx(b"a", 4)
    piece = piece_of([PLAIN], whole[:2], whole[2:])
    assert _ids(piece, 3) == [1]
    assert _ids(piece, 5) == [1, 2, 3, 4, 5]
    assert _ids(piece_of([PLAIN], whole[:2], first=2, last=9)) == [2, 3], "nothing whole in it: it is torn"


def test_append_without_transactions_is_cut_behind_its_end() -> None:
    assert _ids(piece_of([PLAIN] * 3, [PLAIN] * 3), 5) == [1, 2, 3]
    assert _ids(piece_of([PLAIN] * 3, [PLAIN] * 3), 2) == [1, 2]


def test_end_that_the_reader_named_is_kept_even_inside_a_transaction() -> None:
    assert _ids(piece_of(_tx(b"a", 2), _tx(b"b", 3), last=4)) == [1, 2, 3, 4]


def test_bytes_bound_holds_but_one_entry_always_comes() -> None:
    large = Change(b'{"t":"' + b"x" * 1_000 + b'"}', key=b"k")
    assert _ids(piece_of(*([large] for _ in range(9))), bytes_max=5_000) == [1, 2, 3, 4]
    assert _ids(piece_of([large], [large]), bytes_max=10) == [1]


def test_empty_piece_is_an_empty_list_with_the_bounds() -> None:
    document = json.loads(_answer(piece_of([PLAIN], first=2)).content)
    assert document == {
        "changes-list": [], "incarnation": "incarnation-1", "head-sequence-id": 1, "oldest-sequence-id": 1,
        "last-sequence-id": 1, "last-lsn": None,
    }  # fmt: skip


K1, K2 = EntryFilter(key=b"k1"), EntryFilter(key=b"k2")


def _keyed(keys: str, *, tx: bytes = b"") -> list[Change]:
    return [
        Change(
            b"{}",
            key=f"k{key}".encode(),
            source_tx=tx,
            tx_index=index,
            tx_last=bool(tx) and index == len(keys) - 1,
        )
        for index, key in enumerate(keys)
    ]


@pytest.mark.parametrize(
    ("limit", "ids", "last"),
    [(1, [1], 3), (2, [1, 4], 6), (3, [1, 4], 6), (4, [1, 4, 7, 8], 9), (9, [1, 4, 7, 8], 9)],
)
def test_a_filtered_cut_falls_behind_a_whole_transaction(limit: int, ids: list[int], last: int) -> None:
    piece = piece_of(_keyed("122", tx=b"a"), _keyed("122", tx=b"b"), _keyed("112", tx=b"c"))
    answer = _answer(piece, limit, wanted=K1)
    found = [entry["sequence-id"] for entry in json.loads(answer.content)["changes-list"]]
    assert (found, answer.entries, answer.last_sequence_id) == (ids, len(ids), last)


def test_a_filtered_answer_stops_before_the_transaction_that_does_not_fit() -> None:
    piece = piece_of(_keyed("2222", tx=b"a"), _keyed("111", tx=b"b"))
    answer = _answer(piece, 2, wanted=K1)
    assert (answer.entries, answer.last_sequence_id) == (0, 4), "the position moves, nothing is torn"
    answer = _answer(piece_of(_keyed("2222", tx=b"a"), _keyed("111", tx=b"b"), first=5), 2, wanted=K1)
    assert (answer.entries, answer.last_sequence_id) == (2, 6), "larger than the limit: it must be torn"


def test_events_have_their_ids_and_an_id_alone_moves_past_what_was_filtered() -> None:
    piece = piece_of(_keyed("121"))
    found = render(piece, Portion(wanted=K2), Form.EVENTS).content
    assert found.startswith(b'id: 2\nevent: change\ndata: {"sequence-id":2,')
    assert found.endswith(b"}\n\nid: 3\n\n")
    assert render(piece, Portion(wanted=EntryFilter(key=b"k9")), Form.EVENTS).content == b"id: 3\n\n"
    everything = render(piece, Portion(), Form.EVENTS).content
    assert everything.count(b"id: ") == everything.count(b"event: change\n") == 3


def test_line_ends_in_a_value_become_lines_of_data() -> None:
    found = render(piece_of([Change(b'{"a":\r\n1,\r"b":\n2}', key=b"k")]), Portion(), Form.EVENTS).content
    lines = found.splitlines()
    assert b"\r" not in found
    data = b"\n".join(line.removeprefix(b"data: ") for line in lines if line.startswith(b"data: "))
    assert json.loads(data)["changes"] == {"a": 1, "b": 2}
    assert all(line.startswith((b"id: ", b"event: ", b"data: ")) or not line for line in lines)


def test_key_that_the_producer_left_out_is_the_sequence_id() -> None:
    assert _only(Change(b"{}"))["key"] == "1"


def test_bytes_that_are_no_text_or_json_go_out_as_base64() -> None:
    entry = _only(Change(b"\xff\x00", key=b"\xfe", source_tx=b"\xfd", before=b"{", op=Op.BATCH))
    assert entry["changes-base64"] == base64.b64encode(b"\xff\x00").decode()
    assert entry["key-base64"] == base64.b64encode(b"\xfe").decode()
    assert entry["tx-base64"] == base64.b64encode(b"\xfd").decode()
    assert entry["before-base64"] == base64.b64encode(b"{").decode()
    assert entry["op"] == "batch"
    assert not {"changes", "key", "tx", "before"} & entry.keys()


@pytest.mark.parametrize("op", [Op.PUT, Op.PATCH, Op.DELETE])
def test_op_is_always_named(op: Op) -> None:
    assert _only(Change(b"{}", op=op))["op"] == op.value


def test_source_time_beyond_rfc_3339_goes_out_as_milliseconds() -> None:
    assert _only(Change(b"{}", source_time_ms=1_000))["source-time"] == "1970-01-01T00:00:01.000Z"
    assert _only(Change(b"{}", source_time_ms=1 << 60))["source-time"] == str(1 << 60)


def test_stored_frames_are_whole_and_in_order() -> None:
    frames = [frame_of(1, [PLAIN] * 3), frame_of(4, [PLAIN])]
    again = list(frames_of(stored_frames(frames)))
    assert [frame.header for frame in again] == [frame.header for frame in frames]
    assert [bytes(frame.body) for frame in again] == [bytes(frame.body) for frame in frames]


_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _text
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_text, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_text, _values, max_size=5), st.booleans(), st.sampled_from([None, 1, "\t"]))
def test_any_object_comes_out_as_the_bytes_it_went_in_as(value: Any, ascii_only: bool, indent: Any) -> None:
    value.pop("uuid", None)
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    (entry,) = decode_entries(b'{"agent-id":"a","changes":' + text + b"}")
    rendered = _answer(piece_of([change_of(entry, 0, FeedSettings())])).content
    assert b'"changes":' + text + b',"op"' in rendered
    assert json.loads(rendered)["changes-list"][0]["changes"] == value
