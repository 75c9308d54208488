"""JSON text to documents: what passes untouched, and how a refusal names member and entry."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidRequest
from headrace.server.decoding import JSON_DEPTH_MAX, decode_document, decode_entries, parse_time
from headrace.wire.documents import TIME_MS_MAX, RegisterPublisher


def test_entries_of_the_three_forms() -> None:
    one = b'{"agent-id":"a","changes":{"n":1}}'
    assert len(decode_entries(one)) == 1
    assert len(decode_entries(b'{"entries":[' + one + b"," + one + b"]}")) == 2
    assert len(decode_entries(one + b"\r\n\n" + one, ndjson=True)) == 2
    assert decode_entries(b"", ndjson=True) == []


def test_changes_are_the_very_bytes_of_the_body() -> None:
    text = b'{ "b" : 1.50,\t"a":"\\u0041", "b":[ ] }'
    (entry,) = decode_entries(b'{"agent-id":"a" , "changes": ' + text + b' ,"op":"put"}')
    assert bytes(entry.changes) == text


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"changes":{},"colour":1}', "colour: there is no such member"),
        (b'{"entries":[{"changes":{}},{}]}', "entries[1]: changes: is missing"),
        (b'{"changes":{},"tx-index":-1}', "tx-index: expected `int` >= 0"),
        (b'{"changes":{},"op":"x"}', "op: invalid enum value 'x'"),
        (b'{"changes":', "the body is not JSON: Input data was truncated"),
        (b'{"changes":{"a":tru}}', "the body is not JSON: invalid character (byte 17)"),
        (b'{"changes":{"a":"\xc3"}}', "the body is not UTF-8: byte 17 is 0xc3"),
        (b"7", "expected `object`, got `int`"),
    ],
)
def test_refusal_says_what_is_wrong_and_where(body: bytes, detail: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_entries(body)
    assert caught.value.detail == detail


@pytest.mark.parametrize("member", ["changes", "before"])
@pytest.mark.parametrize("ndjson", [False, True])
def test_depth_has_a_bound_that_text_does_not_count_for(member: str, ndjson: bool) -> None:
    def body(depth: int) -> bytes:
        strings = b'"t":"' + b'[{\\"' * JSON_DEPTH_MAX + b'",'
        value = b"{" + strings + b'"k":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"
        other = b'"changes":{},' if member == "before" else b""
        return b'{"agent-id":"a",' + other + b'"' + member.encode() + b'":' + value + b"}"

    assert len(decode_entries(body(JSON_DEPTH_MAX), ndjson=ndjson)) == 1
    for depth in (JSON_DEPTH_MAX + 1, 985, 100_000):
        with pytest.raises(InvalidRequest, match="nested too deeply"):
            decode_entries(body(depth), ndjson=ndjson)


def test_many_flat_entries_are_not_deep() -> None:
    one = b'{"agent-id":"a","changes":{"n":[]}}'
    assert len(decode_entries(b'{"entries":[' + b",".join([one] * 1_000) + b"]}")) == 1_000


def test_what_a_sender_wrote_is_repeated_only_in_part() -> None:
    body = b'{"agent-id":"a","change-feed-id":"f","' + b"x" * 10_000 + b'":1}'
    with pytest.raises(InvalidRequest) as caught:
        decode_document(body, RegisterPublisher)
    assert len(caught.value.detail) < 200


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("0", 0),
        ("1790000000123", 1_790_000_000_123),
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01t01:00:00.5+01:00", 500),
        ("2026-11-21 01:02:03.123456789Z", 1_795_222_923_123),
    ],
)
def test_times_that_are_taken(text: str, stamp: int) -> None:
    assert parse_time(text, "source-time") == stamp


@pytest.mark.parametrize(
    "text",
    ["", "-1", "1.5", "2026-11-21", "2026-11-21T01:02:03", "2026-13-01T00:00:00Z", "1969-12-31T23:59:59Z", "\u0661",
     str(TIME_MS_MAX + 1), "9" * 400],
)  # fmt: skip
def test_times_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_time(text, "source-time", 3)
    assert caught.value.members == {"member": "source-time", "index": 3}
