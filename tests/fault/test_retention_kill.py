"""A server that is killed again and again while it drops: who holds misses nothing, who does not is told."""

from __future__ import annotations

import random
from pathlib import Path

from tests.servers import Feed, changes, code_of, serving
from tests.waiting import wait_until


def oldest(feed: Feed) -> int:
    """The oldest retained sequence id."""
    return int(feed.server.http.get(feed.path).json()["oldest-sequence-id"])


def wait_for_drop(feed: Feed, before: int) -> None:
    """Return as soon as a drop is visible: its files are being removed at that very moment."""
    wait_until(lambda: oldest(feed) > before, what="a drop")


def test_a_holder_reads_everything_through_kills_and_drops(tmp_path: Path) -> None:
    args = ["--retention", "200ms", "--retention-every", "50ms", "--segment-size", "4k"]
    rng = random.Random(7)
    with serving(tmp_path, args=args) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        feed.listener("holds", hold=True)
        feed.listener("falls")
        incarnation = server.http.get(feed.path).json()["incarnation"]
        read: list[int] = []
        wrote = 0
        for _ in range(5):
            for _ in range(rng.randint(20, 60)):
                wrote += 1
                assert feed.post({"changes": changes(wrote), "expected-offset": wrote}).status_code == 200
            upto = rng.randint(len(read), wrote)
            while len(read) < upto:
                got = feed.poll(len(read), "holds", limit=upto - len(read))
                assert got.status_code == 200, got.text
                read += [one["changes"]["number"] for one in got.json()["changes-list"]]
            before = oldest(feed)
            place = {"incarnation": incarnation, "sequence-id": len(read)}
            assert server.http.put(f"/listeners/holds{feed.path}/position", json=place).status_code == 200
            if upto >= before + 20:  # a whole segment is free to go
                wait_for_drop(feed, before)
            server.restart()
        rest = feed.poll(len(read), "holds", limit=10_000).json()["changes-list"]
        assert read + [one["changes"]["number"] for one in rest] == list(range(1, wrote + 1))
        assert code_of(feed.poll(1, "falls")) == "sequence-not-available"
        assert "Traceback" not in server.errors()
