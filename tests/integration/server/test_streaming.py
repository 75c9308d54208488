"""A feed as Server-Sent Events from a real server, read as a browser reads it."""

from __future__ import annotations

import json
import threading

import pytest

from tests.events import ids, streaming
from tests.servers import Feed, changes, code_of


def _post(feed: Feed, count: int) -> None:
    for number in range(count):
        assert feed.post({"changes": changes(number)}).status_code == 200


def test_the_first_event_tells_incarnation_and_bounds(feed: Feed) -> None:
    _post(feed, 3)
    with streaming(feed, after_sequence_id=1) as stream:
        assert stream.answer.headers["content-type"].startswith("text/event-stream")
        assert stream.answer.headers["cache-control"] == "no-store"
        first = stream.event()
        assert (first.kind, first.last_id) == ("feed", "1"), (
            "a client that is cut off now resumes from where it began"
        )
        assert first.document == {
            "change-feed-id": feed.name,
            "incarnation": feed.read().json()["incarnation"],
            "head-sequence-id": 3,
            "oldest-sequence-id": 1,
        }
        assert stream.retry_ms > 0


def test_entries_are_those_of_a_range_and_come_as_they_are_appended(feed: Feed) -> None:
    _post(feed, 3)
    with streaming(feed) as stream:
        assert stream.event().kind == "feed"
        before = stream.events(3)
        feed.post({"changes": changes(4)}, {"changes": changes(5), "op": "delete"})
        found = before + stream.events(2)
    assert {event.kind for event in found} == {"change"}
    assert ids(found) == [1, 2, 3, 4, 5]
    assert [event.document for event in found] == feed.entries()


def test_line_ends_in_what_the_producer_sent_tear_no_event(feed: Feed) -> None:
    text = b'{"a":\r\n1,\r"b":\n\n "x\\r\\n",\n"c":\t"\xe2\x80\xa8"}'
    feed.post_raw(b'{"agent-id":"agent-1","changes":' + text + b"}")
    with streaming(feed) as stream:
        stream.event()
        (event,) = stream.events(1)
    assert event.document["changes"] == json.loads(text)


def test_a_stream_is_resumed_from_its_last_event(feed: Feed) -> None:
    _post(feed, 5)
    with streaming(feed, after_sequence_id=1) as stream:
        stream.event()
        assert ids(stream.events(2)) == [2, 3]
        last = stream.last_id
    with streaming(feed, after_sequence_id=1, headers={"Last-Event-ID": last}) as stream:
        assert stream.event().last_id == "3"
        assert ids(stream.events(2)) == [4, 5]


def test_what_a_filter_skips_moves_the_place_and_dispatches_nothing(feed: Feed) -> None:
    _post(feed, 5)
    with streaming(feed, key="object-1") as stream:
        assert stream.event().kind == "feed"
        assert ids(stream.until_id(5)) == [2]
        feed.post({"changes": changes(7)})
        assert stream.until_id(6) == []
        feed.post({"changes": changes(1)})
        assert ids(stream.until_id(7)) == [7]


@pytest.mark.parametrize(
    ("query", "headers", "status", "code"),
    [
        ({"listener-id": "nobody"}, {}, 409, "not-registered"),
        ({"after-sequence-id": 9}, {}, 409, "beyond-head"),
        ({}, {"Last-Event-ID": "9"}, 409, "beyond-head"),
        ({}, {"Last-Event-ID": "-"}, 400, "invalid-request"),
        ({"incarnation": "another"}, {}, 409, "feed-recreated"),
        ({}, {"Headrace-Incarnation": "another"}, 409, "feed-recreated"),
        ({"after-sequence-id": 1}, {"Headrace-Lsn": "1.1.1"}, 409, "feed-recreated"),
        ({"after-time": "1000"}, {"Headrace-Lsn": "1.1.1"}, 400, "invalid-request"),
        ({"after-time": "1000", "after-sequence-id": 0}, {}, 400, "invalid-request"),
        ({"shard": "9/8"}, {}, 400, "invalid-request"),
        ({"limit": 1}, {}, 400, "invalid-request"),
    ],
)
def test_a_stream_that_can_t_begin_is_refused_as_a_poll_is(
    feed: Feed, query: dict[str, str], headers: dict[str, str], status: int, code: str
) -> None:
    _post(feed, 1)
    answer = feed.server.http.get(
        f"{feed.path}/stream", params={"listener-id": "listener-1", **query}, headers=headers
    )
    assert (answer.status_code, code_of(answer)) == (status, code)


def test_many_streams_follow_one_feed(feed: Feed) -> None:
    heard: dict[int, list[int]] = {}

    def follow(number: int) -> None:
        with streaming(feed, after_sequence_id=0) as stream:
            stream.event()
            begun.release()
            heard[number] = ids(stream.events(20))

    begun = threading.Semaphore(0)
    threads = [threading.Thread(target=follow, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert begun.acquire(timeout=60)
    _post(feed, 20)
    for thread in threads:
        thread.join(60)
    assert heard == {number: list(range(1, 21)) for number in range(8)}
