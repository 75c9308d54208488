"""One task's append, without Spark: whatever comes twice, late, or from somebody else, the feed has each batch once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    BatchChanged,
    BatchSplit,
    BatchStale,
    FeedOwned,
    FeedRecreated,
    FeedUnfit,
    HeadraceError,
    ServerUnreachable,
    SinkTaken,
)
from headrace.pipeline.sink import appending, rows
from headrace.pipeline.sink.options import OrderKey, SinkOptions, SinkTarget
from headrace.pipeline.sink.position import Settlement, SinkPosition
from tests.proxy import Proxy
from tests.servers import Feed, serving
from tests.waiting import wait_until

UNSETTLED = Settlement()


def target(feed: Feed, **more: Any) -> SinkTarget:
    given: dict[str, Any] = {
        "server": feed.server.url,
        "grpc": feed.server.grpc_address,
        "agent_id": "job",
        "retry_s": 30.0,
    }
    return SinkTarget(**(given | more))


def rows_of(feed: Feed, keys: Sequence[str]) -> rows.FeedRows:
    table = pa.table({"key": list(keys), "value": ["{}"] * len(keys), "n": range(len(keys))})
    options = SinkOptions(target=target(feed), order=(OrderKey("n"),), feed=feed.name)
    return rows.feed_rows(table, options, 0)[0]


def put(
    feed: Feed,
    batch: int,
    keys: Sequence[str],
    *,
    query: str = "q",
    attempt: str = "",
    task: int = 0,
    settled: Settlement = UNSETTLED,
    **more: Any,
) -> appending.Put:
    """One task's rows of one batch; a new attempt unless one is named."""
    own = SinkPosition(query=query, batch=batch, attempt=attempt or str(uuid.uuid4()), task=task)
    return appending.put_rows(target(feed, **more), settled, own, [rows_of(feed, keys)])[0]


def keys_in(feed: Feed) -> str:
    return "".join(entry["key"] for entry in feed.entries())


def test_a_batch_that_comes_again_changes_nothing(feed: Feed) -> None:
    assert put(feed, 0, "ab") == appending.Put(feed.name, 2, 1, written=True)
    assert put(feed, 0, "ab") == appending.Put(feed.name, 2, 1, written=False)
    assert put(feed, 3, "c").first_sequence_id == 3  # batches without rows leave no trace
    assert put(feed, 3, "c").written is False
    assert keys_in(feed) == "abc"


@pytest.mark.parametrize("again", ["a", "abc", "ax"])
def test_other_rows_under_the_same_number_are_refused(feed: Feed, again: str) -> None:
    put(feed, 0, "ab")
    with pytest.raises(
        BatchChanged, match=f"the feed {feed.name} holds batch 0 of the query q as the entries 1 to 2"
    ):
        put(feed, 0, again)
    assert keys_in(feed) == "ab"


def test_a_task_that_was_given_up_long_ago_writes_nothing(feed: Feed) -> None:
    put(feed, 0, "ab", attempt="zombie")
    put(feed, 1, "c")
    with pytest.raises(BatchStale, match="they are batch 1 of the query q, this is batch 0"):
        put(feed, 0, "ab", attempt="zombie")
    assert keys_in(feed) == "abc"


@pytest.mark.parametrize("others", ["cd", "ab"], ids=["other rows", "equal rows"])
def test_a_second_task_with_rows_is_refused(feed: Feed, others: str) -> None:
    put(feed, 0, "ab", attempt="one", task=1)
    with pytest.raises(
        BatchSplit, match=r"entries 1 to 2: they are the rows of task 1 of batch 0; task 2 has rows"
    ):
        put(feed, 0, others, attempt="one", task=2)
    assert keys_in(feed) == "ab"


def test_attempts_that_race_write_once_and_tasks_that_race_are_told(feed: Feed) -> None:
    put(feed, 0, "z")

    def attempt(task: int) -> appending.Put | HeadraceError:
        try:
            return put(feed, 1, "abc", attempt="one", task=task)
        except HeadraceError as error:
            return error

    with ThreadPoolExecutor(6) as tasks:
        same = list(tasks.map(attempt, [3] * 6))
    assert [found for found in same if isinstance(found, HeadraceError)] == []
    assert keys_in(feed) == "zabc"

    def other(task: int) -> str:
        try:
            return "written" if put(feed, 2, "de", attempt="two", task=task).written else "stood there"
        except BatchSplit:
            return "split"

    with ThreadPoolExecutor(6) as tasks:
        outcomes = list(tasks.map(other, range(6)))
    assert sorted(outcomes) == ["split"] * 5 + ["written"]
    assert keys_in(feed) == "zabcde"


def test_an_operator_settles_one_batch(feed: Feed) -> None:
    put(feed, 0, "ab")
    assert put(feed, 0, "abc", settled=Settlement(keep_batch=0)) == appending.Put(
        feed.name, 3, 1, written=False
    )
    assert keys_in(feed) == "ab"
    assert put(feed, 0, "abc", settled=Settlement(repeat_batch=0)).first_sequence_id == 3
    assert put(feed, 0, "abc").written is False
    assert keys_in(feed) == "ababc"


