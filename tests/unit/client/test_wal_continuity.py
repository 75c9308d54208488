"""A server that leaves out entries in the middle of a feed: noticed wherever the gap is, and nothing else taken for one."""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from functools import partial

import pytest
from grpc import StatusCode

from headrace import errors
from headrace.client.wal_continuity import Continuity, single_runs
from headrace.client.wal_records import Record
from headrace.client.wal_runs import feed_runs
from headrace.client.wal_stream import EVERYTHING, StreamFilter, WalClient
from headrace.client.wal_subscription import Transfer, WalSubscription
from headrace.entries.entry import Change
from headrace.entries.lsn import Lsn, lsn_of
from headrace.runtime.backoff import Backoff
from headrace.wire import entry as wal_entry
from headrace.wire.batch import Batch, ReceivedBatch, decode_response, encode_batch
from tests.scale import scaled
from tests.unit.client.wal_server import TS, Stream, fails, lsn, sends, take_all, wal_server
from tests.unit.client.wal_server import batch as of_one_feed

SOON = partial(Backoff, 0.001, 0.002)
END = fails(StatusCode.PERMISSION_DENIED, "the end")
WRAP = 1 << 32


def place(ts: int, region_id: int, sequence_id: int) -> Lsn:
    return lsn_of(TS + ts, region_id, sequence_id, 0)


def message(*entries: tuple[int, int], ts: int = 0, size: int = 2) -> bytes:
    """A batch of these (region id, sequence id), the first one at ``ts``; each value has ``size`` bytes."""
    bodies, lengths = b"", array("I")
    for at, (region_id, sequence_id) in enumerate(entries):
        body, _ = wal_entry.stamp(
            [wal_entry.encode_half(Change(b"v" * size, key=b"k"))],
            global_ts=TS + ts + at,
            region_id=region_id,
            first_sequence_id=sequence_id,
            tenant="t",
            key_prefix=f"main:t:feed-{region_id}:",
        )
        bodies += body
        lengths.append(len(body))
    ends = [place(ts + at, *entries[at]) for at in (0, len(entries) - 1)]
    made = Batch(
        [memoryview(bodies)], [memoryview(wal_entry.lengths_bytes(lengths))], len(bodies), len(lengths),
        ends[0], ends[1], 0, 0, frozenset(region_id for region_id, _ in entries),
    )  # fmt: skip
    return encode_batch(made, incarnations={}, want_lengths=True)


def received(*entries: tuple[int, int], ts: int = 0, size: int = 2) -> ReceivedBatch:
    found = decode_response(message(*entries, ts=ts, size=size))
    assert isinstance(found, ReceivedBatch)
    return found


def run(first: int, last: int, region_id: int = 1) -> list[tuple[int, int]]:
    return [(region_id, number) for number in range(first, last + 1)]


async def read(
    *streams: Stream, only: StreamFilter = EVERYTHING, transfer: Transfer | None = None
) -> list[bytes]:
    """What is given until the server says that it is the end."""
    found: list[Record] = []
    async with (
        wal_server(*streams, END) as server,
        WalClient(server.address) as wal,
        WalSubscription(wal, only=only, transfer=transfer or Transfer(), backoff=SOON) as stream,
    ):
        with pytest.raises(errors.Forbidden, match="the end"):
            await take_all(stream.records(), found)
    return [record.value for record in found]


# -- in a subscription ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "streams",
    [
        [sends(of_one_feed(1, 3), of_one_feed(5, 6))],
        [sends(of_one_feed(1, 3)), sends(of_one_feed(5, 6))],
        [sends(of_one_feed(1, 3)), sends(of_one_feed(3, 3), of_one_feed(5, 6))],
    ],
    ids=["between batches", "over a reconnect", "behind the one that came again"],
)
async def test_entries_that_are_left_out_are_noticed(streams: list[Stream]) -> None:
    with pytest.raises(errors.JournalCorrupt, match="was not sent") as caught:
        await read(*streams)
    assert caught.value.members == {"after-lsn": str(lsn(3)), "lsn": str(lsn(5))}


async def test_filters_leave_out_what_they_like_and_so_it_is_without_checks() -> None:
    streams = [sends(of_one_feed(1, 3), of_one_feed(5, 6))]
    wanted = [b"1", b"2", b"3", b"5", b"6"]
    for only in (StreamFilter(tenant="t"), StreamFilter(key_prefix="main:"), StreamFilter(shard="1/2")):
        assert await read(*streams, only=only) == wanted
    assert await read(*streams, transfer=Transfer(verify=False)) == wanted


async def test_a_start_in_the_middle_is_none() -> None:
    assert await read(sends(of_one_feed(70, 72)), sends(of_one_feed(72, 73))) == [b"70", b"71", b"72", b"73"]


# -- batches of many feeds --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 120, 20_000, 2_200_000], ids=["1", "2", "3", "4"])
def test_it_is_found_behind_lengths_of_so_many_bytes(size: int) -> None:
    held = Continuity()
    held.check(received(*run(1, 16), size=2))
    few = [(1, 17), (2, 5)]
    whole = received(*few, *run(6, 20, 2), ts=100, size=2)
    big = received((1, 17), ts=100, size=size)
    joined = whole._replace(
        body=memoryview(bytes(big.body) + bytes(whole.body[whole.sizes[0] :])),
        sizes=big.sizes + whole.sizes[1:],
    )
    assert set(feed_runs(joined) or ()) == {
        (place(100, 1, 17), place(100, 1, 17)),
        (place(101, 2, 5), place(116, 2, 20)),
    }
    held.check(joined)


def test_sequence_ids_beyond_32_bits_go_on_at_0() -> None:
    held = Continuity()
    held.check(received(*run(WRAP - 20, WRAP + 20)))
    held.check(received(*run(WRAP + 21, WRAP + 22), ts=100))
    with pytest.raises(errors.JournalCorrupt):
        held.check(received(*run(WRAP + 24, WRAP + 24), ts=200))
    held.check(received(*run(WRAP + 23, WRAP + 24), ts=200))


def oracle(seen: dict[int, int], entries: Sequence[tuple[int, int]]) -> bool:
    """Whether nothing is left out; ``seen`` has each feed's last sequence id."""
    met = dict(seen)
    for region_id, sequence_id in entries:
        if region_id in met and sequence_id != met[region_id] + 1:
            return False
        met[region_id] = sequence_id
    seen.update(met)
    return True


def test_one_entry_left_out_of_many_feeds_is_found_by_both_ways() -> None:
    rng = random.Random(7)
    gaps = 0
    for _ in range(scaled(60)):
        held, seen, begun = Continuity(), dict[int, int](), dict[int, int]()
        for number in range(4):
            entries: list[tuple[int, int]] = []
            for _ in range(rng.choice((1, 5, 40, 200))):
                region_id = rng.randint(1, rng.choice((1, 3, 50)))
                begun[region_id] = begun.get(region_id, rng.choice((0, 9, WRAP - 3))) + 1
                entries.append((region_id, begun[region_id]))
            left_out = rng.random() < 0.3
            if left_out:
                del entries[rng.randrange(len(entries))]
            if not entries:
                continue
            batch = received(*entries, ts=1000 * number, size=rng.choice((1, 60, 300)))
            runs = feed_runs(batch)
            if runs is not None:
                ends = {one.region_id: one for _, one in single_runs(batch)}
                assert {one.region_id: one for _, one in runs} == ends
            if oracle(seen, entries):
                held.check(batch)
                continue
            gaps += 1
            with pytest.raises(errors.JournalCorrupt, match="was not sent"):
                held.check(batch)
            break
    assert gaps
