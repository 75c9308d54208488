"""The index of schemas on every store: nothing of it is lost to retention, crashes, other servers or damage elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.entries.entry import Change
from headrace.errors import SchemaNotFound
from headrace.log.contract import Store
from headrace.log.files.store import FileStore
from headrace.log.metadata.contract import Metadata
from headrace.log.metadata.postgres import PostgresMetadata
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from headrace.log.postgres.connection import parse_address
from headrace.log.postgres.store import PostgresStore
from headrace.log.requests import Append
from headrace.log.schemas.entries import SchemaName
from headrace.log.schemas.index import SchemaIndex
from headrace.wire.entry import digest, encode_half
from tests.bench import AGENT, Bench
from tests.stores import SMALL_SEGMENT

FEED = "shop"


@dataclass
class Server:
    """A store with its metadata database and its index, as one server has them."""

    bench: Bench
    metadata: Metadata
    index: SchemaIndex

    @property
    def store(self) -> Store:
        return self.bench.store

    def post(self, version: int, *, table: str = "order", value: bytes = b"{}") -> int:
        """Append the schema of a table, and rows around it; returns its sequence id."""
        key = f"\0schema/main/{table}/{version}".encode()
        changes = [
            Change(b'{"id":1,"note":"\0schema/main/order/99"}', key=b"before"),
            Change(value, key=key, control="schema", table=("main", table)),
            Change(b"x" * 400, key=b"after"),
        ]
        halves = [encode_half(change) for change in changes]
        return self.bench.send(Append(FEED, AGENT, halves, digest(halves))).first_sequence_id + 1

    def fill(self, frames: int = 40) -> None:
        """Append rows, so many that segments fill."""
        for number in range(frames):
            self.bench.append(FEED, f"row {number}", "y" * 300)

    def look(self) -> None:
        """Bring the index up to the journal's end."""
        self.index.read_up_to(self.store.end())

    def versions(self, table: str = "order") -> list[int]:
        """Which versions from 1 on are answered, up to the first that is not; nothing is looked at first."""
        found: list[int] = []
        try:
            while True:
                name = SchemaName("main", table, len(found) + 1)
                found.append(self.index.schema(FEED, name).version)
        except SchemaNotFound:
            return found


Start = Callable[[], Server]
"""Opens one more server over the same journal; on files the one before must have ended."""