def test_two_queries_with_one_agent_id(feed: Feed) -> None:
    put(feed, 4, "a", query="older")
    with pytest.raises(SinkTaken, match=r"batch 4 of the query older, this is the query newer"):
        put(feed, 0, "b", query="newer")
    epoch = feed.server.http.get(f"{feed.path}/tail").json()["epoch"]
    put(feed, 0, "b", query="newer", settled=Settlement(replaces="older"))
    # Its registration has fenced whatever the older one still had under way.
    late = feed.post({"agent-id": "job", "changes": {}}, headers={"Headrace-Epoch": str(epoch)})
    assert late.json()["code"] == "fenced"
    for batch in (4, 5):
        with pytest.raises(SinkTaken, match=r"batch 0 of the query newer, this is the query older"):
            put(feed, batch, "c", query="older")
    put(feed, 1, "d", query="newer", settled=Settlement(replaces="older"))
    assert keys_in(feed) == "abd"


def test_other_producers_of_a_shared_feed_come_between(feed: Feed) -> None:
    put(feed, 0, "ab", shared=True)
    assert feed.register("agent-1", shared=True).status_code == 200
    assert feed.post({"key": "x", "changes": {}}).status_code == 200
    assert put(feed, 0, "ab", shared=True).written is False
    assert put(feed, 1, "cd", shared=True).first_sequence_id == 4

    def many(name: str) -> None:
        for batch in range(5):
            for _ in range(2):
                put(feed, batch, f"{name}{name}", shared=True, agent_id=f"job-{name}")

    with ThreadPoolExecutor(3) as jobs:
        list(jobs.map(many, "efg"))
    found = keys_in(feed)
    assert found[:5] == "abxcd"
    assert sorted(found[5::2]) == sorted(found[6::2]) == ["e"] * 5 + ["f"] * 5 + ["g"] * 5
    assert found[5::2] == found[6::2]


def test_the_largest_batches_are_taken(feed: Feed) -> None:
    """What the sink lets through is what the server takes: by number, and by bytes."""
    options = SinkOptions(target=target(feed), order=(OrderKey("n"),), feed=feed.name)
    size = rows.APPEND_BYTES_MAX // 16 - 64
    first = 1
    for batch, (count, value) in enumerate(((rows.ENTRIES_MAX, b"{}"), (16, bytes(size)))):
        keys = [f"k{n}" for n in range(count)]
        table = pa.table({"key": keys, "value": [value] * count, "n": range(count)})
        own = SinkPosition(query="q", batch=batch, attempt="one", task=0)
        done = appending.put_rows(target(feed), UNSETTLED, own, rows.feed_rows(table, options, batch))
        assert done == [appending.Put(feed.name, count, first, written=True)]
        first += count


def test_what_can_not_be_exact_is_refused(feed: Feed) -> None:
    put(feed, 0, "a")
    with pytest.raises(FeedRecreated, match=f"the feed {feed.name} has the incarnation"):
        put(feed, 1, "b", incarnation=str(uuid.uuid4()))
    with pytest.raises(FeedOwned):
        put(feed, 0, "b", agent_id="somebody-else")
    ignored = feed.server.http.put(f"{feed.path}/settings", json={"expected-offset": "ignored"})
    assert ignored.status_code == 200
    with pytest.raises(FeedUnfit, match="expected-offset: ignored"):
        put(feed, 1, "b")
    assert keys_in(feed) == "a"


def test_an_agent_id_of_another_producer_is_refused(feed: Feed) -> None:
    assert feed.register("job").status_code == 200
    assert feed.post({"agent-id": "job", "key": "a", "changes": {}}).status_code == 200
    with pytest.raises(SinkTaken, match="not made by Spark's sink"):
        put(feed, 0, "b")


@pytest.mark.parametrize("delivered", [True, False], ids=["answer lost", "request lost"])
def test_an_append_without_an_answer_is_there_once(feed: Feed, delivered: bool) -> None:
    put(feed, 0, "ab")
    host, port = feed.server.grpc_address.split(":")
    with Proxy(host, int(port)) as proxy, ThreadPoolExecutor(1) as task:
        proxy.cut_at(b'"batch":1,', delivered=delivered)
        waiting = task.submit(put, feed, 1, "cd", grpc=f"127.0.0.1:{proxy.port}")
        wait_until(lambda: proxy.sprung, what="the append to be sent")
        proxy.resume()
        assert waiting.result(60).first_sequence_id == 3
    assert keys_in(feed) == "abcd"


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with serving(tmp_path, grpc=True) as server, ThreadPoolExecutor(1) as task:
        feed = Feed(server, "f")
        put(feed, 0, "ab")
        server.kill()
        with pytest.raises(ServerUnreachable):
            put(feed, 1, "cd", retry_s=0.1)
        waiting = task.submit(put, feed, 1, "cd")
        server.start()
        assert waiting.result(60).first_sequence_id == 3
        assert keys_in(feed) == "abcd"
