"""Indexes: what is stored says what the one in memory said, row by row and for every range."""

from __future__ import annotations

import random
from pathlib import Path

from headrace.log.files.cache import BoundedCache
from headrace.log.files.index import ROWS_AT_ONCE, OpenIndex, SealedIndex, place_of
from headrace.wire.frame import FrameHeader, FrameKind
from headrace.wire.segment import INDEX_FOOT_SIZE, decode_footer, encode_index, index_fits


def journal(rng: random.Random, frames: int, regions: int) -> list[FrameHeader]:
    """Headers of frames in a row, some without entries."""
    next_ids = {region_id: rng.randint(1, 90) for region_id in range(1, regions + 1)}
    position, found = 0x100, []
    for _ in range(frames):
        region_id = rng.randint(1, regions)
        count = rng.choice((1, 1, 3, 1000))
        kind = rng.choice((FrameKind.ENTRIES, FrameKind.ENTRIES, FrameKind.CONTROL))
        count = count if kind == FrameKind.ENTRIES else 0
        body = rng.randint(10, 99)
        first = next_ids[region_id]
        found.append(FrameHeader(kind, position, first, 9, 1, bytes(16), region_id, count, 0, body, 0))
        next_ids[region_id] += count
        position = found[-1].end
    return found


def opened(headers: list[FrameHeader]) -> OpenIndex:
    index = OpenIndex()
    for at in range(0, len(headers), 7):
        index.extend(headers[at : at + 7])
    return index


def sealed(data: bytes) -> SealedIndex:
    footer = decode_footer(data, "x")
    assert footer is not None
    assert index_fits(data, footer)
    shifted = b"frames" + data
    return SealedIndex(lambda offset, size: shifted[offset : offset + size], len(b"frames"), footer.rows)


def test_columns_are_stored_as_rows() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        headers = journal(rng, rng.randint(0, 300), rng.randint(1, 9))
        places = [place_of(header) for header in headers if header.kind == FrameKind.ENTRIES]
        assert opened(headers).encode(0x100, 0x9999) == encode_index(places, 0x100, 0x9999)
        assert opened(headers).frames == len(headers)


def test_frames_out_of_order_are_sorted_when_they_are_stored() -> None:
    headers = journal(random.Random(1), 40, 2)
    mixed = headers[20:] + headers[:20]
    assert opened(mixed).encode(0x100, 0x999) == opened(headers).encode(0x100, 0x999)


def test_stored_and_open_index_find_the_same() -> None:
    rng = random.Random(7)
    headers = journal(rng, 5 * ROWS_AT_ONCE, 4)
    index = opened(headers)
    stored = sealed(index.encode(0x100, headers[-1].end))
    newest = max(header.last_sequence_id for header in headers)
    for _ in range(2000):
        region_id, first = rng.randint(0, 6), rng.randint(0, newest + 10)
        last = first + rng.choice((0, 1, 50, 5000, newest))
        frames_max = rng.choice((1, 3, ROWS_AT_ONCE, 10_000))
        wanted = [
            place_of(one)
            for one in headers
            if one.kind == FrameKind.ENTRIES
            and one.region_id == region_id
            and one.first_sequence_id <= last
            and one.last_sequence_id >= first
        ][:frames_max]
        assert index.places(region_id, first, last, frames_max=frames_max) == wanted
        assert stored.places(region_id, first, last, frames_max=frames_max) == wanted


def test_both_list_their_frames_by_feed() -> None:
    headers = journal(random.Random(8), 3 * ROWS_AT_ONCE, 5)
    index = opened(headers)
    stored = sealed(index.encode(0x100, headers[-1].end))
    by_feed = {places[0].region_id: list(places) for places in index.by_feed()}
    assert {places[0].region_id: list(places) for places in stored.by_feed()} == by_feed
    assert sum(map(len, by_feed.values())) == sum(one.kind == FrameKind.ENTRIES for one in headers)


def test_an_empty_index_finds_nothing() -> None:
    data = OpenIndex().encode(0x100, 0x200)
    assert len(data) == 8 + INDEX_FOOT_SIZE
    assert sealed(data).places(1, 1, 9, frames_max=9) == OpenIndex().places(1, 1, 9, frames_max=9) == []
    assert list(sealed(data).by_feed()) == []


def test_a_cache_lets_go_of_what_was_used_longest_ago() -> None:
    cache = BoundedCache(10)
    cache.put(str, 1, "one", 4)
    cache.put(str, 2, "two", 4)
    assert cache.get(str, 1) == "one"
    cache.put(str, 3, "three", 4)
    assert (cache.get(str, 1), cache.get(str, 2), cache.get(str, 3)) == ("one", None, "three")
    cache.put(Path, 1, Path("/"), 2)
    assert (cache.get(str, 1), cache.get(Path, 1), cache.weight) == ("one", Path("/"), 10)
    cache.put(str, 1, "ONE", 1)
    assert (cache.get(str, 1), cache.weight) == ("ONE", 7)
    cache.drop(str, 3)
    assert (cache.get(str, 3), cache.weight) == (None, 3)
    cache.put(str, 9, "more than all", 11)
    assert (cache.get(str, 9), cache.weight) == (None, 0)
