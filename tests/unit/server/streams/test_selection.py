"""What a stream carries: exactly the entries that pass, whatever frames and batches they stand in."""

from __future__ import annotations

import random

import google_crc32c
import pytest

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import ZERO
from headrace.errors import InvalidRequest
from headrace.server.streams.selection import Selection
from headrace.wire.batch import ReceivedBatch, batches_of, decode_response, encode_batch
from headrace.wire.filters import Shard
from headrace.wire.generated import wal_pb2
from tests.scale import scaled
from tests.unit.server.frames import frame_of

PREFIX = "local:default:feed:"
"""The ``key_prefix`` of every entry that :func:`frame_of` makes."""


def batch_write(*keys: bytes) -> bytes:
    mutations = [wal_pb2.Mutation(op=wal_pb2.OP_PUT, key=key, value=b"v") for key in keys]
    return wal_pb2.BatchWrite(mutations=mutations).SerializeToString()


def carried(selection: Selection, *appends: list[Change], entries_max: int = 1000) -> list[bytes]:
    """The keys of the entries that pass, read back from the messages of a stream."""
    frames, at = [], 1
    for changes in appends:
        frames.append(frame_of(at, changes))
        at += len(changes)
    found: list[bytes] = []
    for batch in batches_of(frames, start=ZERO, entries_max=entries_max, runs=selection.runs):
        assert batch.entries <= entries_max
        read = decode_response(encode_batch(batch, incarnations={}, want_lengths=True))
        assert isinstance(read, ReceivedBatch)
        messages = list(read.messages())
        assert (str(read.first_lsn), str(read.last_lsn)) == (messages[0].lsn, messages[-1].lsn)
        found += [message.key for message in messages]
    return found


def puts(*keys: bytes, **fields: object) -> list[Change]:
    return [Change(b"{}", key=key, **fields) for key in keys]  # type: ignore[arg-type]  # fields of Change


@pytest.mark.parametrize(
    ("prefix", "wanted"),
    [
        ("", [b"a1", b"a2", b"b1", b"\xff"]),
        ("local", [b"a1", b"a2", b"b1", b"\xff"]),
        (PREFIX, [b"a1", b"a2", b"b1", b"\xff"]),
        (PREFIX + "a", [b"a1", b"a2"]),
        (PREFIX + "b1", [b"b1"]),
        (PREFIX + "b1x", []),
        ("local:other", []),
        ("local:default:feed2:", []),
        ("x", []),
    ],
)
def test_a_prefix_is_that_of_key_prefix_and_key(prefix: str, wanted: list[bytes]) -> None:
    selection = Selection(key_prefix=prefix)
    assert selection.is_everything == (not prefix)
    assert carried(selection, puts(b"a1", b"a2"), puts(b"b1", b"\xff")) == wanted


def test_a_batch_write_passes_whole_if_one_of_its_keys_does() -> None:
    one = Change(batch_write(b"x", b"a9", b"y"), key=b"batch", op=Op.BATCH)
    torn = Change(b"\xff\xff\xff", key=b"a-torn", op=Op.BATCH)
    empty = Change(batch_write(), key=b"a-empty", op=Op.BATCH)
    for prefix, wanted in (
        ("a9", [b"batch"]),
        ("batch", [b"batch"]),
        ("a", [b"batch", b"a-torn", b"a-empty"]),
        ("z", []),
    ):
        assert carried(Selection(key_prefix=PREFIX + prefix), [one, torn, empty]) == wanted


def test_a_control_entry_reaches_every_share_but_not_every_prefix() -> None:
    control = puts(b"c", control="schema")
    for number in range(1, 4):
        assert carried(Selection(shard=Shard(number, 3)), control) == [b"c"]
    assert carried(Selection(key_prefix=PREFIX + "x"), control) == []


def test_shares_are_whole_and_apart_whatever_the_batches() -> None:
    rng = random.Random(7)
    for _ in range(scaled(50)):
        keys = [b"k%d" % rng.randrange(40) for _ in range(rng.randint(1, 60))]
        appends, at = [], 0
        while at < len(keys):
            size = rng.randint(1, 9)
            appends.append(puts(*keys[at : at + size]))
            at += size
        parts = rng.randint(1, 5)
        entries_max = rng.choice((1, 3, 1000))
        shares = [
            carried(Selection(shard=Shard(number, parts)), *appends, entries_max=entries_max)
            for number in range(1, parts + 1)
        ]
        for number, share in enumerate(shares, 1):
            assert share == [key for key in keys if google_crc32c.value(key) % parts == number - 1]
        assert sorted(key for share in shares for key in share) == sorted(keys)


def test_prefix_and_share_must_both_hold() -> None:
    keys = [b"%c%d" % (97 + number % 2, number) for number in range(40)]
    found = carried(Selection(key_prefix=PREFIX + "a", shard=Shard(2, 2)), puts(*keys))
    assert found == [key for key in keys if key[:1] == b"a" and google_crc32c.value(key) % 2 == 1]
    assert found


def test_a_prefix_has_a_bound() -> None:
    with pytest.raises(InvalidRequest, match="key_prefix_filter"):
        Selection(key_prefix="ä" * 2049)
