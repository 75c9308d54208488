"""Retention with subscribers over gRPC, and with several servers on one PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.client.wal_stream import WalClient
from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, LsnNotAvailable
from headrace.wire.batch import ReceivedBatch
from tests.integration.server.test_retention import FAST, explain, listener, post, report, view
from tests.postgres import Cluster
from tests.servers import Feed, ServerProcess, code_of, serving
from tests.waiting import async_wait_until, wait_until

NO_CAP = str(1 << 60)
"""So many bytes are never there, however fast the tests write: no place is told to be lost to the cap."""


def fates(server: ServerProcess) -> list[str]:
    """Why each segment goes or stays."""
    return [one["fate"] for one in server.http.get("/retention").json()["segments"]]


def subscriber(feed: Feed) -> Any:
    """The feed's only subscriber."""
    (found,) = view(feed)["subscribers"]
    return found


def lsn_of(feed: Feed, sequence_id: int) -> Lsn:
    """The LSN of an entry."""
    return Lsn.parse(feed.entries(sequence_id)[0]["lsn"])


async def first_lsn(wal: WalClient, start: Lsn | None = None) -> Lsn:
    """Subscribe, and return the LSN of the first entry that comes."""
    async for item in wal.subscribe(start, batch_entries=1):
        if isinstance(item, ReceivedBatch):
            return item.first_lsn
    raise AssertionError("the stream ended")


async def ack(wal: WalClient, lsn: Lsn) -> None:
    """Ack what no stream has sent: allowed once the server has seen that the last stream was cancelled."""

    async def done() -> bool:
        try:
            await wal.ack(lsn)
        except InvalidRequest:
            return False
        return True

    await async_wait_until(done, what="the cancelled stream to have ended")


async def test_a_subscriber_holds_until_it_acks(tmp_path: Path) -> None:
    args = ["--retention", "500ms", "--retention-bytes-max", NO_CAP, *FAST]
    with serving(tmp_path, args=args, grpc=True) as server:
        feed = Feed(server, "vm::a")
        feed.register()
        async with WalClient(server.grpc_address, subscriber_id="backup") as wal:
            head = post(feed, 1)
            assert await first_lsn(wal) == lsn_of(feed, 1)
            head = post(feed, 40)
            middle, newest = lsn_of(feed, 20), lsn_of(feed, head)
            await async_wait_until(
                lambda: fates(server)[:2] == ["held", "held"], what="what is held to be old"
            )
            assert (view(feed)["oldest-sequence-id"], subscriber(feed)["lag-entries"]) == (1, head)
            await ack(wal, middle)
            await async_wait_until(lambda: view(feed)["oldest-sequence-id"] > 1, what="what is acked to go")
            assert view(feed)["oldest-sequence-id"] <= 21
            assert subscriber(feed)["lag-entries"] == head - 20
            assert subscriber(feed)["time-to-loss"]["state"] == "held"
            metrics = server.http.get("/metrics").text
            assert f'kdb_wal_subscriber_lag_lsn{{subscriber_id="anonymous/backup"}} {head - 20}.0' in metrics
            assert await first_lsn(wal, lsn_of(feed, 21)) == lsn_of(feed, 21), "the next one is there"
            await ack(wal, newest)
            await async_wait_until(lambda: view(feed)["oldest-sequence-id"] == head + 1, what="all to go")
            with pytest.raises(LsnNotAvailable, match="perform a base snapshot"):
                await first_lsn(wal, middle)
            assert await wal.bounds() == (newest, newest)
            assert post(feed, 1) == head + 1
            assert await first_lsn(wal, newest) == lsn_of(feed, head + 1), (
                "who had read everything lost nothing"
            )


def test_servers_of_one_database_hold_for_each_other(cluster: Cluster, tmp_path: Path) -> None:
    """Listeners come to the one server, and the other one drops."""
    store = ["--store", cluster.create_database("retention"), "--retention", "500ms", "--segment-size", "4k"]
    with (
        serving(tmp_path / "slow", args=[*store, "--retention-every", "10m"]) as slow,
        serving(tmp_path / "quick", args=[*store, "--retention-every", "100ms"]) as quick,
    ):
        here, there = Feed(slow, "vm::a"), Feed(quick, "vm::a")
        here.register()
        here.listener("holds", hold=True)
        here.listener("falls")
        head = post(here, 40)
        report(here, 20, "holds")
        report(here, 2, "falls")
        wait_until(lambda: view(there)["oldest-sequence-id"] > 1, what="the other server to drop")
        assert view(there)["oldest-sequence-id"] <= 21
        assert here.entries(21)[0]["sequence-id"] == 21
        assert code_of(here.poll(2, "falls")) == "sequence-not-available"
        assert view(here)["oldest-sequence-id"] == view(there)["oldest-sequence-id"]
        assert listener(here, "falls")["time-to-loss"]["state"] == "lost"
        assert "held by listener holds of vm::a at sequence id 20" in explain(slow)
        report(here, head, "holds")
        wait_until(lambda: view(there)["oldest-sequence-id"] == head + 1, what="all to go")
        again = here.post({"changes": {"uuid": "object-39", "number": 39}, "expected-offset": head})
        assert again.json().get("duplicate") is True, again.text
        slow.restart()
        assert post(here, 1) == head + 1
