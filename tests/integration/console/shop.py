"""A server with something to see: a shop's feeds, who writes and reads them, a process that is stuck, a quarantine."""

from __future__ import annotations

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import Any

from headrace.client.wal_stream import WalClient
from headrace.runtime.facts import BACKUP_LAG, BACKUP_WINDOW_BEGIN, BACKUP_WINDOW_END
from headrace.wire.batch import ReceivedBatch
from headrace.wire.documents import rfc3339
from tests.reports import report
from tests.servers import Feed, ServerProcess

FEEDS = ("shop::orders", "shop::customers", "billing::invoices", "vmapi::vm")
CITIES = ("Oslo", "Lisbon", "Porto", "Ghent", "Turin", "Aarhus")


class Shop:
    """The feeds of a shop on a running server; what it does is the same for the same seed."""

    def __init__(self, server: ServerProcess, seed: int = 7) -> None:
        self.server = server
        self.random = random.Random(seed)
        self.feeds = {name: Feed(server, name) for name in FEEDS}
        self.busy_at = 0.0
        self.orders = self.feeds["shop::orders"]

    def open(self) -> None:
        """Register publishers and listeners, and post the first entries."""
        for name, feed in self.feeds.items():
            feed.agent = f"{name.partition('::')[0]}-db-1"
            assert feed.register().status_code == 200
            self.sell(name, 60)
        for name, listener in (
            ("shop::orders", "warehouse"),
            ("shop::orders", "search-index"),
            ("shop::customers", "crm"),
            ("billing::invoices", "ledger"),
            ("vmapi::vm", "cache"),
        ):
            assert self.feeds[name].listener(listener, hold=listener == "ledger").status_code == 200
            self.read(name, listener, 40)

    def sell(self, name: str, count: int) -> None:
        """Post so many entries to a feed."""
        entries = [{"changes": self._row(name)} for _ in range(count)]
        answer = self.feeds[name].post(*entries)
        assert answer.status_code == 200, answer.text

    def read(self, name: str, listener: str, sequence_id: int) -> None:
        """Have a listener take what is behind its place, and report this one."""
        feed = self.feeds[name]
        entry = feed.entries(sequence_id, sequence_id)[0]
        feed.poll(max(0, sequence_id - 5), listener, limit=5)
        self.server.http.put(
            f"/listeners/{listener}{feed.path}/position",
            json={
                "incarnation": self._tail(feed)["incarnation"],
                "sequence-id": sequence_id,
                "lsn": entry["lsn"],
            },
        ).raise_for_status()

    def head(self, name: str) -> int:
        """The sequence id of a feed's newest entry."""
        return int(self._tail(self.feeds[name])["next-sequence-id"]) - 1

    def report(self) -> None:
        """Have processes say how they are."""
        for kind, name, body in (
            ("agent", "shop-db-1", report("shop::orders", waiting=12, reachable=True)),
            ("agent", "billing-db-1", report("billing::invoices", "idle", reachable=True)),
            (
                "capture", "vmapi-db-1",
                report(
                    "vmapi::vm", "stuck", waiting=4_210, reachable=False, code="source-unavailable",
                    detail="the database does not answer: connection timed out", source_position="0-1-88121",
                ),
            ),
            ("backup", "archive-1", report("", waiting=310, source_position="segment 41")),
        ):  # fmt: skip
            if kind == "backup":
                now_s = int(time.time())
                body["facts"] = {
                    BACKUP_WINDOW_BEGIN.name: now_s - 9 * 86_400,
                    BACKUP_WINDOW_END.name: now_s - 40,
                    BACKUP_LAG.name: 31.5,
                }
            body["started-at"] = body["works"][0]["since"] = rfc3339(time.time_ns() // 1_000_000 - 95_000)
            self.server.http.put(f"/reports/{kind}/{name}", json=body).raise_for_status()

    def quarantine(self) -> str:
        """Have the customers' publisher send an entry twice; returns who is refused now."""
        feed = self.feeds["shop::customers"]
        answer = feed.post({"changes": {"uuid": "twice"}, "sequence-id": 3})
        assert answer.status_code == 409, answer.text
        return feed.agent

    def subscribe(self, subscriber_id: str, entries: int) -> None:
        """Have a subscriber acknowledge the first so many entries of all feeds."""

        async def run() -> None:
            async with (
                WalClient(self.server.grpc_address, subscriber_id=subscriber_id) as wal,
                aclosing(wal.subscribe(batch_entries=entries)) as stream,
            ):
                async for item in stream:
                    if isinstance(item, ReceivedBatch):
                        await wal.ack(item.last_lsn)
                        return

        # A thread of its own: where a browser is driven, this one's event loop belongs to that.
        with ThreadPoolExecutor(1) as thread:
            thread.submit(asyncio.run, run()).result(60)

    def _tail(self, feed: Feed) -> Any:
        return self.server.http.get(f"{feed.path}/tail").json()

    def _row(self, name: str) -> dict[str, Any]:
        number = self.random.randrange(1_000, 9_999)
        match name:
            case "shop::orders":
                state = self.random.choice(("placed", "paid", "packed", "sent"))
                return {
                    "uuid": f"order-{number}",
                    "state": state,
                    "total": number * 7 / 100,
                    "lines": number % 5 + 1,
                }
            case "shop::customers":
                return {
                    "uuid": f"customer-{number}",
                    "city": self.random.choice(CITIES),
                    "orders": number % 40,
                }
            case "billing::invoices":
                return {
                    "uuid": f"invoice-{number}",
                    "due": f"2026-12-{number % 28 + 1:02d}",
                    "paid": number % 3 == 0,
                }
        return {
            "uuid": f"vm-{number}",
            "state": "running",
            "ram": 1 << (number % 6 + 9),
            "nics": [f"10.0.0.{number % 250}"],
        }
