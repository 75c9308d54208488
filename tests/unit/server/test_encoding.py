"""JSON entries to an append: keys, ops, places, and what stands in the frame's area."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.entries.entry import Op
from headrace.errors import InvalidRequest, TooLarge
from headrace.log.requests import NEXT, Append
from headrace.log.tail import FeedSettings
from headrace.server.decoding import decode_entries
from headrace.server.encoding import ENTRIES_MAX, ENTRY_BYTES_MAX, MS, PostTerms, append_of, change_of
from headrace.wire.entry import digest
from headrace.wire.frame import Area

FULL = FeedSettings()


def _append(
    *entries: dict[str, Any], terms: PostTerms | None = None, settings: FeedSettings = FULL
) -> Append:
    body = json.dumps({"entries": [{"agent-id": "a", **entry} for entry in entries]}).encode()
    return append_of("feed", settings, decode_entries(body), terms or PostTerms())


def _change(body: bytes, settings: FeedSettings = FULL) -> Any:
    (entry,) = decode_entries(body)
    return change_of(entry, 0, settings)


@pytest.mark.parametrize(
    ("op", "settings", "expected"),
    [
        (b"", FULL, Op.PUT),
        (b"", FeedSettings(changes="delta"), Op.PATCH),
        (b',"op":"put"', FeedSettings(changes="delta"), Op.PUT),
        (b',"op":"patch"', FULL, Op.PATCH),
        (b',"op":"delete"', FULL, Op.DELETE),
    ],
)
def test_op_that_is_not_named_is_what_the_feed_s_changes_are(
    op: bytes, settings: FeedSettings, expected: Op
) -> None:
    assert _change(b'{"changes":{}' + op + b"}", settings).op is expected


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        (b'{"uuid":"x"}', b"x"),
        (b'{"uuid":"\\u00e9\\"\\ud83d\\ude00"}', '\u00e9"\U0001f600'.encode()),
        (b'{"uuid":"a","uuid":"b"}', b"b"),
        (b'{"uuid":-1.50E+3}', b"-1.50E+3"),
        (b'{"uuid":12345678901234567890123}', b"12345678901234567890123"),
        (b'{"uuid":""}', b""),
        (b'{"uuid":true}', None),
        (b'{"uuid":null}', None),
        (b'{"uuid":["x"]}', None),
        (b'{"uuid":{"uuid":"x"}}', None),
        (b'{"inner":{"uuid":"x"}}', None),
        (b"{}", None),
    ],
)
def test_key_found_in_changes(changes: bytes, key: bytes | None) -> None:
    assert _change(b'{"changes":' + changes + b"}").key == key


def test_key_field_of_the_feed_is_looked_for() -> None:
    assert _change(b'{"changes":{"id":7,"uuid":"x"}}', FeedSettings(key_field="id")).key == b"7"


def test_key_given_wins_and_the_value_keeps_its_bytes() -> None:
    change = _change(b'{"key":"k","changes":{ "uuid" :"x"},"before": [1, 2]}')
    assert (change.key, change.value, change.before) == (b"k", b'{ "uuid" :"x"}', b"[1, 2]")


def test_places_are_left_out_where_no_entry_names_one() -> None:
    append = _append({"changes": {}}, {"changes": {}, "expected-offset": -1})
    assert (append.expected_offsets, append.sequence_ids) == ((), ())
    append = _append(
        {"changes": {}}, {"changes": {}, "expected-offset": 5}, {"changes": {}, "sequence-id": 6}
    )
    assert (append.expected_offsets, append.sequence_ids) == ([NEXT, 5, NEXT], [NEXT, NEXT, 6])


def test_transaction_ends_are_the_entries_that_say_so() -> None:
    append = _append(
        {"changes": {}, "tx": "1", "tx-last": False},
        {"changes": {}, "tx": "1", "tx-last": True},
        {"changes": {}},
        {"changes": {}, "tx": "2", "tx-last": True},
    )
    assert append.transaction_ends == [1, 3]


def test_digest_is_of_the_producer_s_halves_alone() -> None:
    plain = _append({"changes": {"n": 1}})
    with_terms = _append(
        {"changes": {"n": 1}}, terms=PostTerms(epoch=3, source_position=b"p", posted_at_ms=9)
    )
    assert plain.digest == with_terms.digest == digest(plain.halves)
    assert _append({"changes": {"n": 2}}).digest != plain.digest


def test_area_carries_what_the_headers_said() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    terms = PostTerms(source_position=b"p\x00", marked_at_ms=7, posted_at_ms=0, traceparent=trace)
    assert _append({"changes": {}}, terms=terms).area == {
        Area.SOURCE_POSITION: b"p\x00",
        Area.MARKED_AT_MS: MS.pack(7),
        Area.POSTED_AT_MS: MS.pack(0),
        Area.TRACEPARENT: trace.encode(),
    }


@pytest.mark.parametrize("trace", ["", "x", "00-" + "A" * 32 + "-" + "b" * 16 + "-01", "00-1-2-3\n"])
def test_broken_trace_parent_is_left_out_and_fails_nothing(trace: str) -> None:
    assert Area.TRACEPARENT not in _append({"changes": {}}, terms=PostTerms(traceparent=trace)).area


def test_entry_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    overhead = len(_append({"changes": {"t": "x" * 1_000_000}, "key": "k"}).halves[0]) - 1_000_000
    most = ENTRY_BYTES_MAX - overhead
    assert len(_append({"changes": {"t": "x" * most}, "key": "k"}).halves[0]) == ENTRY_BYTES_MAX
    with pytest.raises(TooLarge):
        _append({"changes": {"t": "x" * (most + 1)}, "key": "k"})


def test_number_of_entries_is_bounded() -> None:
    (entry,) = decode_entries(b'{"agent-id":"a","changes":{}}')
    with pytest.raises(TooLarge):
        append_of("feed", FULL, [entry] * (ENTRIES_MAX + 1), PostTerms())


@pytest.mark.parametrize("agent_id", ["", "a b", "x" * 201, "\u00e9"])
def test_agent_id_must_be_a_name(agent_id: str) -> None:
    with pytest.raises(InvalidRequest, match="agent-id"):
        _append({"changes": {}, "agent-id": agent_id})
