"""Query strings and headers: bounds, defaults, and refusals that name the parameter."""

from __future__ import annotations

import base64

import pytest
from starlette.datastructures import Headers

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.server.http.parameters import (
    QUERY_BYTES_MAX,
    SOURCE_POSITION_BYTES_MAX,
    PlaceHeaders,
    PollQuery,
    PostHeaders,
    RangeQuery,
    TailQuery,
    parse_headers,
    parse_query,
)
from headrace.server.reading import Known


def test_defaults_of_a_poll() -> None:
    query = parse_query(b"listener-id=l", PollQuery)
    assert (query.listener_id, query.after_sequence_id, query.timeout_ms, query.limit) == (
        "l",
        0,
        30_000,
        1_000,
    )


def test_bounds_themselves_are_taken() -> None:
    query = parse_query(b"listener-id=l&limit=10000&timeout-ms=60000", PollQuery)
    assert (query.limit, query.timeout_ms) == (10_000, 60_000)
    assert parse_query(b"listener-id=l&limit=1&timeout-ms=0", PollQuery).limit == 1


def test_values_are_percent_decoded() -> None:
    assert parse_query(b"listener-id=a%2Bb%26c%2F+d", PollQuery).listener_id == "a+b&c/ d"
    assert parse_query(b"producer=null", TailQuery).producer == "null"


@pytest.mark.parametrize(
    ("query", "member"),
    [
        (b"", "beg-sequence-id"),
        (b"beg-sequence-id=", "beg-sequence-id"),
        (b"beg-sequence-id=1.5", "beg-sequence-id"),
        (b"beg-sequence-id=9223372036854775808", "beg-sequence-id"),
        (b"beg-sequence-id=1&limit=10001", "limit"),
        (b"beg-sequence-id=1&Limit=1", "Limit"),
        (b"beg-sequence-id=1&limit=1&limit=1", "limit"),
        (b"beg-sequence-id=1&&", None),
        (b"beg-sequence-id=%zz", "beg-sequence-id"),
        (b"beg-sequence-id=%ff", None),
        (b"x=" + b"1" * QUERY_BYTES_MAX, None),
    ],
)
def test_query_refusals_name_the_parameter(query: bytes, member: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_query(query, RangeQuery)
    assert caught.value.members.get("member") == member


def test_place_headers() -> None:
    headers = Headers({"headrace-incarnation": "i", "headrace-lsn": "1f.2.3", "other": "x"})
    assert parse_headers(headers, PlaceHeaders).known() == Known("i", Lsn(0x1F, 2, 3))
    assert parse_headers(Headers({}), PlaceHeaders).known() == Known(None, None)


def test_post_headers() -> None:
    headers = Headers(
        {
            "headrace-epoch": "7",
            "headrace-incarnation": "i",
            "headrace-marked-at": "1000",
            "headrace-source-position": base64.b64encode(b"\x00p").decode(),
            "traceparent": "t",
        }
    )
    terms = parse_headers(headers, PostHeaders).terms()
    assert (terms.epoch, terms.incarnation, terms.marked_at_ms) == (7, "i", 1_000)
    assert (terms.source_position, terms.traceparent) == (b"\x00p", "t")


def test_header_given_twice_is_refused() -> None:
    headers = Headers(raw=[(b"headrace-epoch", b"1"), (b"headrace-epoch", b"2")])
    with pytest.raises(InvalidRequest, match="headrace-epoch: is given twice"):
        parse_headers(headers, PostHeaders)


def test_source_position_is_bounded() -> None:
    most = base64.b64encode(b"x" * SOURCE_POSITION_BYTES_MAX).decode()
    assert len(
        parse_headers(Headers({"headrace-source-position": most}), PostHeaders).terms().source_position
    )
    more = base64.b64encode(b"x" * (SOURCE_POSITION_BYTES_MAX + 1)).decode()
    with pytest.raises(InvalidRequest, match="Headrace-Source-Position"):
        parse_headers(Headers({"headrace-source-position": more}), PostHeaders).terms()
