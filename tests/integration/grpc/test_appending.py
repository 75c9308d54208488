"""Appends over gRPC: the same rules, refusals and retries as over HTTP, whichever way an append comes the second time."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.client.log_append import LogAppendClient, Writes
from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn
from headrace.errors import (
    FeedNotFound,
    FeedRecreated,
    Fenced,
    InvalidRequest,
    NotRegistered,
    OffsetMismatch,
    Quarantined,
    TooLarge,
)
from headrace.wire.entry import encode_half
from tests.integration.grpc.conftest import registered
from tests.integration.grpc.streams import halves, writes
from tests.servers import Feed, ServerProcess, code_of


async def test_an_append_is_stored_as_it_was_sent(appender: LogAppendClient, feed: Feed) -> None:
    stored = await appender.append(writes(feed), halves(1, 3), expected_offset=1)
    assert (stored.first_sequence_id, stored.last_sequence_id, stored.duplicate) == (1, 3, False)
    entries = feed.entries()
    assert [entry["changes"] for entry in entries] == [{"number": number} for number in (1, 2, 3)]
    assert [entry["key"] for entry in entries] == ["key-1", "key-2", "key-3"]
    assert (Lsn.parse(entries[0]["lsn"]), Lsn.parse(entries[2]["lsn"])) == (stored.first_lsn, stored.last_lsn)


async def test_every_field_of_an_entry_arrives(appender: LogAppendClient, feed: Feed) -> None:
    change = Change(
        b'{"a":1}', key=b"k", op=Op.PATCH, source_tx=b"tx", tx_index=3, tx_last=True, source_time_ms=1_000,
        copy=True, changed=("a",), before=b'{"a":0}', table=("main", "t"),
    )  # fmt: skip
    binary = Change(b"\xff\x00", key=b"\xfe")
    await appender.append(
        writes(feed), [encode_half(change), encode_half(binary), encode_half(Change(b"{}"))]
    )
    full, odd, unkeyed = feed.entries()
    assert (full["op"], full["tx"], full["tx-index"], full["tx-last"]) == ("patch", "tx", 3, True)
    assert (full["copy"], full["changed"], full["before"], full["table"]) == (
        True,
        ["a"],
        {"a": 0},
        ["main", "t"],
    )
    assert (odd["key-base64"], odd["changes-base64"]) == ("/g==", "/wA=")
    assert unkeyed["key"] == "3"


async def test_a_retry_is_known_whichever_way_it_comes(appender: LogAppendClient, feed: Feed) -> None:
    posted: list[dict[str, Any]] = [
        {"changes": {"number": number}, "key": f"key-{number}", "expected-offset": number}
        for number in range(1, 7)
    ]
    assert feed.post(*posted[:3]).json()["duplicate"] is False
    over_grpc = await appender.append(writes(feed), halves(1, 3), expected_offset=1)
    assert (over_grpc.duplicate, over_grpc.first_sequence_id, over_grpc.last_sequence_id) == (True, 1, 3)
    first = await appender.append(writes(feed), halves(4, 6), expected_offset=4)
    over_http = feed.post(*posted[3:]).json()
    assert over_http["duplicate"] is True
    assert (over_http["first-lsn"], over_http["last-lsn"]) == (str(first.first_lsn), str(first.last_lsn))
    # Other boundaries, over both.
    assert (await appender.append(writes(feed), halves(2, 5), expected_offset=2)).duplicate
    assert feed.post(*posted[2:5]).json()["duplicate"] is True
    with pytest.raises(OffsetMismatch):
        await appender.append(writes(feed), halves(12, 15), expected_offset=2)
    assert len(feed.entries()) == 6


async def test_a_refusal_says_what_http_says(appender: LogAppendClient, feed: Feed) -> None:
    await appender.append(writes(feed), halves(1, 3), expected_offset=1)
    with pytest.raises(OffsetMismatch) as caught:
        await appender.append(writes(feed), halves(1, 2), expected_offset=7)
    told = feed.post({"changes": {"number": 1}, "key": "key-1", "expected-offset": 7}).json()
    for member in ("index", "expected", "actual-next", "retryable", "side-effects"):
        assert caught.value.members[member] == told[member], member
    assert caught.value.detail
    assert caught.value.advice


async def test_who_may_not_write_is_told_so_and_what_to_do(
    appender: LogAppendClient, feed: Feed, server: ServerProcess
) -> None:
    with pytest.raises(FeedNotFound):
        await appender.append(Writes("no::feed", feed.agent), halves(1, 1))
    with pytest.raises(NotRegistered) as caught:
        await appender.append(Writes(feed.name, "stranger"), halves(1, 1))
    assert "POST /publishers/register" in caught.value.advice
    feed.register(instance="second")
    with pytest.raises(Fenced):
        await appender.append(writes(feed)._replace(epoch=1), halves(1, 1))
    assert (await appender.append(writes(feed)._replace(epoch=2), halves(1, 1))).first_sequence_id == 1
    other = writes(feed)._replace(incarnation="00000000-0000-0000-0000-000000000000")
    with pytest.raises(FeedRecreated):
        await appender.append(other, halves(2, 2))
    assert code_of(feed.post({"changes": {}, "sequence-id": 1})) == "duplicate-entry"
    with pytest.raises(Quarantined):
        await appender.append(writes(feed), halves(2, 2))
    assert "quarantine" in json.dumps(server.http.get("/alarms").json())


async def test_what_is_no_append_is_refused_by_name(appender: LogAppendClient, feed: Feed) -> None:
    bad = halves(1, 3)
    bad[1] = bad[1][:-1] + bytes((bad[1][-1] ^ 1,))
    with pytest.raises(InvalidRequest, match=r"entries\[1\] has a checksum") as caught:
        await appender.append(writes(feed), bad)
    assert (caught.value.members["index"], caught.value.members["side-effects"]) == (1, "none")
    with pytest.raises(InvalidRequest, match="entry_lengths"):
        await appender.append(writes(feed), [])
    with pytest.raises(InvalidRequest, match="producer_id"):
        await appender.append(Writes(feed.name, "a b"), halves(1, 1))
    with pytest.raises(InvalidRequest, match="change-feed-id"):
        await appender.append(Writes("a b", feed.agent), halves(1, 1))
    with pytest.raises(InvalidRequest, match="expected-offset"):
        await appender.append(writes(feed), halves(1, 1), expected_offset=-2)
    with pytest.raises(TooLarge, match=r"entries\[0\]"):
        await appender.append(writes(feed), [encode_half(Change(b"v" * (1 << 20), key=b"k"))])
    with pytest.raises(TooLarge, match="source_position"):
        await appender.append(writes(feed), halves(1, 1), source_position=b"p" * 16_385)
    assert feed.entries() == []


async def test_the_tail_is_what_http_says(
    appender: LogAppendClient, feed: Feed, server: ServerProcess
) -> None:
    empty = await appender.tail(feed.name, feed.agent)
    assert (empty.next_sequence_id, empty.HasField("last_frame")) == (1, False)
    await appender.append(writes(feed), halves(1, 3), source_position=b"gtid-7")
    end = await appender.tail(feed.name, feed.agent)
    told: Any = server.http.get(f"{feed.path}/tail", params={"producer": feed.agent}).json()
    assert (end.next_sequence_id, end.newest_lsn) == (told["next-sequence-id"], told["newest-lsn"])
    assert (end.region_id, end.owner, end.epoch) == (told["region-id"], told["owner"], told["epoch"])
    last = told["last-frame"]
    assert (end.last_frame.first_sequence_id, end.last_frame.count) == (
        last["first-sequence-id"],
        last["count"],
    )
    assert end.last_frame.source_position == base64.b64decode(last["source-position"]) == b"gtid-7"
    with pytest.raises(FeedNotFound):
        await appender.tail("no::feed")


async def test_a_shared_feed_is_ordered_by_expected_offsets(
    appender: LogAppendClient, server: ServerProcess
) -> None:
    feed = Feed(server, "grpc::shared")
    epochs = [feed.register(agent, shared=True).json()["epoch"] for agent in ("one", "two")]
    one, two = (Writes(feed.name, agent, epoch) for agent, epoch in zip(("one", "two"), epochs, strict=True))
    assert (await appender.append(one, halves(1, 2), expected_offset=1)).last_sequence_id == 2
    with pytest.raises(OffsetMismatch) as caught:
        await appender.append(two, halves(1, 2), expected_offset=1)
    assert caught.value.members["actual-next"] == 3
    assert (await appender.append(two, halves(1, 2), expected_offset=3)).last_sequence_id == 4
    assert len(feed.entries()) == 4


async def test_an_entry_of_another_shape_is_not_a_retry(
    appender: LogAppendClient, server: ServerProcess
) -> None:
    feed = registered(server)
    change = Change(b"v", key=b"k", tx_last=True)
    await appender.append(writes(feed), [encode_half(change)], expected_offset=1)
    with pytest.raises(OffsetMismatch):
        await appender.append(writes(feed), [encode_half(replace(change, tx_last=False))], expected_offset=1)
