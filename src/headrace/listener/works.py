"""How a listener stands, for its health and its reports: how many entries of the feed are behind its bookmark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace.errors import HeadraceError, Unavailable
from headrace.listener import events
from headrace.runtime.progress import Progress

OVERDUE_S: Final = 5.0
"""A long poll that is not answered so long after its time-out is one of a server that does not answer."""
CONSUMER: Final = "the consumer"


class ListenerWork:
    """One work. Its position is the bookmark as it is stored; what is behind it, up to the feed's head, waits."""

    def __init__(self, progress: Progress, listener_id: str, feed: str) -> None:
        self._work = progress.work(f"listener {listener_id}", feed=feed)
        self._head = 0
        self._stored = 0

    def note_stored(self, sequence_id: int) -> None:
        """The bookmark is stored there."""
        self._stored = sequence_id
        self._work.set_position(sequence_id)
        self._note_waiting()

    def note_step(self, *step: object) -> None:
        """So far it is within what moves its bookmark next: a snapshot."""
        self._work.set_step(step)

    def heard(self, event: events.Event) -> None:
        """The server answered with this, or did not answer."""
        match event:
            case events.Failed(error) | events.PollFailed(error):
                self.failed(error)
            case events.Received() | events.Polled() | events.Registered():
                self._head = event.head
                self._work.set_reachable(True)
                self._work.set_trouble(None)
                self._note_waiting()
            case _:
                self._work.set_reachable(True)

    def failed(self, error: HeadraceError) -> None:
        """Something that it needs has failed with ``error``."""
        if isinstance(error, Unavailable):
            self._work.set_reachable(False)
        self._work.set_trouble(error)
        self._work.set_waiting(max(1, self._head - self._stored))

    @contextmanager
    def poll(self, timeout_s: float) -> Iterator[None]:
        """Within the body the server is asked by a long poll."""
        with self._work.during("the server's answer to a poll", within_s=timeout_s + OVERDUE_S):
            yield

    @contextmanager
    def call(self) -> Iterator[None]:
        """Within the body the server is asked for something else."""
        with self._work.during("the server's answer"):
            yield

    @contextmanager
    def store(self) -> Iterator[None]:
        """Within the body the bookmark store is asked for something."""
        with self._work.during("the bookmark store"):
            yield

    @contextmanager
    def consumer(self) -> Iterator[None]:
        """Within the body the consumer has what came."""
        with self._work.during(CONSUMER):
            yield

    def _note_waiting(self) -> None:
        self._work.set_waiting(max(0, self._head - self._stored), what=CONSUMER)
