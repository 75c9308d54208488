"""The least place of those that hold, against looking at all of them."""

from __future__ import annotations

import random

from headrace.entries.lsn import Lsn
from headrace.log.metadata.contract import SubscriberRow
from headrace.log.retention.plan import Terms
from headrace.server.streams.places import Places, Subscriber
from tests.scale import scaled

EXPIRY_MS = 50


def terms(now_ms: int) -> Terms:
    return Terms(now_ms, 1000, EXPIRY_MS, 1 << 30, started_ms=-1_000_000)


def row(name: int, place: int, seen_at_ms: int) -> SubscriberRow:
    return SubscriberRow("anonymous", f"s{name}", str(Lsn(place, 1, 1)), seen_at_ms)


def test_the_least_is_that_of_all_who_hold() -> None:
    for seed in range(scaled(200)):
        chance, now_ms, places = random.Random(seed), 1000, Places()
        model: dict[int, tuple[int, int]] = {}
        for _ in range(200):
            now_ms += chance.choice([0, 1, 10, -5 if chance.random() < 0.1 else 2])
            name, place = chance.randrange(12), chance.randrange(1, 1000)
            kind = chance.choice(["note", "note", "begin", "replace"])
            if kind == "note":
                places.note([row(name, place, now_ms)])
                known = model.get(name, (0, 0))
                model[name] = (max(place, known[0]), max(now_ms, known[1]))
            elif kind == "begin":
                places.begin(row(name, place, now_ms), places.count)
                model[name] = (place, now_ms)
            else:
                since = places.count
                stored = {one: model[one] for one in model if chance.random() < 0.9}
                places.replace(
                    [row(one, *known) for one, known in stored.items()],
                    since,
                    [Subscriber("anonymous", f"s{name}")],
                )
                model = {one: known for one, known in model.items() if one in stored or one == name}
            holding = [place for place, seen_ms in model.values() if seen_ms + EXPIRY_MS > now_ms]
            wanted = Lsn(min(holding), 1, 1) if holding else None
            assert places.least(terms(now_ms)) == wanted, f"seed {seed}"
            assert len(places._heap) <= len(model) + 1024 + 1


def test_who_was_noted_while_the_table_was_read_is_not_forgotten_nor_moved_back() -> None:
    places = Places()
    places.note([row(1, 5, 1), row(2, 7, 1)])
    since = places.count
    places.note([row(3, 9, 2), row(1, 8, 2)])
    places.replace([row(1, 5, 1)], since, [])
    assert places.get(Subscriber("anonymous", "s1")) == Lsn(8, 1, 1)
    assert places.get(Subscriber("anonymous", "s2")) is None
    assert places.get(Subscriber("anonymous", "s3")) == Lsn(9, 1, 1)


def test_old_places_do_not_gather() -> None:
    places = Places()
    places.note([row(0, 1, 1000)])
    for place in range(2, 5000):
        places.note([row(1, place, 1000)])
        assert places.least(terms(1000)) == Lsn(1, 1, 1)
    assert len(places._heap) < 1100
