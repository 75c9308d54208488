"""Filters and starts by time over HTTP: what passes, where the position is, what a poll waits for."""

from __future__ import annotations

import asyncio
import datetime
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from headrace.log.files.store import FileStore
from headrace.server.reading import _first_since
from headrace.wire.documents import FRAMES_TYPE, rfc3339
from headrace.wire.frame import Frame
from headrace.wire.segment import FramePlace
from tests.bench import Bench
from tests.events import ids, streaming
from tests.integration.server.folders import SMALL_SEGMENTS, drop_all_but_newest, write_feed
from tests.servers import Feed, changes, code_of, serving
from tests.waiting import wait_until

FAR_MS = 60_000


def _get(feed: Feed, path: str, **given: object) -> httpx.Response:
    params = {name.replace("_", "-"): str(value) for name, value in given.items()}
    return feed.server.http.get(f"{feed.path}/{path}", params=params)


def _ids(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [entry["sequence-id"] for entry in answer.json()["changes-list"]]


def test_the_position_moves_past_what_was_filtered_out(feed: Feed) -> None:
    feed.post(*({"changes": changes(number % 3)} for number in range(9)))
    lsns = [entry["lsn"] for entry in feed.entries()]
    for answer in (
        _get(feed, "entries", beg_sequence_id=1, key="object-1"),
        _get(feed, "poll", listener_id="listener-1", timeout_ms=0, key="object-1"),
    ):
        assert _ids(answer) == [2, 5, 8]
        assert (answer.json()["last-sequence-id"], answer.json()["last-lsn"]) == (9, lsns[8])
    nothing = _get(feed, "entries", beg_sequence_id=1, end_sequence_id=4, key="nobody")
    assert _ids(nothing) == []
    assert nothing.json()["last-sequence-id"] == 4


def test_an_unfiltered_answer_names_its_last_entry_or_the_place_it_began_at(feed: Feed) -> None:
    feed.post({"changes": {}}, {"changes": {}})
    assert feed.read(1).json()["last-sequence-id"] == 2
    empty = feed.poll(after=2).json()
    assert (empty["last-sequence-id"], empty["last-lsn"]) == (2, None)


def test_members_touched_deletes_and_control_entries(feed: Feed) -> None:
    feed.post(
        {"changes": {"nics": [], "ram": 1}},
        {"changes": {"ram": 1}},
        {"changes": {"ram": 2, "alias": "a"}, "changed": ["ram"]},
        {"changes": {"ram": 2, "alias": "b"}, "changed": ["alias"]},
        {"changes": {"ram": 3}, "op": "delete"},
        {"changes": {}, "key": "\x00schema/x", "control": "schema"},
    )
    assert _ids(_get(feed, "entries", beg_sequence_id=1, changed="nics,alias")) == [1, 4, 5, 6]


def test_parts_of_the_keys_are_disjoint_and_together_everything(feed: Feed) -> None:
    feed.post(*({"changes": changes(number)} for number in range(40)))
    parts = [_ids(_get(feed, "entries", beg_sequence_id=1, shard=f"{number}/4")) for number in range(1, 5)]
    assert sorted(one for part in parts for one in part) == list(range(1, 41))
    assert sum(bool(part) for part in parts) > 1


def test_a_cut_never_tears_a_filtered_transaction_needlessly(feed: Feed) -> None:
    for name in "abc":
        feed.post(
            *(
                {"changes": changes(index % 2), "tx": name, "tx-index": index, "tx-last": index == 3}
                for index in range(4)
            )
        )
    answer = _get(feed, "entries", beg_sequence_id=1, key="object-1", limit=3)
    assert _ids(answer) == [2, 4]
    assert answer.json()["last-sequence-id"] == 4
    assert _ids(_get(feed, "entries", beg_sequence_id=1, key="object-1", limit=4)) == [2, 4, 6, 8]


def test_limit_bytes_bounds_the_entries_but_one_always_comes(feed: Feed) -> None:
    for number in range(6):
        feed.post({"changes": {"n": number, "text": "x" * 1_000}})
    assert _ids(_get(feed, "entries", beg_sequence_id=1, limit_bytes=1)) == [1]
    assert _ids(_get(feed, "entries", beg_sequence_id=1, limit_bytes=4_000)) == [1, 2, 3]
    assert _ids(_get(feed, "poll", listener_id="listener-1", limit_bytes=4_000)) == [1, 2, 3]


def test_a_poll_whose_entries_are_all_filtered_out_waits_on_and_answers_its_place(feed: Feed) -> None:
    feed.post({"changes": changes(1)})
    begun = time.monotonic()
    answer = _get(feed, "poll", listener_id="listener-1", timeout_ms=300, key="object-2")
    assert time.monotonic() - begun >= 0.3
    assert _ids(answer) == []
    assert answer.json()["last-sequence-id"] == 1


async def test_a_filtered_poll_is_woken_by_what_passes_alone(feed: Feed) -> None:
    params = {"listener-id": "listener-1", "timeout-ms": str(FAR_MS), "key": "object-2"}
    async with httpx.AsyncClient(base_url=feed.server.url, timeout=70, trust_env=False) as client:
        poll = asyncio.create_task(client.get(f"{feed.path}/poll", params=params))
        for _ in range(3):
            await asyncio.to_thread(feed.post, {"changes": changes(1)})
            await client.get("/healthz")
        assert not poll.done()
        await asyncio.to_thread(feed.post, {"changes": changes(2)})
        answer = await poll
    assert _ids(answer) == [4]


@pytest.mark.parametrize("given", [{"changed": "a"}, {"key": "k"}, {"shard": "1/2"}])
def test_stored_frames_can_t_be_filtered(feed: Feed, given: dict[str, str]) -> None:
    feed.post({"changes": {}})
    answer = feed.server.http.get(
        f"{feed.path}/entries", params={"beg-sequence-id": 1, **given}, headers={"Accept": FRAMES_TYPE}
    )
    assert (answer.status_code, code_of(answer)) == (400, "invalid-request")
    assert answer.json()["member"] == next(iter(given))


def _times(feed: Feed, appends: int) -> list[int]:
    """Append, each in a later millisecond than the one before; returns when each was committed."""
    for number in range(appends):
        feed.post({"changes": changes(number)}, {"changes": changes(number)})
        wait_until(lambda: time.time_ns() // 1_000_000 > _ms(feed.entries()[-1]["committed-at"]))
    return [_ms(entry["committed-at"]) for entry in feed.entries()]


def _ms(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text).timestamp() * 1000)


def test_a_start_by_time_is_the_first_entry_committed_then_or_later(feed: Feed) -> None:
    times = _times(feed, 8)
    for moment in sorted({one + step for one in times for step in (-1, 0, 1)}):
        wanted = [number for number, at in enumerate(times, 1) if at >= moment]
        for text in (moment, rfc3339(moment)):
            answer = _get(feed, "entries", after_time=text)
            assert _ids(answer) == wanted, f"{moment} of {times}"
            assert answer.json()["last-sequence-id"] == 16
        found = _get(feed, "poll", listener_id="listener-1", timeout_ms=0, after_time=moment)
        assert _ids(found) == wanted
    with streaming(feed, after_time=times[9]) as stream:
        assert stream.event().last_id == "8"
        assert ids(stream.events(2)) == [9, 10]


def test_a_start_in_the_future_is_the_head(feed: Feed) -> None:
    feed.post({"changes": {}})
    later = time.time_ns() // 1_000_000 + FAR_MS
    answer = _get(feed, "poll", listener_id="listener-1", timeout_ms=0, after_time=later)
    assert (_ids(answer), answer.json()["last-sequence-id"]) == ([], 1)
    assert _ids(_get(feed, "entries", after_time=later)) == []
    assert _ids(_get(feed, "entries", after_time=1)) == [1], "nothing was dropped before it"


def test_a_start_by_time_on_an_empty_feed_is_its_beginning(feed: Feed) -> None:
    answer = _get(feed, "entries", after_time=1)
    assert (_ids(answer), answer.json()["last-sequence-id"]) == ([], 0)


async def test_a_start_by_time_below_the_retained_range_is_gone(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    await write_feed(data_dir, "test::feed", 30, settings=SMALL_SEGMENTS)
    drop_all_but_newest(data_dir)
    with serving(tmp_path, data_dir=data_dir) as server:
        feed = Feed(server, "test::feed")
        feed.listener()
        oldest = server.http.get(feed.path).json()["oldest-sequence-id"]
        listener = {"listener-id": "listener-1"}
        for path, given in (("entries", {}), ("poll", listener), ("stream", listener)):
            answer = server.http.get(f"{feed.path}/{path}", params={"after-time": "1000", **given})
            assert (answer.status_code, code_of(answer)) == (410, "sequence-not-available")
            assert (answer.json()["oldest"], answer.json()["head"]) == (oldest, 30)
        at_oldest = _ms(feed.entries(oldest)[0]["committed-at"])
        assert _ids(_get(feed, "entries", after_time=at_oldest + FAR_MS)) == []


async def test_few_entries_are_read_to_find_a_time(tmp_path: Path) -> None:
    reads = 0

    class Counting(FileStore):
        def read(self, places: Sequence[FramePlace]) -> Sequence[Frame]:
            nonlocal reads
            reads += 1
            return super().read(places)

    with closing(Counting(tmp_path)) as store:
        bench = Bench(store)
        bench.register("f")
        bench.register("other")
        for number in range(300):
            bench.clock.ms += 1_000
            bench.append("f", f"{number}", f"{number}")
            bench.append("other", "x")
        tail = bench.tail("f")
        begun = bench.clock.wall_ms() - 299_000
        for second in (0, 1, 150, 298, 299):
            for ms, entry in ((begun + second * 1_000, second), (begun + second * 1_000 - 1, second)):
                reads = 0
                assert _first_since(store, tail, ms) == 2 * entry + 1
                assert reads <= 10
