"""``headrace log verify``, ``dump`` and ``repair`` with ``--store``: what they find in a shared log, while servers run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.errors import DsnInvalid, JournalCorrupt, StoreUnavailable
from headrace.log.damage import DamageKind
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.opening import StoreAddress, examine_address, frames_of_address, parse_store
from headrace.log.postgres.store import PostgresStore
from tests import forks
from tests.bench import Bench
from tests.integration.store_postgres.shared import opened
from tests.integration.store_postgres.test_damage import DAMAGE
from tests.postgres import Database
from tests.stores import SMALL_SEGMENT


@pytest.fixture
def bench(database: Database) -> Iterator[Bench]:
    """A server's store, open all the time, with two feeds and a place of each kind."""
    with opened(database.dsn, segment_bytes=SMALL_SEGMENT) as running:
        for feed in ("hurt", "whole"):
            running.register(feed)
        for number in range(1, 6):
            running.append("hurt", f'{{"h":{number}}}', f'{{"h":{number}.5}}')
            running.append("whole", f'{{"w":{number}}}')
        metadata = metadata_of(running)
        metadata.register_listener("l", "hurt", True, 1)
        metadata.begin_subscriber("anonymous", "", str(running.tail("hurt").newest), 2)
        yield running


def metadata_of(bench: Bench) -> PostgresMetadata:
    assert isinstance(bench.store, PostgresStore)
    return PostgresMetadata(bench.store.pool)


def log(database: Database, *words: str) -> subprocess.CompletedProcess[str]:
    command = [*forks.HEADRACE, "log", *words, "--store", database.dsn]
    return forks.run(command, capture_output=True, text=True, timeout=60, check=False)


