"""Makes one of each stored format, for ``tests/golden/formats``: what a release wrote must stay readable for ever.

``scripts/golden`` calls it. A room that stores something adds a function to ``MAKERS`` and a test that opens what it made.
What is there is never made again: a format that changes gets a new generation beside the old one.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace.entries.entry import Change, Op
from headrace.entries.lsn import Lsn
from headrace.errors import DuplicateEntry
from headrace.log.files.store import FileStore
from headrace.log.history import frames_of_range
from headrace.log.metadata.owners import Claimant
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
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.requests import Append, Configure
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables, opened_source
from headrace.publisher.marked import RowPlace
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.runtime.dsn import parse_dsn
from headrace.wire.entry import decode_entry, digest, encode_half
from headrace.wire.frame import Area, decode_area
from headrace.wire.passages import Point, encode_points
from tests.bench import Bench, append, expecting
from tests.golden.bases import make_base
from tests.golden.bookmarks import make_bookmark_file, make_bookmark_tables, make_bookmarks, make_seen
from tests.golden.gaps import make_gap
from tests.golden.kwal import make_kwal, make_kwal_encrypted, make_owner
from tests.golden.log_postgres import make_log_postgres
from tests.golden.outbox_mysql import make_outbox_mysql
from tests.golden.rebuilt import make_rebuilt_folder
from tests.golden.snapshots import make_snapshot
from tests.postgres import Cluster

FORMATS = Path(__file__).parent / "formats"
CHANGED_IN = {
    "data": 8,
    "log-postgres.sql": 7,
    "bookmarks.db": 3,
    "bookmarks.ndjson": 2,
    "bookmarks-postgres.sql": 2,
    "kwal": 4,
}
"""Name below ``formats/N/`` -> the newest generation that it changed in; the others are still as generation 1 has them."""
SEGMENT_BYTES = 4096

LEASE = HydrationRow(
    "listener-1", "vmapi::vm", "inc", 65, "snapshot-1", 64, 1_760_000_000_000, 1_760_021_600_000
)
OFFER = SnapshotRow(
    "vmapi::vm", "inc", 3, "https://db1.example:8480/snapshot", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
)
SCHEMA = SchemaRow(
    "vmapi::vm", "main", "account", 1, 68, str(Lsn(1_760_000_000_000 << 18, 1, 68)), b'{"columns":[]}'
)
"""The last of ``CHANGES``, as it is kept."""

REPORT = ReportRow("agent", "agent-1", "anonymous", 1_760_000_000_000, '{"state":"idle"}')

MOVED = ProgressRow(
    "listener", "", "listener-1", "vmapi::vm", "delivered", "inc", "", 1_760_000_001_000,
    encode_points([Point(62, 1_760_000_000_000, True), Point(64, 1_760_000_001_000, False)]),
)  # fmt: skip

SLOT = SlotRow(
    "watch", "5e0f7d52-6a43-4c0b-9a57-1f1e2d3c4b5a", "anonymous", "headrace",
    '{"database":"vmapi::vm","temporary":false}', 1308, "", 0,
)  # fmt: skip

CHANGES = [
    Change(
        b'{"uuid":"v1", "state":"running"}', key=b"v1", source_tx=b"tx-7", source_time_ms=1_759_999_999_000
    ),
    Change(b'{"state":"stopped"}', key=b"v1", op=Op.PATCH, source_tx=b"tx-7", tx_index=1, tx_last=True),
    Change(
        b'{"uuid":"v1","state":"stopped"}', key=b"v1", op=Op.DELETE, before=b'{"n":1}', changed=("state", "n")
    ),
    Change(b'{"no":"key"}'),
    Change(b"[1, 2]", key=b'["main","account",7]', table=("main", "account"), copy=True),
    Change(b'{"columns":[]}', key=b"\x00schema/main/account/1", control="schema"),
]


def make_data_folder(folder: Path) -> None:
    """A server's data folder: two sealed segments or more, an open one, the mark, the metadata database."""
    store = FileStore(folder, segment_bytes=SEGMENT_BYTES)
    bench = Bench(store)
    bench.register("vmapi::vm", instance="i-1")
    halves = [encode_half(change) for change in CHANGES]
    area = {
        Area.SOURCE_POSITION: b"\x00gtid:7",
        Area.TRACEPARENT: b"00-" + b"1" * 32 + b"-" + b"2" * 16 + b"-01",
    }
    first = Append(
        "vmapi::vm",
        "agent-1",
        halves,
        digest(halves),
        sequence_ids=[63, *[-1] * 5],
        transaction_ends=(1,),
        area=area,
    )
    bench.send(first)
    bench.register(
        "acme.orders", "agent-2", tenant="acme", new_incarnation="1d0b1f8e-0000-4000-8000-000000000002"
    )
    for number in range(24):
        bench.clock.ms += 10
        feed, producer = (("vmapi::vm", "agent-1"), ("acme.orders", "agent-2"))[number % 2]
        bench.append(feed, f'{{"n":{number}}}', "x" * 200, producer=producer, source=str(number).encode())
    bench.register("acme.orders", "agent-3", takeover=True)
    bench.append("acme.orders", '{"after":"takeover"}', producer="agent-3", source=b"p")
    refused = bench.ask(append("acme.orders", "{}", producer="agent-3", sequence_ids=(1,)))[0]
    assert isinstance(refused, DuplicateEntry)
    bench.append("vmapi::vm", '{"the":"last"}', source=b"newest")
    store.close()
    (folder / "lock").unlink()
    metadata = SqliteMetadata(folder / METADATA_NAME)
    metadata.register_listener("listener-1", "vmapi::vm", hold=True, now_ms=bench.clock.ms)
    metadata.register_listener("listener-2", "vmapi::vm", False, bench.clock.ms, Claimant("tcns", False))
    metadata.put_position("listener-1", "vmapi::vm", "inc", 64, "1.2.64", bench.clock.ms)
    metadata.begin_subscriber("anonymous", "backup", str(Lsn(bench.clock.ms << 18, 1, 64)), bench.clock.ms)
    metadata.change_hydration("listener-1", "vmapi::vm", lambda _: LEASE)
    metadata.keep_snapshot(OFFER)
    metadata.schemas.begin(256)
    assert metadata.schemas.keep([SCHEMA], 256, SchemaMark(JOURNAL, 1308, 996, 1_760_000_000_000 << 18))
    metadata.reports.keep([REPORT])
    assert metadata.slots.make(SLOT, str(Lsn(bench.clock.ms << 18, 1, 64)), bench.clock.ms)
    metadata.progress.change([PROGRESS.key_of(MOVED)], lambda _key, _known: MOVED)
    metadata.raise_alarm(
        DuplicateEntry.code, "agent-3 was quarantined", bench.clock.ms, feed="acme.orders", agent_id="agent-3"
    )
    metadata.close()
    described = describe_data_folder(folder)
    folder.with_suffix(".json").write_text(
        json.dumps(described, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    (folder / "lock").unlink()


def make_shared_folder(folder: Path) -> None:
    """A data folder with a shared feed and a feed with settings: producers, instances and settings in state and frames."""
    bench = Bench(FileStore(folder, segment_bytes=SEGMENT_BYTES))
    for agent, instance in (("till-1", "one"), ("till-2", "one"), ("till-1", "two")):
        bench.register("hall", agent, instance, shared=True)
    bench.register("ledger", "agent-1")
    bench.one(Configure("ledger", key_field="id", changes="delta", expected_offset="required"))
    for number in range(1, 21):
        bench.clock.ms += 10
        seller = f"till-{number % 2 + 1}"
        bench.send(
            expecting(
                "hall", number, f'{{"seat":{number}}}' + " " * 200, producer=seller, source=seller.encode()
            )
        )
    bench.send(expecting("ledger", 1, '{"id":"a"}'))
    bench.register("hall", "till-3", "one", shared=True)
    bench.store.close()
    described = describe_data_folder(folder)
    folder.with_suffix(".json").write_text(
        json.dumps(described, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    (folder / "lock").unlink()
    (folder / METADATA_NAME).unlink()


def describe_data_folder(folder: Path) -> dict[str, Any]:
    """Everything that a data folder holds, as plain values."""
    store = FileStore(folder, segment_bytes=SEGMENT_BYTES)
    metadata = SqliteMetadata(folder / METADATA_NAME)
    described = {
        "end": store.end(),
        "global-ts": store.begin([]).global_ts,
        "tails": msgspec.to_builtins(store.tails()),
        "entries": {tail.name: _entries(store, tail.name) for tail in store.tails()},
        "listeners": [list(row) for row in metadata.listeners("vmapi::vm")],
        "subscribers": [list(row) for row in metadata.subscribers()],
        "alarms": [list(row) for row in metadata.alarms()],
        "hydrations": [list(row) for row in metadata.hydrations("vmapi::vm")],
        "snapshot": list(metadata.snapshot("vmapi::vm") or ()),
        "owners": {row.listener_id: metadata.owner(*row[:2]) for row in metadata.listeners("vmapi::vm")},
        "reports": [list(row) for row in metadata.reports.all()],
        "slots": [list(row) for row in metadata.slots.all()],
        "progress": [[*row[:-1], row.points.hex()] for row in metadata.progress.of_feed("vmapi::vm")],
        "schemas": [[*row[:-1], row.value.decode()] for row in metadata.schemas.newest("vmapi::vm", 0, 9)],
    }
    store.close()
    metadata.close()
    return described


def _entries(store: FileStore, feed: str) -> list[dict[str, Any]]:
    tail = store.tail(feed)
    assert tail is not None
    found: list[dict[str, Any]] = []
    for frame in frames_of_range(store, tail, tail.oldest, tail.head, entries_max=10_000, bytes_max=1 << 30):
        area = {str(tag): data.decode("latin-1") for tag, data in decode_area(frame.area).items()}
        for sequence_id, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
            entry = decode_entry(stored, sequence_id)
            fields = {name: _plain(getattr(entry.change, name)) for name in Change.__struct_fields__}
            place = {"sequence-id": sequence_id, "lsn": str(entry.lsn), "append-end": entry.append_end}
            names = {"tenant": entry.tenant_id, "key-prefix": entry.key_prefix}
            found.append(
                place | names | {name: value for name, value in fields.items() if value} | {"area": area}
            )
    return found


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return list(value) if isinstance(value, tuple) else value


def make_outbox(path: Path) -> None:
    """An application's database: a table attached and copied, rows of it and of ``Outbox.add`` that wait."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as application:
        application.execute(
            "CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, photo BLOB, rate REAL)"
        )
        application.execute("INSERT INTO account VALUES (1, 'Ada', x'00ff', 0.1)")
        attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed="bank", tables=("account",)))
        application.execute("BEGIN")
        application.execute("UPDATE account SET owner = 'Ada L.' WHERE id = 1")
        Outbox.add(application, "bank", {"uuid": "order-7", "state": "paid"})
        application.execute("COMMIT")


def make_outbox_postgres(path: Path) -> None:
    """The same in PostgreSQL, as a dump in SQL: some of it marked and processed, some only marked, some waiting."""
    with Cluster() as cluster:
        source_dsn = parse_dsn(cluster.create_database("bank"))
        with cluster.connect("bank") as application:
            application.execute(
                "CREATE TABLE account (id integer PRIMARY KEY, owner text NOT NULL, photo bytea, rate numeric(10, 4))"
            )
            application.execute("INSERT INTO account VALUES (1, 'Ada', '\\x00ff', 0.1)")
            attach_tables(source_dsn, AttachRequest(feed="bank", tables=("account",)))
            with opened_source(source_dsn) as source:
                source.claim("bank", "agent-1", FeedPlace("inc", 1, 1), 0)
                source.advance("bank", "agent-1", 1, None, 0)
                last = source.batch("bank", "agent-1")[-1]
                application.execute("UPDATE account SET owner = 'Ada L.' WHERE id = 1")
                source.advance("bank", "agent-1", 1, RowPlace(last.id, last.sequence_id), 0)
            with application.transaction():
                application.execute("UPDATE account SET id = 2")
                Outbox.add(application, "bank", {"uuid": "order-7", "state": "paid"})
        dump = cluster.run("pg_dump", "--inserts", "--no-owner", database="bank").stdout
    # Lines for psql alone differ with its minor version.
    path.write_text(
        "".join(line for line in dump.splitlines(keepends=True) if not line.startswith("\\")),
        encoding="utf-8",
    )


MAKERS: dict[str, Callable[[Path], None]] = {
    "data": make_data_folder,
    "shared": make_shared_folder,
    "rebuilt": make_rebuilt_folder,
    "bookmarks.db": make_bookmarks,
    "bookmarks.ndjson": make_bookmark_file,
    "bookmarks-postgres.sql": make_bookmark_tables,
    "seen.json": make_seen,
    "outbox.db": make_outbox,
    "outbox-postgres.sql": make_outbox_postgres,
    "outbox-mysql.sql": make_outbox_mysql,
    "log-postgres.sql": make_log_postgres,
    "snapshot.ndjson": make_snapshot,
    "kwal": make_kwal,
    "kwal-encrypted": make_kwal_encrypted,
    "owner.json": make_owner,
    "gap.json": make_gap,
    "base": make_base,
}
"""Name below ``formats/N/`` -> what makes it there."""


def kept(name: str) -> list[Path]:
    """Return what is kept of one format, oldest generation first."""
    return sorted(FORMATS.glob(f"*/{name}"), key=lambda path: int(path.parent.name))


def main() -> int:
    """Make what is not there yet; returns the exit code."""
    for name, make in MAKERS.items():
        target = FORMATS / str(CHANGED_IN.get(name, 1)) / name
        if target.exists():
            sys.stdout.write(f"golden: {target} is there, and stays as it is\n")
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        make(target)
        sys.stdout.write(f"golden: made {target}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
