"""One sequence, many wires: ranges, long polls and streams resume one another's positions, filtered or not, by a seed."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headrace.wire.filters import parse_shard
from tests.events import ids, streaming
from tests.scale import SEED, scaled
from tests.servers import Feed

KEYS = [f"object-{number}" for number in range(6)]
FILTERS: dict[str, dict[str, str]] = {
    "everything": {},
    "key": {"key": "object-1"},
    "changed": {"changed": "nics,alias"},
    "shard": {"shard": "2/3"},
}


class Walk:
    """One reader's way along a feed: where it is, and what it has got."""

    def __init__(self, feed: Feed, rng: random.Random, wanted: dict[str, str]) -> None:
        self.feed = feed
        self.rng = rng
        self.wanted = wanted
        self.incarnation = feed.read().json()["incarnation"]
        self.place = 0
        self.lsn: str | None = None
        self.got: list[int] = []
        self.used: set[str] = set()

    @property
    def headers(self) -> dict[str, str]:
        """What it knows of its place."""
        known = {"Headrace-Incarnation": self.incarnation}
        return known | (
            {"Headrace-Lsn": self.lsn} if self.lsn is not None and self.rng.random() < 0.7 else {}
        )

    def step(self, head: int) -> None:
        """Read on by a wire chosen at random, not necessarily up to ``head``."""
        wire = self.rng.choice(["range", "poll", "stream"])
        self.used.add(wire)
        if wire == "stream":
            self._stream(self.rng.randint(self.place, head))
            return
        limits = {"limit": self.rng.choice("125"), "limit-bytes": self.rng.choice(["1", "300", "1000000"])}
        path, place = "entries", {"beg-sequence-id": str(self.place + 1)}
        if wire == "poll":
            path = "poll"
            place = {"listener-id": "listener-1", "after-sequence-id": str(self.place), "timeout-ms": "0"}
        params = {**place, **limits, **self.wanted}
        answer = self.feed.server.http.get(f"{self.feed.path}/{path}", params=params, headers=self.headers)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        self._take([entry["sequence-id"] for entry in document["changes-list"]], document["last-sequence-id"])
        self.lsn = document["last-lsn"] or self.lsn

    def _stream(self, upto: int) -> None:
        place: dict[str, Any] = {"after_sequence_id": self.place}
        headers = self.headers
        if self.rng.random() < 0.5:
            place = {"after_sequence_id": self.rng.randint(0, self.place)}
            headers["Last-Event-ID"] = str(self.place)
        with streaming(self.feed, headers=headers, **place, **self.wanted) as stream:
            events = stream.until_id(upto)
            if stream.last_id:
                changes = [event for event in events if event.kind == "change"]
                self._take(ids(changes), int(stream.last_id))
                self.lsn = changes[-1].document["lsn"] if ids(changes)[-1:] == [self.place] else None

    def _take(self, found: list[int], last: int) -> None:
        assert last >= self.place, "a position never moves back"
        assert all(self.place < one <= last for one in found)
        self.got += found
        self.place = last


@pytest.mark.parametrize("seed", range(scaled(2)))
@pytest.mark.parametrize("name", FILTERS)
def test_a_feed_is_walked_switching_wires_at_random(feed: Feed, name: str, seed: int) -> None:
    rng = random.Random(f"{SEED} {name} {seed}")
    walk = Walk(feed, rng, FILTERS[name])
    wanted: list[int] = []
    head = steps = 0
    while head < 60 or walk.place < head:
        assert (steps := steps + 1) < 1_000, f"seed {seed}: {walk.place} of {head}, by {walk.used}"
        if head < 60 and rng.random() < 0.5:
            for entry in (entries := _transaction(rng)):
                head += 1
                if _passes(FILTERS[name], entry):
                    wanted.append(head)
            assert feed.post(*entries).status_code == 200
        if head:
            walk.step(head)
    assert walk.got == wanted, f"seed {seed}"
    assert walk.used == {"range", "poll", "stream"}


def _transaction(rng: random.Random) -> list[dict[str, Any]]:
    size, name = rng.randint(1, 4), str(rng.random())
    return [
        {
            "key": rng.choice(KEYS),
            "changes": {one: "x" * rng.choice([1, 200]) for one in rng.sample(["nics", "alias", "ram"], 2)},
            "op": rng.choice(["put", "put", "delete"]),
            **({"changed": rng.sample(["nics", "alias", "ram"], 1)} if rng.random() < 0.5 else {}),
            "tx": name,
            "tx-index": index,
            "tx-last": index == size - 1,
        }
        for index in range(size)
    ]


def _passes(wanted: dict[str, str], entry: dict[str, Any]) -> bool:
    """The same rules, once more."""
    if "key" in wanted:
        return bool(entry["key"] == wanted["key"])
    if "shard" in wanted:
        shard = parse_shard(wanted["shard"])
        assert shard is not None
        return shard.has(entry["key"].encode())
    touched = set(entry.get("changed", entry["changes"]))
    return not wanted or entry["op"] == "delete" or bool(touched & {"nics", "alias"})
