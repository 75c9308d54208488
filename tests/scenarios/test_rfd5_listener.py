"""RFD 5, "Failure scenarios", the bullets that concern listeners: real processes, and connections that are really cut.

Each test is named after the RFD's sentence, quotes it, and ends with the whole content delivered against the feed's.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.scale import SEED, scaled, sized
from tests.scenarios.listeners import ListenProcess, content, post, told
from tests.scenarios.watched import WatchedProxy
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

PAGE = 1_000
"""So many entries are in one answer to ``headrace listen``."""


@contextmanager
def watched(server: ServerProcess) -> Iterator[WatchedProxy]:
    """A proxy before ``server``."""
    with WatchedProxy(int(server.address.rpartition(":")[2])) as proxy:
        yield proxy


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    made = Feed(server, "vmapi::vm")
    assert made.register().status_code == 200
    return made


def listener_of(feed: Feed, folder: Path, proxy: WatchedProxy, *words: str) -> ListenProcess:
    return ListenProcess(folder / "listener", feed.name, f"http://127.0.0.1:{proxy.port}", *words)


def wait_for(listener: ListenProcess, last: int) -> None:
    wait_until(lambda: listener.last() >= last, 120, what=f"entry {last} at the listener")


def wait_at_rest(feed: Feed, proxy: WatchedProxy, last: int) -> None:
    """Wait until the listener has stored its bookmark, told the server so, and polls for more."""
    wait_until(lambda: told(feed) == last, what=f"the listener at rest at {last}")
    wait_until(lambda: all(one.ended for one in proxy.seen("PUT /")), what="its report to be answered")
    wait_until(lambda: proxy.seen(polls(feed, last)), what="its long poll")


def ranges(feed: Feed, first: int) -> str:
    """How the request line of the range from ``first`` begins."""
    return f"GET {feed.path}/entries?beg-sequence-id={first}&"


def polls(feed: Feed, after: int | None = None) -> str:
    """How the request line of a long poll begins; of the one after this entry."""
    named = "" if after is None else f"listener-id=tcns&after-sequence-id={after}&"
    return f"GET {feed.path}/poll?{named}"


def test_listener_within_the_stored_range_backs_off_then_buffers_while_it_requests_what_it_missed(
    feed: Feed, tmp_path: Path
) -> None:
    """ "listener-agents should attempt to reconnect to sdc-changefeed API with an exponential back off … it will request
    all entries after its last seen sequence-id up to the current sequence-id from sdc-changefeed API while buffering any
    entries received from long polling."
    """
    post(feed, 1, 50)
    with watched(feed.server) as proxy, listener_of(feed, tmp_path, proxy) as listener:
        wait_at_rest(feed, proxy, 50)
        proxy.turn_away()
        post(feed, 51, 50 + PAGE + 500)
        wait_until(lambda: proxy.turned_away >= 5, what="attempts to reconnect")
        attempts = proxy.turned_away
        wait_until(lambda: len(listener.waits()) > attempts, what="the listener to tell of its waits")
        assert proxy.turned_away <= len(listener.waits()), "one attempt behind each wait, and no other"
        for failures, seconds in enumerate(listener.waits()):
            ceiling = min(15, 0.1 * 2**failures)
            assert ceiling / 2 - 0.01 <= seconds <= ceiling + 0.01, listener.waits()
        second = 51 + PAGE
        head = 50 + PAGE + 500
        release = proxy.hold(ranges(feed, second), answers=True)
        proxy.let_in()
        wait_until(lambda: proxy.seen(ranges(feed, second)), what="the second range of what is missing")
        wait_until(lambda: proxy.seen(polls(feed, head)), what="a long poll at the head beside it")
        post(feed, head + 1, head + 20)
        wait_until(lambda: proxy.seen(polls(feed, head + 20)), what="the long poll behind what was buffered")
        assert listener.last() == second - 1, "nothing passes what is missing"
        release()
        wait_for(listener, head + 20)
        (held,) = proxy.seen(ranges(feed, second))
        assert held.ids() == list(range(second, head + 1))
        buffered = [poll for poll in proxy.seen(polls(feed)) if poll.overlaps(held)]
        assert [number for poll in buffered for number in poll.ids()] == list(range(head + 1, head + 21))
        assert not proxy.seen(ranges(feed, head + 1)), "what was buffered is not asked for again"
        post(feed, head + 21, head + 30)
        wait_for(listener, head + 30)
        assert listener.lines() == content(feed)


def test_listener_within_the_stored_range_durably_stores_its_last_seen_sequence_id(
    feed: Feed, tmp_path: Path
) -> None:
    """ "Additionally the agent is required to durably store its last seen sequence-id. Storing the last seen sequence-id
    allows the agent to pick up where it left off."
    """
    post(feed, 1, 50)
    with watched(feed.server) as proxy, listener_of(feed, tmp_path, proxy) as listener:
        wait_at_rest(feed, proxy, 50)
        proxy.cut()
        listener.kill()
        post(feed, 51, 1_600)
        listener.start()
        wait_until(lambda: len(listener.waits()) >= 2, what="a listener that starts while it is cut off")
        before = len(proxy.exchanges)
        proxy.resume()
        wait_for(listener, 1_600)
        first = next(one for one in proxy.exchanges[before:] if "beg-sequence-id" in one.request)
        assert first.request.startswith(ranges(feed, 51)), "nothing that it had is asked for again"
        assert [len(life) for life in listener.lives()] == [50, 1_550]
        assert listener.lines() == content(feed)


def test_listener_within_the_stored_range_of_a_server_that_stops_and_goes_on(
    feed: Feed, tmp_path: Path
) -> None:
    """ "Upon reconnecting to sdc-changefeed the agent will get the latest sequence-id that sdc-changefeed is aware of":
    here the server is stopped (SIGSTOP) with the long poll open, takes connections, and says nothing.
    """
    post(feed, 1, 50)
    with watched(feed.server) as proxy, listener_of(feed, tmp_path, proxy) as listener:
        wait_at_rest(feed, proxy, 50)
        appends = threading.Thread(target=post, args=(feed, 51, 1_600))
        os.kill(feed.server.pid, signal.SIGSTOP)
        try:
            appends.start()
            before = len(proxy.exchanges)
            proxy.reset()
            wait_until(lambda: len(proxy.exchanges) > before, what="the listener to connect and ask again")
            assert proxy.exchanges[-1].answer == b""
            assert listener.last() == 50
        finally:
            os.kill(feed.server.pid, signal.SIGCONT)
        appends.join()
        wait_for(listener, 1_600)
        assert listener.lines() == content(feed)


@pytest.mark.parametrize("number", range(scaled(1)))
@pytest.mark.parametrize("killed", [False, True], ids=["listener lives", "listener is killed"])
def test_listener_within_the_stored_range_through_any_order_of_cuts_and_kills(
    feed: Feed, tmp_path: Path, number: int, *, killed: bool
) -> None:
    """ "A listener-agent is partitioned from sdc-changefeed API and within the stored sequence-id range", again and again:
    resets, cuts, answers that are lost, SIGKILL of server and listener, SIGSTOP of the server. Only a listener that is
    killed may get entries again, and then only from its bookmark on.
    """
    faults = ["reset", "cut", "lose an answer", "kill server", "stop server"] + ["kill listener"] * 2 * killed
    seed = SEED + number
    rng = random.Random(seed)
    server, total = feed.server, 0
    with watched(server) as proxy, listener_of(feed, tmp_path, proxy) as listener:
        done: list[str] = []
        for _ in range(sized(8, soak=12)):
            post(feed, total + 1, total + 150)
            total += 150
            done.append(rng.choice(faults))
            disturb(done[-1], server, proxy, listener)
            if rng.random() < 0.5:
                wait_for(listener, total - 100)
        wait_for(listener, total)
        feed_content = content(feed)
        reached = 0
        for life in listener.lives():
            if not life:
                continue
            first = life[0]["sequence-id"]
            assert first <= reached + 1, f"seed {seed}: a gap before {first}, after {done}"
            assert life == feed_content[first - 1 : first - 1 + len(life)], f"seed {seed}: {done}"
            reached = max(reached, life[-1]["sequence-id"])
        assert reached == len(feed_content) == total
        if not killed:
            assert listener.lines() == feed_content, f"seed {seed}: {done}"


def disturb(fault: str, server: ServerProcess, proxy: WatchedProxy, listener: ListenProcess) -> None:
    """Do one bad thing, and undo it where it doesn't undo itself."""
    match fault:
        case "reset":
            proxy.reset()
        case "cut":
            proxy.cut()
            proxy.resume()
        case "lose an answer":
            proxy.cut_at(b"GET /feeds/", delivered=True)
            proxy.reset()
            wait_until(lambda: proxy.sprung, what="the listener's next question")
            proxy.resume()
        case "kill server":
            server.restart()
        case "kill listener":
            listener.kill()
            listener.start()
        case "stop server":
            before = proxy.accepted
            os.kill(server.pid, signal.SIGSTOP)
            proxy.reset()
            try:
                wait_until(lambda: proxy.accepted > before, what="the listener to connect again")
            finally:
                os.kill(server.pid, signal.SIGCONT)
