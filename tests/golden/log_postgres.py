"""The golden log in PostgreSQL: made as a dump in SQL, and described as plain values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import DuplicateEntry
from headrace.log.metadata.owners import Claimant
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.metadata.rows import (
    JOURNAL,
    PROGRESS,
    HydrationRow,
    ProgressRow,
    ReportRow,
    SchemaMark,
    SchemaRow,
    SlotRow,
    SnapshotRow,
)
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from headrace.wire.passages import Point, encode_points
from tests.bench import Bench, append
from tests.postgres import Cluster

FEED = "vmapi::vm"
SEGMENT_BYTES = 4096


def make_log_postgres(path: Path) -> None:
    """Two feeds over several segments, the oldest dropped; an owner changed, a quarantine; listener, subscriber, alarm."""
    with Cluster() as cluster:
        dsn = cluster.create_database("log")
        store = PostgresStore(parse_address(dsn), segment_bytes=SEGMENT_BYTES)
        bench = Bench(store)
        bench.register(FEED, instance="i-1")
        bench.append(FEED, '{"n":63}', sequence_ids=[63])
        bench.register(
            "acme.orders", "agent-2", tenant="acme", new_incarnation="1d0b1f8e-0000-4000-8000-000000000002"
        )
        for number in range(24):
            bench.clock.ms += 10
            feed, producer = ((FEED, "agent-1"), ("acme.orders", "agent-2"))[number % 2]
            bench.append(feed, f'{{"n":{number}}}', "x" * 200, producer=producer, source=str(number).encode())
        bench.register("acme.orders", "agent-3", takeover=True)
        bench.append("acme.orders", '{"after":"takeover"}', producer="agent-3", source=b"p")
        refused = bench.ask(append("acme.orders", "{}", producer="agent-3", sequence_ids=(1,)))[0]
        assert isinstance(refused, DuplicateEntry)
        store.drop_before(store.segments()[1].first_position)
        metadata = PostgresMetadata(store.pool)
        metadata.register_listener("listener-1", FEED, hold=True, now_ms=bench.clock.ms)
        metadata.register_listener("listener-2", FEED, False, bench.clock.ms, Claimant("tcns", False))
        metadata.put_position("listener-1", FEED, "inc", 64, "1.2.64", bench.clock.ms)
        metadata.begin_subscriber("anonymous", "", str(bench.tail(FEED).newest), bench.clock.ms)
        metadata.change_hydration(
            "listener-1",
            FEED,
            lambda _: HydrationRow(
                "listener-1", FEED, "inc", 65, "snapshot-1", 64, 1_760_000_000_000, 1_760_021_600_000
            ),
        )
        schema = SchemaRow(FEED, "main", "account", 1, 63, str(bench.tail(FEED).newest), b'{"columns":[]}')
        metadata.schemas.begin(256)
        assert metadata.schemas.keep([schema], 256, SchemaMark(JOURNAL, 1308, 996, 1_760_000_000_000 << 18))
        metadata.reports.keep(
            [ReportRow("agent", "agent-1", "anonymous", 1_760_000_000_000, '{"state":"idle"}')]
        )
        slot = SlotRow(
            "watch", "5e0f7d52-6a43-4c0b-9a57-1f1e2d3c4b5a", "anonymous", "headrace",
            '{"database":"vmapi::vm","temporary":false}', 1308, "", 0,
        )  # fmt: skip
        assert metadata.slots.make(slot, str(bench.tail(FEED).newest), bench.clock.ms)
        points = encode_points([Point(62, 1_760_000_000_000, True), Point(64, 1_760_000_001_000, False)])
        moved = ProgressRow(
            "listener", "", "listener-1", FEED, "delivered", "inc", "", 1_760_000_001_000, points
        )
        metadata.progress.change([PROGRESS.key_of(moved)], lambda _key, _known: moved)
        metadata.keep_snapshot(SnapshotRow(FEED, "inc", 3, "https://db1.example:8480/snapshot", "A" * 43))
        metadata.raise_alarm(
            DuplicateEntry.code,
            "agent-3 was quarantined",
            bench.clock.ms,
            feed="acme.orders",
            agent_id="agent-3",
        )
        store.close()
        dump = cluster.run("pg_dump", "--inserts", "--no-owner", database="log").stdout
        path.with_suffix(".json").write_text(
            json.dumps(describe_log(dsn), indent=1, sort_keys=True) + "\n", encoding="utf-8"
        )
    # Lines for psql alone differ with its minor version.
    lines = (line for line in dump.splitlines(keepends=True) if not line.startswith("\\"))
    path.write_text("".join(lines), encoding="utf-8")


def describe_log(dsn: str) -> dict[str, Any]:
    """Everything that the log in a database holds, as plain values."""
    store = PostgresStore(parse_address(dsn), segment_bytes=SEGMENT_BYTES)
    bench, metadata = Bench(store), PostgresMetadata(store.pool)
    described = {
        "end": store.end(),
        "oldest": store.oldest_position(),
        "dropped": str(store.dropped_lsn()),
        "segments": [list(one) for one in store.segments()],
        "tails": msgspec.to_builtins(store.tails()),
        "entries": {
            tail.name: {number: value.decode() for number, value in bench.values(tail.name).items()}
            for tail in store.tails()
        },
        "lsns": [[str(lsn), number] for lsn, number in bench.walked()],
        "listeners": [list(row) for row in metadata.listeners(FEED)],
        "owners": {row.listener_id: metadata.owner(*row[:2]) for row in metadata.listeners(FEED)},
        "subscribers": [list(row) for row in metadata.subscribers()],
        "alarms": [list(row) for row in metadata.alarms()],
        "hydrations": [list(row) for row in metadata.hydrations(FEED)],
        "snapshot": list(metadata.snapshot(FEED) or ()),
        "reports": [list(row) for row in metadata.reports.all()],
        "slots": [list(row) for row in metadata.slots.all()],
        "progress": [[*row[:-1], row.points.hex()] for row in metadata.progress.of_feed(FEED)],
        "schemas": [[*row[:-1], row.value.decode()] for row in metadata.schemas.newest(FEED, 0, 9)],
    }
    store.close()
    return described
