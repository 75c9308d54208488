"""RFD 5, "Failure scenarios": entries that come twice to a listener, and twice to its consumer."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.scale import scaled, sized
from tests.scenarios.listeners import ListenProcess, content, post
from tests.scenarios.watched import WatchedProxy
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

CONSUMER = """
import asyncio, json, os, signal, sqlite3, sys
from headrace.listener import Listener, ListenerSettings, Seen, SqliteBookmarks

url, feed, folder, fatal = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
steps = 0

def step():
    global steps
    steps += 1
    if steps == fatal:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    app = sqlite3.connect(f"{folder}/app.db", isolation_level=None)
    app.execute("CREATE TABLE IF NOT EXISTS effect (number INTEGER, content TEXT)")
    app.execute("CREATE TABLE IF NOT EXISTS seen (id INTEGER PRIMARY KEY, kept BLOB)")
    (kept,) = app.execute("SELECT max(kept) FROM seen").fetchone()
    seen = Seen.decode(kept) if kept else Seen()
    bookmarks = SqliteBookmarks(f"{folder}/bookmark")
    settings = ListenerSettings(entries_max=5, bookmark_changes_max=1, drain=True)
    async with Listener(url, feed, "consumer", bookmarks, settings=settings) as listener:
        async for change in listener:
            with open(f"{folder}/delivered", "a") as delivered:
                delivered.write(f"{change.sequence_id}\\n")
            step()
            if not seen.is_new(change):
                continue
            app.execute("BEGIN IMMEDIATE")
            app.execute("INSERT INTO effect VALUES (?, ?)", (change.sequence_id, change.line().decode()))
            step()
            seen.note(change)
            app.execute("INSERT OR REPLACE INTO seen VALUES (1, ?)", (seen.encode(),))
            step()
            app.execute("COMMIT")
            step()
    bookmarks.close()

asyncio.run(main())
"""
"""It keeps :class:`headrace.listener.Seen` with its effects; its bookmark is in another file, and moves later."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    made = Feed(server, "vmapi::vm")
    assert made.register().status_code == 200
    return made


@pytest.mark.parametrize("first", ["poll", "range"])
def test_listener_receives_a_duplicate_entry_from_the_api_and_hands_it_on_once(
    feed: Feed, tmp_path: Path, first: str
) -> None:
    """ "A listener-agent receives a duplicate entry from sdc-changefeed API": the long poll and the range that was asked for
    beside it bring the same entries, the one or the other first.
    """
    at_head = f"GET {feed.path}/poll?listener-id=tcns&after-sequence-id="
    with (
        WatchedProxy(int(feed.server.address.rpartition(":")[2])) as proxy,
        ListenProcess(tmp_path / "listener", feed.name, f"http://127.0.0.1:{proxy.port}") as listener,
    ):
        wait_until(lambda: proxy.seen(f"{at_head}0&"), what="the listener's first long poll")
        proxy.cut()
        post(feed, 1, 1_200)
        let_range_go = proxy.hold(f"GET {feed.path}/entries?beg-sequence-id=1001&", answers=False)
        let_poll_go = proxy.hold(f"{at_head}1200&", answers=True)
        proxy.resume()
        wait_until(lambda: proxy.seen(f"{at_head}1200&"), what="the long poll beside the range")
        (poll,) = proxy.seen(f"{at_head}1200&")
        post(feed, 1_201, 1_230)
        wait_until(lambda: poll.whole, what="its answer")
        if first == "poll":
            let_poll_go()
            wait_until(lambda: proxy.seen(f"{at_head}1230&"), what="the long poll behind what it brought")
            let_range_go()
        else:
            let_range_go()
            wait_until(lambda: listener.last() == 1_230, what="what the range brings")
            let_poll_go()
        post(feed, 1_231, 1_240)
        wait_until(lambda: listener.last() == 1_240, what="the listener")
        came = Counter(number for one in proxy.seen(f"GET {feed.path}/") for number in one.ids())
        assert {number for number, times in came.items() if times == 2} == set(range(1_201, 1_231))
        assert listener.lines() == content(feed)


@pytest.mark.parametrize("answer_arrives", [True, False], ids=["answer arrives", "answer is lost"])
def test_listener_of_a_server_that_is_killed_after_it_answered_gets_each_entry_once(
    feed: Feed, tmp_path: Path, *, answer_arrives: bool
) -> None:
    """ "A listener-agent receives a duplicate entry from sdc-changefeed API": a server that is killed behind its answer
    knows no position of the listener; the listener's bookmark decides what comes again.
    """
    post(feed, 1, 20)
    polls = f"GET {feed.path}/poll?listener-id=tcns&after-sequence-id=20&"
    with (
        WatchedProxy(int(feed.server.address.rpartition(":")[2])) as proxy,
        ListenProcess(tmp_path / "listener", feed.name, f"http://127.0.0.1:{proxy.port}") as listener,
    ):
        wait_until(lambda: listener.last() == 20, what="the listener at the head")
        wait_until(lambda: proxy.seen(polls), what="its long poll")
        (poll,) = proxy.seen(polls)
        release = proxy.hold(polls, answers=True)
        post(feed, 21, 40)
        wait_until(lambda: poll.ids() == list(range(21, 41)), what="the server's answer")
        assert listener.last() == 20
        feed.server.kill()
        if not answer_arrives:
            proxy.reset()
        release()
        if answer_arrives:
            wait_until(lambda: listener.last() == 40, what="the answer of the server that is dead")
        feed.server.start()
        post(feed, 41, 60)
        wait_until(lambda: listener.last() == 60, what="what comes later")
        came = Counter(number for one in proxy.seen(f"GET {feed.path}/") for number in one.ids())
        assert {came[number] for number in range(21, 41)} == {1 if answer_arrives else 2}
        assert listener.lines() == content(feed)


def test_duplicates_at_the_listener_are_left_up_to_the_consumer_which_is_killed_at_every_step(
    feed: Feed, tmp_path: Path
) -> None:
    """ "The handling of duplicate events at the listener-agent is a correctness issue that is left up to the consumer":
    with Seen a consumer that dies between its effect and the bookmark has each effect once.
    """
    steps = scaled(sized(5, soak=8))  # a change takes four: in front of, between and behind its statements
    post(feed, 1, 40)
    for fatal in [*range(1, steps + 1), 0]:
        post(feed, 41, 43)
        words = [sys.executable, "-c", CONSUMER, feed.server.url, feed.name, str(tmp_path), str(fatal)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == (-signal.SIGKILL if fatal else 0), done.stderr
    delivered = Counter(map(int, (tmp_path / "delivered").read_text().split()))
    assert max(delivered.values()) > 1, "nothing came twice: this proved nothing"
    with closing(sqlite3.connect(tmp_path / "app.db")) as app:
        effects = app.execute("SELECT number, content FROM effect ORDER BY rowid").fetchall()
    assert [number for number, _ in effects] == sorted(delivered)
    assert [json.loads(line) for _, line in effects] == content(feed)
