"""Makes a snapshot's body: a table with every kind of value, an empty one, and an object of the application's own query."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headrace.publisher.snapshot.draft import Draft
from headrace.publisher.sqlite.source import state_reader
from headrace.runtime.disk import Disk
from headrace.runtime.dsn import parse_dsn
from tests.states import take
from tests.unit.publisher.outboxes import AGENT, FEED, PLACE, application, attach, claim, opened

SNAPSHOT_ID = "018f3e0a-4c1e-4f7e-9a53-2f0d1c9b8e11"
TAKEN_AT_MS = 1_700_000_000_000
TABLES = """
CREATE TABLE account (
    id INTEGER PRIMARY KEY, owner TEXT NOT NULL, photo BLOB, rate REAL, paid BOOLEAN, opened DATE, extra JSON
);
INSERT INTO account VALUES
    (1, 'Zoë "Z" €', x'00ff', 0.1, 1, '2026-11-22', '{"b": [1.10]}'),
    (2, char(10, 9, 92), NULL, NULL, NULL, NULL, NULL);
CREATE TABLE unused (a TEXT, b INTEGER, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE vm (uuid TEXT PRIMARY KEY, state TEXT);
INSERT INTO vm VALUES ('v1', '{"state": "running",' || char(13, 10) || ' "n": 1.50}')"""
QUERY = "SELECT uuid AS key, state AS changes FROM vm"


def make_snapshot(path: Path) -> None:
    """Take the snapshot as the agent does, and write its body, uncompressed, to ``path``."""
    with tempfile.TemporaryDirectory(prefix="headrace-golden-") as folder:
        database = Path(folder) / "shop.db"
        with application(database) as app:
            app.executescript(TABLES)
        with opened(database) as source:
            attach(source, "account", "unused")
            claim(source, PLACE)
            reader = state_reader(parse_dsn(f"sqlite:///{database}"), FEED, QUERY)
            place, lines = take(source, reader, FEED, AGENT)
        making = Path(folder) / f"{SNAPSHOT_ID}.making"
        making.mkdir()
        Draft(making, FEED, Disk(), lambda _: None).write_state(place, lines, TAKEN_AT_MS)
        path.write_bytes((making / "identity").read_bytes())
