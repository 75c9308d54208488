"""Whatever ``Outbox.add`` takes, the server takes: a row that it refuses would stop its feed."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import InvalidRequest, TooLarge
from headrace.log.tail import FeedSettings
from headrace.publisher.marked import APPEND_BYTES_MAX, MarkedRow, to_entry
from headrace.publisher.outbox.record import ENTRY_BYTES_MAX, ENVELOPE_BYTES, make_record
from headrace.server.decoding import decode_entries
from headrace.server.encoding import PostTerms, append_of
from headrace.wire.documents import TIME_MS_MAX, EntriesIn

LARGEST = 2**63 - 1
SERVER_STACK = 100


def row_of(changes: Any, key: str | None = None, changed: Any = None, op: str = "put") -> MarkedRow:
    """Return the row as the agent posts it, at the places that take most bytes."""
    record = make_record("f", changes, key, op, changed)
    names = None if record.changed is None else tuple(msgspec.json.decode(record.changed, type=list[str]))
    return MarkedRow(
        id=LARGEST, sequence_id=LARGEST, op=record.op, key=record.key, changes=record.changes.encode(), changed=names,
        before=None, table=(), control=None, copy=False, tx=LARGEST, tx_index=LARGEST, tx_last=True,
        created_at_ms=TIME_MS_MAX,
    )  # fmt: skip


def post(row: MarkedRow, key_field: str = "uuid", stack: int = 0) -> None:
    """Take ``row`` as the server does, ``stack`` calls further down."""
    if stack:
        post(row, key_field, stack - 1)
        return
    body = msgspec.json.encode(EntriesIn(entries=[to_entry(row, "a" * 200, "f")]))
    append_of("f", FeedSettings(key_field=key_field), decode_entries(body), PostTerms())


anything = st.text(st.characters(exclude_categories=()), max_size=6)  # surrogates too
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), anything),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(anything, inner, max_size=3)),
    max_leaves=8,
)
members = st.dictionaries(st.one_of(st.sampled_from(["uuid", "id"]), anything), values, max_size=4)
texts = st.one_of(
    members.map(json.dumps),  # escapes, lone surrogates among them, NaN
    st.text('{}[]":,\\u0d8cC \n19.-+eE', max_size=12).map(lambda text: f'{{"a":{text}}}'),
    st.lists(st.sampled_from(["\\ud83d", "\\uDE00", "\\\\", '\\"', "\\u0041", "a", "é"]), max_size=6).map(
        lambda parts: f'{{"uuid":"{"".join(parts)}"}}'
    ),
    st.text(max_size=8),
)
pads = st.sampled_from(
    [0, 0, 0, ENTRY_BYTES_MAX // 2, ENTRY_BYTES_MAX - ENVELOPE_BYTES - 40, ENTRY_BYTES_MAX]
)


@given(
    changes=st.one_of(members, texts, texts.map(lambda text: text.encode("utf-8", "surrogatepass"))),
    key=st.one_of(st.none(), anything),
    changed=st.one_of(st.none(), st.lists(anything, max_size=3)),
    op=st.sampled_from(["put", "patch", "delete"]),
    key_field=st.sampled_from(["uuid", "id", "a"]),
)
def test_what_add_takes_the_server_takes(
    changes: Any, key: str | None, changed: Any, op: str, key_field: str
) -> None:
    try:
        row = row_of(changes, key, changed, op)
    except (InvalidRequest, TooLarge):
        return
    post(row, key_field)


@given(
    pad=pads, less=st.integers(0, 200), key=st.booleans(), names=st.lists(st.integers(0, 300), max_size=20)
)
@example(pad=ENTRY_BYTES_MAX, less=len('{"uuid":""}'), key=True, names=[])
@example(pad=600_000, less=0, key=False, names=[])
def test_size_is_bounded_as_at_the_server(pad: int, less: int, key: bool, names: list[int]) -> None:
    text = '{"uuid":"' + "x" * max(0, pad - less) + '"}'
    with suppress(TooLarge):
        post(row_of(text, "k" * 9 if key else None, ["é" * size for size in names]))


def test_long_number_may_be_the_key() -> None:
    text = '{"uuid":0.' + "1" * 600_000 + "}"
    with pytest.raises(TooLarge):
        row_of(text)
    post(row_of(text, "k"))


def test_an_entry_just_below_the_limit_is_taken() -> None:
    room = ENTRY_BYTES_MAX - ENVELOPE_BYTES - len('{"a":""}k')
    post(row_of('{"a":"' + "x" * room + '"}', "k"))
    with pytest.raises(TooLarge):
        row_of('{"a":"' + "x" * (room + 1) + '"}', "k")


@pytest.mark.parametrize("depth", [1, 200, 499, 500, 950, 2000])
def test_nesting_is_bounded_whatever_the_stack(depth: int) -> None:
    try:
        row = row_of('{"[":"\\"[","a":' + "[" * depth + "]" * depth + "}", "k")
    except InvalidRequest:
        assert depth >= 500
        return
    assert depth < 500
    post(row, stack=SERVER_STACK)


@pytest.mark.parametrize(
    ("changes", "key", "changed", "member"),
    [
        (r'{"a":"\ud800"}', None, None, "changes"),
        (r'{"a":"\ude00\ud83d"}', "k", None, "changes"),
        (r'{"a":"\ud83d\\\ude00"}', "k", None, "changes"),
        (r'{"\udfff":1}', "k", None, "changes"),
        (r'{"uuid":"\u0000x"}', None, None, "changes"),
        ({"other": "\0x"}, None, None, "changes"),
        ({}, "\ud800", None, "key"),
        ({}, None, ["\ud800"], "changed"),
    ],
    ids=repr,
)
def test_what_is_no_text_is_refused_by_name(changes: Any, key: Any, changed: Any, member: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        row_of(changes, key, changed)
    assert caught.value.members["member"] == member


@pytest.mark.parametrize(
    "text", [r'{"a":"\ud83d\ude00"}', r'{"a":"\\ud800"}', r'{"a":"\u0000"}', '{"a":"\U0001f600"}']
)
def test_what_is_text_is_taken_as_it_is(text: str) -> None:
    row = row_of(text, "k")
    assert row.changes == text.encode()
    post(row)


def test_size_of_a_row_counts_all_that_is_posted() -> None:
    row = row_of({}, "\x01" * 100_000, ["name" * 10] * 1000)
    body = msgspec.json.encode(to_entry(row, "agent-1", "f"))
    assert len(body) <= row.size < APPEND_BYTES_MAX