@pytest.fixture(params=["files", "postgres"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Start]:
    """Each store in turn, with a feed."""
    dsn = request.getfixturevalue("database").dsn if request.param == "postgres" else ""
    with ExitStack() as stack:

        def on_files() -> Server:
            stack.close()
            store = stack.enter_context(closing(FileStore(tmp_path, segment_bytes=SMALL_SEGMENT)))
            metadata = stack.enter_context(closing(SqliteMetadata(tmp_path / METADATA_NAME)))
            return Server(Bench(store), metadata, SchemaIndex(store, metadata))

        def on_postgres() -> Server:
            store = PostgresStore(parse_address(dsn), segment_bytes=SMALL_SEGMENT)
            stack.callback(store.close)
            metadata = PostgresMetadata(store.pool)
            return Server(Bench(store), metadata, SchemaIndex(store, metadata))

        yield on_files if request.param == "files" else on_postgres


@pytest.fixture
def server(start: Start) -> Server:
    """The first server, with a feed."""
    first = start()
    first.bench.register(FEED)
    return first


def hurt(server: Server) -> None:
    """Change the values of all schemas behind the back of whoever keeps their checksums."""
    if isinstance(server.metadata, PostgresMetadata):
        update = b"UPDATE headrace_log.table_schema SET value = 'another'::bytea"
        server.metadata._pool.run(lambda connection: connection.execute(update))
    elif isinstance(server.metadata, SqliteMetadata):
        with server.metadata._use() as database:
            database.execute("UPDATE table_schema SET value = x'00'")


def test_a_schema_is_answered_byte_for_byte_and_data_never_is(server: Server) -> None:
    at = server.post(1, value=b'{"columns": [1,  2]}\xff')
    server.look()
    found = server.index.schema(FEED, SchemaName("main", "order", 1))
    assert (found.value, found.sequence_id) == (b'{"columns": [1,  2]}\xff', at)
    with pytest.raises(SchemaNotFound, match=r"main\.order, version 99"):
        server.index.schema(FEED, SchemaName("main", "order", 99))
    with pytest.raises(SchemaNotFound):
        server.index.schema("another", SchemaName("main", "order", 1))


def test_a_schema_outlives_its_frame(server: Server) -> None:
    server.post(1)
    server.fill()
    server.post(2)
    server.look()
    assert server.store.drop_before(server.store.end()) > 0x100
    assert server.bench.tail(FEED).oldest > 2
    assert server.versions() == [1, 2]


def test_a_crash_between_an_append_and_its_row_loses_nothing(server: Server, start: Start) -> None:
    server.post(1)
    server.look()
    server.post(2)
    server.fill()
    server.post(3)
    again = start()  # nobody looked, nobody settled
    assert again.versions() == [1]
    again.look()
    assert again.versions() == [1, 2, 3]


def test_a_start_reads_on_from_where_the_index_stands(server: Server, start: Start) -> None:
    server.post(1)
    server.fill()
    server.look()
    server.index.settle()
    end = server.store.end()
    again = start()
    again.index.read_up_to(0)
    assert again.index.position == end, "nothing had to be read back"
    again.post(2)
    again.look()
    assert again.versions() == [1, 2]


def test_a_journal_that_no_index_was_kept_of_is_looked_over_whole(server: Server, start: Start) -> None:
    """What an older version wrote, or the metadata database was deleted."""
    server.post(1)
    server.fill()
    server.post(2)
    again = start()
    assert again.metadata.schemas.mark() is None
    again.look()
    assert again.versions() == [1, 2]
    assert [row.version for row in again.index.newest(FEED, 0, 9)] == [2]


def test_what_the_writer_looked_over_is_not_read_back(server: Server) -> None:
    server.post(1)
    server.look()
    before = server.store.end()
    server.fill(3)
    frames = server.store.walk(before, bytes_max=1 << 20)
    written = [(one.header, bytes(one.body)) for one in frames]
    padded = [(header, data.ljust(header.size)) for header, data in written]
    server.index.note(padded)
    server.index.note([(padded[-1][0]._replace(position=server.store.end()), b"." * 1000)])
    server.index.read_up_to(server.store.end() + 1000)
    assert server.index.position == server.store.end() + 1000, "nothing is there to be read"


def test_the_same_version_again_is_what_its_last_entry_says(server: Server) -> None:
    server.post(1, value=b"first")
    server.post(1, value=b"second")
    server.look()
    server.post(1, value=b"third")
    assert server.index.schema(FEED, SchemaName("main", "order", 1)).value == b"second"
    server.look()
    assert server.index.schema(FEED, SchemaName("main", "order", 1)).value == b"third"


def test_what_was_damaged_is_found_again_in_what_is_retained(server: Server, start: Start) -> None:
    server.post(1)
    server.look()
    server.index.settle()
    hurt(server)
    again = start()
    assert [damage.table for damage in again.metadata.damages.standing()] == ["table_schema"]
    again.look()
    assert again.metadata.check() == []
    assert again.index.schema(FEED, SchemaName("main", "order", 1)).value == b"{}"


def test_what_a_repair_removes_is_found_again_by_a_server_that_runs(server: Server) -> None:
    server.post(1)
    server.look()
    hurt(server)
    server.metadata.forget_damaged()
    assert server.versions() == []
    server.post(2)
    server.look()
    assert server.versions() == [1, 2]


@pytest.mark.parametrize("start", ["postgres"], indirect=True)
def test_servers_of_one_database_share_the_work(start: Start) -> None:
    one, two = start(), start()
    one.bench.register(FEED)
    one.post(1)
    two.store.refresh()
    two.look()
    two.index.settle()
    assert one.versions() == [1]
    two.post(2)
    one.store.refresh()
    one.look()
    assert two.versions() == [1, 2]
    one.index.settle()
    assert (mark := two.metadata.schemas.mark()) is not None
    assert mark.position == one.store.end()
    with ThreadPoolExecutor(2) as threads:
        one.post(3, value=b"three")
        two.store.refresh()
        for done in [threads.submit(server.look) for server in (one, two)]:
            done.result()
    assert one.versions() == two.versions() == [1, 2, 3]
