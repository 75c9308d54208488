"""RFD 5, "Failure scenarios": a listener that is cut off for longer than the API stores entries.

The same with tokens, tickets and TLS is in ``test_snapshot_over_the_api.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx

from headrace.client.tls import NO_TLS
from tests.agents import AgentProcess
from tests.ports import free_port
from tests.scenarios.listeners import ListenProcess, content
from tests.scenarios.shop import Shop, fold
from tests.scenarios.watched import Exchange, WatchedProxy
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

FEED = "shop"
TOKEN = "a-token-of-the-test"
SHORT = ["--retention", "1s", "--retention-every", "100ms"]


def test_listener_outside_of_the_stored_range_fetches_a_snapshot_then_applies_buffered_entries_and_polls(
    tmp_path: Path,
) -> None:
    """ "the listener-agent will need to fetch the current state of the world from the source system … Once the
    listener-agent has caught up with the source system it can begin to apply any buffered entries and resume long polling."
    """
    shop, port = Shop(tmp_path / "app.db", FEED), free_port()
    (tmp_path / "token").write_text(TOKEN)
    with (
        serving(tmp_path / "server", args=["--segment-size", "4k"]) as server,
        WatchedProxy(int(server.address.rpartition(":")[2])) as to_api,
        WatchedProxy(port) as to_source,
        AgentProcess(
            tmp_path / "agent", server.url, shop.dsn, FEED,
            snapshot_listen=f"127.0.0.1:{port}",
            snapshot_url=f"http://127.0.0.1:{to_source.port}/snapshot",
            snapshot_dir=str(tmp_path / "spool"),
            snapshot_token_file=str(tmp_path / "token"),
        ),
    ):  # fmt: skip
        feed = Feed(server, FEED)
        shop.write(30)
        wait_until(lambda: shop.backlog() == 0, 60, what="the agent to post")
        api = f"http://127.0.0.1:{to_api.port}"
        with ListenProcess(tmp_path / "listener", FEED, api, "--snapshot", "needed") as listener:
            wait_for(listener, feed, shop)
            seen = listener.last()
            to_api.cut()
            drop_what_follows(seen, feed, server, shop)
            assert not to_source.exchanges, "nobody needed a snapshot yet"
            let_snapshot_go = to_source.hold("GET /snapshot?", answers=True)
            to_api.resume()
            wait_until(lambda: to_source.seen("GET /snapshot?"), 60, what="the question for a snapshot")
            stands_for = wait_until(lambda: snapshot_place(port), 60, what="a whole snapshot")
            assert stands_for == head_of(feed)
            wait_until(lambda: to_api.seen(poll_after(feed, stands_for)), what="the long poll beside it")
            meanwhile = write_and_poll(shop, feed, to_api)
            let_range_go = to_api.hold(range_from(feed, stands_for + 1), answers=True)
            let_snapshot_go()
            ranges = wait_until(
                lambda: to_api.seen(range_from(feed, stands_for + 1)), 60, what="what is newer"
            )
            wait_until(lambda: ranges[0].whole, what="the answer to that")
            last = write_and_poll(shop, feed, to_api)
            let_range_go()
            wait_for(listener, feed, shop)
            check_lines(listener.lines(), seen, stands_for, feed)
            polls = to_api.seen(f"GET {feed.path}/poll?")
            while_fetched = [poll for poll in polls for one in to_source.seen("GET /") if poll.overlaps(one)]
            assert ids(while_fetched) == set(range(stands_for + 1, meanwhile + 1))
            while_behind = [poll for poll in polls if poll.overlaps(ranges[0])]
            assert ids(while_behind) == set(range(meanwhile + 1, last + 1))
            assert ids(ranges) == set(range(stands_for + 1, meanwhile + 1)), "the rest was buffered"
            assert not to_api.seen(range_from(feed, meanwhile + 1)), (
                "what was buffered is not asked for again"
            )
            shop.write(5)
            wait_for(listener, feed, shop)
            check_lines(listener.lines(), seen, stands_for, feed)
            assert not to_api.seen(range_from(feed, last + 1)), "it long polls again"


def snapshot_place(port: int) -> int:
    """What the agent's newest snapshot stands for; 0 while it is being made."""
    query = {"change-feed-id": FEED, "listener-id": "test"}
    answer = httpx.get(
        f"http://127.0.0.1:{port}/snapshot",
        params=query,
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=60,
        trust_env=False,
        verify=NO_TLS,
    )
    return int(answer.headers["headrace-sequence-id"]) if answer.status_code == 200 else 0


def write_and_poll(shop: Shop, feed: Feed, to_api: WatchedProxy) -> int:
    """Write, and wait until the listener's long poll has brought all of that; returns the head."""
    shop.write(5)
    wait_until(lambda: shop.backlog() == 0, 60, what="the agent to post")
    head = head_of(feed)
    wait_until(lambda: to_api.seen(poll_after(feed, head)), what="the long poll behind what was written")
    return head


def wait_for(listener: ListenProcess, feed: Feed, shop: Shop) -> None:
    """Wait until the listener is at the head, and has what the application has."""
    wait_until(lambda: shop.backlog() == 0, 60, what="the agent to post")
    wait_until(
        lambda: listener.last() == head_of(feed) and fold(listener.lines()) == shop.truth(),
        60,
        what="the listener at the head",
    )


def drop_what_follows(seen: int, feed: Feed, server: ServerProcess, shop: Shop) -> None:
    """Write until retention has dropped entries behind ``seen``; then it keeps what comes."""
    server.stop()
    server.args += SHORT
    server.start()

    def dropped() -> bool:
        shop.write(20)
        wait_until(lambda: shop.backlog() == 0, 60, what="the agent to post")
        return bool(server.http.get(feed.path).json()["oldest-sequence-id"] > seen + 1)

    wait_until(dropped, 60, what="retention to drop what comes next")
    server.stop()
    server.args = server.args[: -len(SHORT)]
    server.start()


def check_lines(lines: list[dict[str, Any]], seen: int, stands_for: int, feed: Feed) -> None:
    """All that was there, the snapshot, and each entry behind it, once and in order."""
    begins = [index for index, line in enumerate(lines) if line.get("snapshot") == "begin"]
    ends = [index for index, line in enumerate(lines) if line.get("snapshot") == "end"]
    assert len(begins) == len(ends) == 1
    assert [line["sequence-id"] for line in lines[: begins[0]]] == list(range(1, seen + 1))
    assert lines[ends[0]]["sequence-id"] == stands_for
    assert lines[ends[0] + 1 :] == [entry for entry in content(feed) if entry["sequence-id"] > stands_for]


def ids(exchanges: list[Exchange]) -> set[int]:
    """The sequence ids that these brought."""
    return {number for one in exchanges for number in one.ids()}


def head_of(feed: Feed) -> int:
    return int(feed.server.http.get(feed.path).json()["head-sequence-id"])


def poll_after(feed: Feed, number: int) -> str:
    """How the request line of the long poll after ``number`` begins."""
    return f"GET {feed.path}/poll?listener-id=tcns&after-sequence-id={number}&"


def range_from(feed: Feed, number: int) -> str:
    """How the request line of the range from ``number`` begins."""
    return f"GET {feed.path}/entries?beg-sequence-id={number}&"