def document(database: Database, *words: str, code: int = 0) -> Any:
    done = log(database, *words, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_sound_log(bench: Bench, database: Database) -> None:
    found = document(database, "verify")
    assert found["store"].startswith("postgresql://")
    assert (found["whole"], found["damages"], found["notes"]) == (True, [], [])
    assert (found["entries"], found["frames"]) == (15, 12)
    assert (found["end-position"], found["segments"]) == (bench.store.end(), len(bench.store.segments()))
    assert document(database, "verify", "whole")["entries"] == 5
    assert "all whole" in log(database, "verify").stdout
    dumped = document(database, "dump", "hurt", "--from", "4", "--limit", "3")["entries"]
    assert [entry["sequence-id"] for entry in dumped] == [4, 5, 6]
    assert [json.loads(line)["changes"] for line in log(database, "dump", "whole").stdout.splitlines()] == [
        {"w": number} for number in range(1, 6)
    ]
    assert document(database, "repair") == {
        "done": False, "steps": [], "lost": {}, "new-incarnations": [], "damages-left": 0,
    }  # fmt: skip


def test_dump_after_retention(bench: Bench, database: Database) -> None:
    bench.store.drop_before(bench.store.segments()[1].first_position)
    assert document(database, "verify")["whole"] is True
    entries = document(database, "dump", "whole")["entries"]
    oldest = bench.tail("whole").oldest
    assert [entry["sequence-id"] for entry in entries] == list(range(oldest, 6))


@pytest.mark.parametrize("kind", list(DAMAGE))
def test_damaged_frame_is_found(bench: Bench, database: Database, kind: str) -> None:
    tail, address = bench.tail("hurt"), parse_store(database.dsn)
    (place,) = bench.store.places(tail.region_id, 5, 5, frames_max=1)
    database.sql(DAMAGE[kind].format(f"position = {place.position}"))
    damage = examine_address(address).damages[0]
    assert damage.position == place.position
    assert damage.kind in {DamageKind.PAYLOAD, DamageKind.HOLE, DamageKind.GAP}
    assert f"{place.position:#x}" in damage.detail
    assert f"{place.position:#x}" in damage.where
    assert sequence_ids(address, "hurt", 1) == [1, 2, 3, 4, "damage"]
    assert sequence_ids(address, "hurt", 9) == [9, 10]
    assert sequence_ids(address, "whole", 1) == [1, 2, 3, 4, 5]


def sequence_ids(address: StoreAddress, feed: str, first: int) -> list[int | str]:
    """What a dump prints, by sequence id, and whether it ends with an error."""
    found: list[int | str] = []
    try:
        for frame in frames_of_address(address, feed, first):
            found += range(frame.header.first_sequence_id, frame.header.last_sequence_id + 1)
    except JournalCorrupt:
        found.append("damage")
    return found


def test_damaged_frame_is_shown(bench: Bench, database: Database) -> None:
    (place,) = bench.store.places(bench.tail("hurt").region_id, 5, 5, frames_max=1)
    database.sql(DAMAGE["body"].format(f"position = {place.position}"))
    (damage,) = document(database, "verify", code=1)["damages"]
    assert (damage["kind"], damage["feed"], damage["position"]) == ("frame-payload", "hurt", place.position)
    assert (damage["first-sequence-id"], damage["last-sequence-id"]) == (5, 6)
    assert document(database, "verify", "whole")["whole"] is True
    dumped = log(database, "dump", "hurt")
    assert dumped.returncode == 3, dumped.stderr
    assert len(dumped.stdout.splitlines()) == 4
    assert f"{place.position:#x}" in dumped.stderr
    left = log(database, "repair", "--yes")
    assert (left.returncode, "restore the schema" in left.stdout) == (1, True)


ROWS = {
    "feed's state": ("feed", "tail = set_byte(tail, 20, 65)", "name = 'hurt'", "feed-state"),
    "segment": ("segment", "state = set_byte(state, 5, 65)", "first_position = 256", "segment-start"),
    "journal's end": ("journal", "end_position = end_position + 64", "true", "end"),
    "journal's end below": ("journal", "end_position = end_position - 64", "true", "tables"),
    "journal's clock": ("journal", "global_ts = global_ts - 1000", "true", "tables"),
    "frame's clock": ("frame", "last_global_ts = last_global_ts - 1", "position = 256", "control-frame"),
    "no journal": ("journal", "only_row = true", "false", "tables"),
}


@pytest.mark.parametrize("what", list(ROWS))
def test_damaged_row_of_another_table_is_shown(bench: Bench, database: Database, what: str) -> None:
    assert bench.store.end()
    table, change, where, kind = ROWS[what]
    if where == "false":
        database.sql(f"DELETE FROM headrace_log.{table}")
    database.sql(f"UPDATE headrace_log.{table} SET {change} WHERE {where}")
    damage = examine_address(parse_store(database.dsn)).damages[0]
    assert (damage.kind, str(damage.file)) == (kind, f"headrace_log.{'frame' if kind == 'end' else table}")


def test_damaged_metadata_rows_are_removed_while_servers_run(bench: Bench, database: Database) -> None:
    database.sql("UPDATE headrace_log.subscriber SET seen_at_ms = 3")
    (damage,) = document(database, "verify", code=1)["damages"]
    assert (damage["kind"], damage["file"]) == ("metadata", "headrace_log.subscriber")
    assert "anonymous" in damage["detail"]
    planned = document(database, "repair")
    assert (planned["done"], len(planned["steps"])) == (False, 1)
    assert len(document(database, "verify", code=1)["damages"]) == 1, "a plan changes nothing"
    assert document(database, "repair", "--yes")["damages-left"] == 0
    assert document(database, "verify")["whole"] is True
    metadata = metadata_of(bench)
    assert metadata.subscribers() == []
    assert [row.listener_id for row in metadata.listeners("hurt")] == ["l"]


def test_bad_input(bench: Bench, database: Database) -> None:
    assert bench.store.end()
    assert document(database, "dump", "nobody", code=1)["code"] == "feed-not-found"
    assert document(database, "verify", "nobody", code=1)["code"] == "feed-not-found"
    refused = document(database, "repair", "--skip", code=2)
    assert refused["code"] == "usage"
    assert "backup" in refused["hint"]
    for address in ("postgresql://127.0.0.1:1/nowhere", "mysql://host/x"):
        with pytest.raises((StoreUnavailable, DsnInvalid)):
            examine_address(parse_store(address))


def test_database_without_a_log_stays_without(database: Database) -> None:
    assert document(database, "verify", code=1)["code"] == "store-unavailable"
    assert database.sql("SELECT to_regnamespace('headrace_log')") == [(None,)]
