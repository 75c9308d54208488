"""The server is killed again and again under concurrent producers and readers; what they saw must have one order.

Every producer asks for the feed's next place and appends there, so they race; what has no answer is tried again until it has
one. Owned and shared feeds. The history is judged by :mod:`headrace.testing.linearity`.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headrace.testing.linearity import Appending, Reading, check
from tests.scale import scaled
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

PRODUCERS = 4
FEEDS = {"test::owned": False, "test::shared": True}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path) as running:
        yield running


@dataclass
class History:
    """What happened to each feed, as its clients saw it."""

    operations: dict[str, list[Appending | Reading]] = field(
        default_factory=lambda: {feed: [] for feed in FEEDS}
    )
    acknowledged: int = 0
    unknown: int = 0
    guard: threading.Lock = field(default_factory=threading.Lock)

    def note(self, feed: str, operation: Appending | Reading) -> None:
        with self.guard:
            self.operations[feed].append(operation)
            if isinstance(operation, Appending):
                self.acknowledged += operation.first is not None
                self.unknown += operation.first is None and operation.head is None


class Client(threading.Thread):
    """One producer that also reads. ``stop`` ends it once its last append has an answer."""

    def __init__(self, number: int, url: str, history: History, rng: random.Random) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self.number, self.history, self.rng = number, history, rng
        self.http = httpx.Client(base_url=url, timeout=5, trust_env=False)
        self.stop = threading.Event()
        self.count = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                feed = self.rng.choice(list(FEEDS))
                if self.rng.random() < 0.15:
                    self.read(feed)
                else:
                    self.append(feed)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            self.http.close()

    def call(self, method: str, path: str, **given: Any) -> httpx.Response | None:
        """The answer, or None if there was none. What can't be sent yet is sent when the server is there again."""
        while not self.stop.is_set():
            try:
                return self.http.request(method, path, **given)
            except httpx.ConnectError:
                self.stop.wait(0.01)
            except httpx.HTTPError:
                break
        return None

    def read(self, feed: str) -> None:
        began = time.monotonic()
        answer = self.call(
            "GET", f"/feeds/{quote(feed, safe='')}/entries", params={"beg-sequence-id": 1, "limit": 10_000}
        )
        if answer is not None and answer.status_code == 200:
            values = tuple(entry["changes"]["v"] for entry in answer.json()["changes-list"])
            self.history.note(feed, Reading(values, began, time.monotonic()))

    def append(self, feed: str) -> None:
        """Append at the place that the feed ends at now, and again until somebody says what became of it."""
        path = f"/feeds/{quote(feed, safe='')}"
        tail = self.call("GET", f"{path}/tail")
        if tail is None or tail.status_code != 200:
            return
        expected = int(tail.json()["next-sequence-id"])
        self.count += 1
        values = tuple(f"{self.number}/{self.count}/{at}" for at in range(self.rng.randint(1, 3)))
        agent = f"agent-{self.number}" if FEEDS[feed] else Feed.agent
        entries = [
            {"agent-id": agent, "changes": {"v": value}, "expected-offset": expected + at}
            for at, value in enumerate(values)
        ]
        while not self.tried(feed, path, entries, values, expected) and not self.stop.is_set():
            continue

    def tried(
        self, feed: str, path: str, entries: list[dict[str, Any]], values: tuple[str, ...], expected: int
    ) -> bool:
        began = time.monotonic()
        answer = self.call("POST", f"{path}/entries", json={"entries": entries})
        ended = time.monotonic()
        document = answer.json() if answer is not None else {}
        if answer is not None and answer.status_code == 200:
            first, duplicate = document["first-sequence-id"], document.get("duplicate", False)
            self.history.note(feed, Appending(values, began, ended, expected, first, duplicate=duplicate))
            return True
        if answer is not None and answer.status_code == 409:
            assert document["code"] == "offset-mismatch", document
            self.history.note(
                feed, Appending(values, began, ended, expected, head=document["actual-next"] - 1)
            )
            return True
        self.history.note(feed, Appending(values, began, expected=expected))
        return False


def progress(clients: list[Client], history: History, appends: int) -> None:
    """Wait until so many more appends have been acknowledged."""
    wanted = history.acknowledged + appends

    def is_there() -> bool:
        return history.acknowledged >= wanted or not all(client.is_alive() for client in clients)

    wait_until(is_there, what=f"{wanted} acknowledged appends")


def test_killed_server_keeps_one_order(server: ServerProcess) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    for name, shared in FEEDS.items():
        for agent in [f"agent-{number}" for number in range(PRODUCERS)] if shared else [Feed.agent]:
            answer = Feed(server, name).register(agent, shared=shared)
            assert answer.status_code == 200, answer.text
    history = History()
    clients = [
        Client(number, server.url, history, random.Random(rng.random())) for number in range(PRODUCERS)
    ]
    for client in clients:
        client.start()
    for _ in range(scaled(6)):
        progress(clients, history, rng.randint(1, 60))
        server.restart()
    progress(clients, history, 20)
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join(30)
        assert client.failure is None
    for name, operations in history.operations.items():
        final = [entry["changes"]["v"] for entry in Feed(server, name).entries(limit=10_000)]
        check(final, operations)
        answered = sum(isinstance(one, Appending) and one.first is not None for one in operations)
        assert answered, f"nothing was appended to {name}"
        sys.stdout.write(f"{name}: {len(final)} entries, {answered} answered, {len(operations)} operations\n")
    assert history.unknown, "no kill has cut an append off: the test has not tested what it is for"
