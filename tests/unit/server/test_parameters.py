"""Query strings and headers: bounds, defaults, and refusals that name the parameter."""

from __future__ import annotations

import base64

import pytest
from starlette.datastructures import Headers

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, UriTooLong
from headrace.server.http.parameters import (
    QUERY_BYTES_MAX,
    SOURCE_POSITION_BYTES_MAX,
    PlaceHeaders,
    PollQuery,
    PostHeaders,
    RangeQuery,
    StreamHeaders,
    StreamQuery,
    TailQuery,
    parse_headers,
    parse_query,
)
from headrace.server.reading import Known, SinceTime
from headrace.wire.filters import EVERYTHING, EntryFilter, Shard


def test_defaults_of_a_poll() -> None:
    query = parse_query(b"listener-id=l", PollQuery)
    assert (query.listener_id, query.start(), query.timeout_ms, query.limit) == ("l", 0, 30_000, 1_000)
    assert query.limit_bytes == 8 << 20
    assert query.wanted() is EVERYTHING


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
        (b"beg-sequence-id=", "beg-sequence-id"),
        (b"beg-sequence-id=1.5", "beg-sequence-id"),
        (b"beg-sequence-id=9223372036854775808", "beg-sequence-id"),
        (b"beg-sequence-id=1&limit=10001", "limit"),
        (b"beg-sequence-id=1&Limit=1", "Limit"),
        (b"beg-sequence-id=1&limit=1&limit=1", "limit"),
        (b"beg-sequence-id=1&&", None),
        (b"beg-sequence-id=%zz", "beg-sequence-id"),
        (b"beg-sequence-id=%ff", None),
    ],
)
def test_query_refusals_name_the_parameter(query: bytes, member: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_query(query, RangeQuery)
    assert caught.value.members.get("member") == member


def test_query_string_has_a_longest() -> None:
    query = b"beg-sequence-id=1&key="
    assert parse_query(query + b"k" * (QUERY_BYTES_MAX - len(query)), RangeQuery).beg_sequence_id == 1
    with pytest.raises(UriTooLong):
        parse_query(query + b"k" * (QUERY_BYTES_MAX - len(query) + 1), RangeQuery)


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


@pytest.mark.parametrize(
    ("query", "start"),
    [
        (b"beg-sequence-id=7", 6),
        (b"after-time=1000", SinceTime(1000)),
        (b"after-time=1970-01-01T01:00:01%2B01:00", SinceTime(1000)),
    ],
)
def test_a_range_begins_at_a_place_or_at_a_time(query: bytes, start: int | SinceTime) -> None:
    assert parse_query(query, RangeQuery).start() == start


@pytest.mark.parametrize(
    ("query", "member"),
    [
        (b"", "beg-sequence-id"),
        (b"beg-sequence-id=1&after-time=1000", "after-time"),
        (b"after-time=yesterday", "after-time"),
        (b"after-time=1970-01-01T01:00:01+01:00", "after-time"),
        (b"after-time=", "after-time"),
        (b"beg-sequence-id=1&changed=a,,b", "changed"),
        (b"beg-sequence-id=1&shard=0/8", "shard"),
        (b"beg-sequence-id=1&limit-bytes=0", "limit-bytes"),
    ],
)
def test_a_start_or_filter_that_can_t_be_read_is_named(query: bytes, member: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        _ = (parsed := parse_query(query, RangeQuery)).start(), parsed.wanted()
    assert caught.value.members["member"] == member


def test_filters_are_read_together() -> None:
    query = parse_query(b"listener-id=l&changed=nics,alias&key=k&shard=2/8", PollQuery)
    assert query.wanted() == EntryFilter(frozenset({"nics", "alias"}), b"k", Shard(2, 8))


def _stream(query: str, **headers: str) -> tuple[StreamQuery, StreamHeaders]:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return parse_query(f"listener-id=l{query}".encode(), StreamQuery), parse_headers(
        Headers(given), StreamHeaders
    )


def test_the_last_event_wins_over_the_address_that_a_browser_repeats() -> None:
    query, headers = _stream("&after-time=1000", last_event_id="12")
    assert query.start(headers) == 12
    query, headers = _stream("&after-sequence-id=3", last_event_id="")
    assert query.start(headers) == 3
    query, headers = _stream("")
    assert query.start(headers) == 0


@pytest.mark.parametrize("text", ["-1", "x", "1.5", "\u0661", str(1 << 63)])
def test_a_last_event_that_is_no_sequence_id_is_refused(text: str) -> None:
    query, headers = _stream("")
    headers.last_event_id = text
    with pytest.raises(InvalidRequest, match="Last-Event-ID"):
        query.start(headers)


def test_the_incarnation_comes_by_header_or_address() -> None:
    query, headers = _stream("&incarnation=a", headrace_lsn="1.2.3")
    assert query.known(headers) == Known("a", Lsn.parse("1.2.3"))
    query, headers = _stream("&incarnation=a", headrace_incarnation="a")
    assert query.known(headers) == Known("a")
    query, headers = _stream("&incarnation=a", headrace_incarnation="b")
    with pytest.raises(InvalidRequest, match="incarnation"):
        query.known(headers)
