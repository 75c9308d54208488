"""Server-Sent Events as a browser reads them (WHATWG, "Interpreting an event stream"): the oracle for streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from tests.servers import Feed


@dataclass(frozen=True)
class Event:
    """A dispatched event. ``last_id`` is what a browser would send when it connects again."""

    kind: str
    data: str
    last_id: str

    @property
    def document(self) -> Any:
        """The data as JSON."""
        return json.loads(self.data)


class Reading:
    """One open stream. ``last_id`` also moves by blocks that dispatch nothing; ``comments`` counts comments."""

    def __init__(self, answer: httpx.Response) -> None:
        self.answer = answer
        self.last_id = ""
        self.retry_ms = 0
        self.comments = 0
        self._blocks = self._parse()

    def next(self) -> Event | None:
        """The next block: an event, or None if it dispatches none. StopIteration at the end of the body."""
        return next(self._blocks)

    def event(self) -> Event:
        """The next event that is dispatched."""
        while (found := self.next()) is None:
            pass
        return found

    def events(self, count: int) -> list[Event]:
        """The next events."""
        return [self.event() for _ in range(count)]

    def until_id(self, wanted: int) -> list[Event]:
        """The events up to the block that moves the place to ``wanted``."""
        found = []
        while int(self.last_id or 0) < wanted:
            if (event := self.next()) is not None:
                found.append(event)
        return found

    def _parse(self) -> Iterator[Event | None]:
        kind, id_buffer = "", ""
        data: list[str] = []
        for line in self._lines():
            if not line:
                self.last_id = id_buffer
                yield Event(kind or "message", "\n".join(data), self.last_id) if data else None
                kind, data = "", []
            elif line.startswith(":"):
                self.comments += 1
            else:
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if name == "event":
                    kind = value
                elif name == "data":
                    data.append(value)
                elif name == "id":
                    id_buffer = value
                elif name == "retry":
                    self.retry_ms = int(value)

    def _lines(self) -> Iterator[str]:
        """Lines end at CR, LF or both, and nowhere else."""
        rest = b""
        for part in self.answer.iter_raw():
            *lines, rest = (rest + part).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
            for line in lines:
                yield line.decode()


@contextmanager
def streaming(
    feed: Feed, listener_id: str = "listener-1", *, headers: dict[str, str] | None = None, **given: Any
) -> Iterator[Reading]:
    """Open a stream of ``feed``; what is refused fails the test. Names with underscores become hyphenated."""
    params = {"listener-id": listener_id, **{name.replace("_", "-"): value for name, value in given.items()}}
    with feed.server.http.stream("GET", f"{feed.path}/stream", params=params, headers=headers) as answer:
        if answer.status_code != 200:
            answer.read()
            raise AssertionError(answer.text)
        yield Reading(answer)


def ids(events: list[Event]) -> list[int]:
    """The sequence ids of ``change`` events, whose ids must say the same."""
    assert all(event.last_id == str(event.document["sequence-id"]) for event in events)
    return [event.document["sequence-id"] for event in events]
