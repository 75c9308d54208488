"""Makes one of each format in which a consumer keeps its place: SQLite, text, PostgreSQL, and what it has seen."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from msgspec import Raw

from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.listener import BookmarkStore, Change, FileBookmarks, ParkedEntry, Seen, SqliteBookmarks
from headrace.listener.parking import ParkedMax
from headrace.listener.postgres import PostgresBookmarks
from headrace.wire.documents import EntryOut
from tests.postgres import Cluster

PLACE = Bookmark("inc", 50, Lsn.parse("0687efa7e7b00000.0000000001.0000000050"))
HYDRATED = Bookmark("inc", 40, None, "snapshot-1")
FILTER = '{"changed":"alias,nics","shard":"2/8"}'
PARKED = [
    ParkedEntry(
        sequence_id=48, incarnation="inc", key="text:k1", held=False, reason="exit code 7", attempts=5,
        parked_at="2026-11-22T04:00:00.000Z",
        entry=Raw(b'{"sequence-id":48,"lsn":"0687efa7e7b00000.0000000001.0000000048","key":"k1","changes":{"n":1.10}}'),
    ),
    ParkedEntry(
        sequence_id=50, incarnation="inc", key="text:k1", held=True, reason="", attempts=0,
        parked_at="2026-11-22T04:00:01.000Z",
        entry=Raw(b'{"sequence-id":50,"lsn":"0687efa7e7b00000.0000000001.0000000050","key":"k1","changes":{"n":2}}'),
    ),
]  # fmt: skip


def fill(store: BookmarkStore) -> None:
    """Store a place, one that comes from a snapshot, one made with a filter, and two parked entries."""
    with closing(store):
        for listener_id in ("my-service", "new-service", "tcns.2-of-8"):
            store.claim(listener_id, "vmapi::vm")
        for entry in PARKED:
            store.park("my-service", "vmapi::vm", entry, PLACE, ParkedMax(10))
        store.store("new-service", "vmapi::vm", HYDRATED)
        store.set_filter("tcns.2-of-8", "vmapi::vm", FILTER)
        store.store("tcns.2-of-8", "vmapi::vm", PLACE)


def make_bookmarks(path: Path) -> None:
    """A listener's bookmark file."""
    fill(SqliteBookmarks(path))


def make_bookmark_file(path: Path) -> None:
    """The same as text."""
    fill(FileBookmarks(path))
    path.with_name(f"{path.name}.lock").unlink()


def make_bookmark_tables(path: Path) -> None:
    """The same in PostgreSQL, as a dump in SQL."""
    with Cluster() as cluster:
        fill(PostgresBookmarks(cluster.create_database("app")))
        dump = cluster.run("pg_dump", "--inserts", "--no-owner", database="app").stdout
    # Lines for psql alone differ with its minor version.
    path.write_text(
        "".join(line for line in dump.splitlines(keepends=True) if not line.startswith("\\")),
        encoding="utf-8",
    )


def make_seen(path: Path) -> None:
    """What a consumer has seen: 1 to 3 and 5 of one history, 1 of a later one."""
    seen = Seen()
    for number, incarnation in ((1, "inc"), (2, "inc"), (3, "inc"), (5, "inc"), (1, "inc-2")):
        seen.note(Change(incarnation, EntryOut(sequence_id=number, lsn="1.1.1", committed_at="")))
    path.write_bytes(seen.encode())
