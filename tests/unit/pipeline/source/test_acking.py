"""Positions that are reported: of every feed, again where the server had forgotten, and not at all while it is away."""

from __future__ import annotations

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import NotRegistered, ServerUnreachable
from headrace.pipeline.source.acking import Acks
from headrace.pipeline.source.offset import Offset, Place
from headrace.wire.documents import FeedView
from tests.unit.pipeline.feeds import StoredFeed

LSN = "0687ef9388b00000.0000000001.0000000007"
DONE = Offset(
    {"a": Place(incarnation="i", sequence_id=7, lsn=LSN), "b": Place(incarnation="j", sequence_id=0)}
)


class Registry:
    """Listeners of a server in memory: forgets one when told to, and may be away."""

    def __init__(self) -> None:
        self.holds: set[tuple[str, str]] = set()
        self.places: dict[str, Bookmark] = {}
        self.away = False

    def feed(self, name: str) -> FeedView:
        return StoredFeed(name=name).feed(name)

    def register_listener(self, listener: str, feed: str, *, hold: bool) -> None:
        assert hold
        self.holds.add((listener, feed))

    def put_position(self, listener: str, feed: str, bookmark: Bookmark) -> None:
        if self.away:
            raise ServerUnreachable("no answer")
        if (listener, feed) not in self.holds:
            raise NotRegistered(listener)
        self.places[feed] = bookmark


def test_each_feeds_place_is_reported() -> None:
    server = Registry()
    acks = Acks(server, "job")
    acks.register(["a", "b"])
    assert server.holds == {("job", "a"), ("job", "b")}
    acks.report(DONE)
    assert server.places == {"a": Bookmark("i", 7, Lsn.parse(LSN)), "b": Bookmark("j", 0)}


def test_a_listener_that_was_forgotten_holds_again() -> None:
    server = Registry()
    Acks(server, "job").report(DONE)
    assert server.holds == {("job", "a"), ("job", "b")}
    assert server.places["a"].sequence_id == 7


def test_a_server_that_is_away_ends_no_query() -> None:
    server = Registry()
    server.away = True
    Acks(server, "job").report(DONE)
    assert server.places == {}
