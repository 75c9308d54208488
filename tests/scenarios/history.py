"""Producers that race at the tails of a few feeds and note what each call saw, for :mod:`headrace.testing.linearity`.

A face (HTTP, gRPC) is a :class:`Face`: three calls, each of them one attempt. A :class:`Client` asks one of its faces for a
feed's next place and appends there; what has no answer is tried again until it has one, at any of its faces.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeGuard
from urllib.parse import quote

import httpx

from headrace.client.tls import NO_TLS
from headrace.testing.linearity import Appending, Reading, check
from tests.scale import SEED
from tests.servers import Feed, ServerProcess
from tests.waiting import wait_until

PRODUCERS: Final = 4
PAGE: Final = 10_000
"""Entries that one answer may hold."""
FEEDS = {"test::owned": False, "test::shared": True}
"""Feed -> whether it is shared."""


class NotSent(Exception):
    """The server is not there: nothing was sent, and the same call can be made again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of an append. ``first``: where it stands; else ``head``: where the feed ended when it was refused."""

    first: int | None = None
    head: int | None = None
    duplicate: bool = False


class Face(Protocol):
    """One way to one server. A call that was cut off or failed, so that nobody knows, is answered with None."""

    def next_place(self, feed: str) -> int | None:
        """The next sequence id of the feed."""

    def read(self, feed: str) -> tuple[str, ...] | None:
        """Every value of the feed, in order, at least up to where the feed ended when this was called."""

    def append(self, feed: str, agent: str, expected: int, values: Sequence[str]) -> Answer | None:
        """Append at a place; a refusal other than for the place fails the test."""

    def close(self) -> None:
        """Let go of the connection."""


class HttpFace:
    """A server's HTTP face. ``asks_end``: a read asks for the feed's end first, as one must who may have been elsewhere."""

    def __init__(self, url: str, *, asks_end: bool = False) -> None:
        self.http = httpx.Client(base_url=url, timeout=10, trust_env=False, verify=NO_TLS)
        self.asks_end = asks_end

    def _call(self, method: str, path: str, **given: Any) -> httpx.Response | None:
        try:
            return self.http.request(method, path, **given)
        except httpx.ConnectError as error:
            raise NotSent from error
        except httpx.HTTPError:
            return None

    def next_place(self, feed: str) -> int | None:
        answer = self._call("GET", f"/feeds/{quote(feed, safe='')}/tail")
        return int(answer.json()["next-sequence-id"]) if _is_ok(answer) else None

    def read(self, feed: str) -> tuple[str, ...] | None:
        if self.asks_end and self.next_place(feed) is None:
            return None
        values: list[str] = []
        while True:
            params = {"beg-sequence-id": len(values) + 1, "limit": PAGE}
            answer = self._call("GET", f"/feeds/{quote(feed, safe='')}/entries", params=params)
            if not _is_ok(answer):
                return None
            page = [entry["changes"]["v"] for entry in answer.json()["changes-list"]]
            values += page
            if len(page) < PAGE:
                return tuple(values)

    def append(self, feed: str, agent: str, expected: int, values: Sequence[str]) -> Answer | None:
        entries = [
            {"agent-id": agent, "changes": {"v": value}, "expected-offset": expected + at}
            for at, value in enumerate(values)
        ]
        answer = self._call("POST", f"/feeds/{quote(feed, safe='')}/entries", json={"entries": entries})
        if answer is None or answer.status_code not in {200, 409}:
            return None
        document = answer.json()
        if answer.status_code == 200:
            return Answer(document["first-sequence-id"], duplicate=document.get("duplicate", False))
        assert document["code"] == "offset-mismatch", document
        return Answer(head=document["actual-next"] - 1)

    def close(self) -> None:
        self.http.close()


def _is_ok(answer: httpx.Response | None) -> TypeGuard[httpx.Response]:
    return answer is not None and answer.status_code == 200


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
        """Add what a client saw; from any thread."""
        with self.guard:
            self.operations[feed].append(operation)
            if isinstance(operation, Appending):
                self.acknowledged += operation.first is not None
                self.unknown += operation.first is None and operation.head is None


class Client(threading.Thread):
    """One producer that also reads, at any of its ``faces``. ``stop`` ends it once its last append has an answer."""

    def __init__(self, number: int, faces: Sequence[Face], history: History, rng: random.Random) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self.number, self.faces, self.history, self.rng = number, faces, history, rng
        self.stop = threading.Event()
        self.count = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                feed = self.rng.choice(list(FEEDS))
                try:
                    self.read(feed) if self.rng.random() < 0.15 else self.append(feed)
                except NotSent:
                    self.stop.wait(0.01)
        except BaseException as error:
            self.failure = error
            raise
        finally:
            for face in self.faces:
                face.close()

    def read(self, feed: str) -> None:
        """Read the whole feed."""
        began = time.monotonic()
        values = self.rng.choice(self.faces).read(feed)
        if values is not None:
            self.history.note(feed, Reading(values, began, time.monotonic()))

    def append(self, feed: str) -> None:
        """Append at the place that the feed ends at now, and again until somebody says what became of it."""
        expected = self.rng.choice(self.faces).next_place(feed)
        if expected is None:
            return
        self.count += 1
        values = tuple(f"{self.number}/{self.count}/{at}" for at in range(self.rng.randint(1, 3)))
        while not self.tried(feed, expected, values) and not self.stop.is_set():
            continue

    def tried(self, feed: str, expected: int, values: tuple[str, ...]) -> bool:
        """Make one attempt and note it; tell whether there was an answer."""
        agent = f"agent-{self.number}" if FEEDS[feed] else Feed.agent
        began = time.monotonic()
        try:
            answer = self.rng.choice(self.faces).append(feed, agent, expected, values)
        except NotSent:
            self.stop.wait(0.01)
            return False
        if answer is None:
            self.history.note(feed, Appending(values, began, expected=expected))
            return False
        ended = time.monotonic()
        seen = Appending(
            values, began, ended, expected, answer.first, head=answer.head, duplicate=answer.duplicate
        )
        self.history.note(feed, seen)
        return True


def register_all(server: ServerProcess) -> None:
    """Register the publishers of :data:`FEEDS`: an agent for each producer of a shared feed, one for an owned one."""
    for name, shared in FEEDS.items():
        for agent in [f"agent-{number}" for number in range(PRODUCERS)] if shared else [Feed.agent]:
            answer = Feed(server, name).register(agent, shared=shared)
            assert answer.status_code == 200, answer.text


def start_clients(
    faces_of: Callable[[], Iterable[Face]], history: History, rng: random.Random
) -> list[Client]:
    """Start :data:`PRODUCERS` clients, each with faces of its own."""
    clients = [
        Client(number, list(faces_of()), history, random.Random(rng.random())) for number in range(PRODUCERS)
    ]
    for client in clients:
        client.start()
    return clients


def stop_clients(clients: Sequence[Client]) -> None:
    """Let every client end what it is at; fails with the first failure of one."""
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join(60)
        assert not client.is_alive()
        assert client.failure is None, client.failure


def progress(clients: Sequence[Client], history: History, appends: int) -> None:
    """Wait until so many more appends have been acknowledged."""
    wanted = history.acknowledged + appends

    def is_there() -> bool:
        return history.acknowledged >= wanted or not all(client.is_alive() for client in clients)

    wait_until(is_there, within=90, what=f"{wanted} acknowledged appends")


def judge(server: ServerProcess, history: History) -> None:
    """Check that what the clients saw has one order, that of the entries which ``server`` holds now."""
    face = HttpFace(server.url, asks_end=True)
    for name, operations in history.operations.items():
        final = face.read(name)
        assert final is not None
        check(final, operations)
        answered = sum(isinstance(one, Appending) and one.first is not None for one in operations)
        assert answered, f"nothing was appended to {name}"
        sys.stdout.write(f"{name}: {len(final)} entries, {answered} answered, {len(operations)} operations\n")
    face.close()
    assert history.unknown, "no kill has cut an append off: the test has not tested what it is for"


def seeded() -> random.Random:
    """Chances that the run's seed decides; it is printed."""
    sys.stdout.write(f"seed {SEED}\n")
    return random.Random(SEED)
