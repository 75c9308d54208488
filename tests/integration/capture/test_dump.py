"""The binlog as a real server sends it: every event of its files once, over rotations, TLS and cut lines; errors by name."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.capture.binlog.decode import Decoder
from headrace.capture.binlog.event import GtidPosition, RowsChanged
from headrace.capture.mariadb.connection import connect, fetch
from headrace.capture.mariadb.dump import BinlogDump, default_replica_id, register
from headrace.capture.mariadb.server import current_gtid
from headrace.errors import (
    BinlogInvalid,
    HeadraceError,
    PositionPurged,
    SourceForbidden,
    SourceReplaced,
    SourceUnavailable,
)
from headrace.runtime.dsn import Dsn, parse_dsn
from tests.certificates import Authority
from tests.mariadb import CAPTURE_OPTIONS, Server
from tests.postgres_folders import private_folder
from tests.proxy import Proxy
from tests.waiting import wait_until

ROTATE, FORMAT, HEARTBEAT, ANNOTATION, GTID = 4, 15, 27, 160, 162
WITHIN_S = 60.0


class Reader:
    """Reads a dump in a thread, as capture does."""

    def __init__(self, dump: BinlogDump) -> None:
        self.dump = dump
        self.events: list[bytes] = []
        self.error: HeadraceError | None = None
        self._thread = threading.Thread(target=self._run, name="dump", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for event in self.dump.payloads():
                self.events.append(event)
        except HeadraceError as error:
            self.error = error

    @property
    def logged(self) -> list[bytes]:
        """What stands in the server's files, from the first transaction on."""
        found = [event for event in self.events if event[4] != HEARTBEAT and not is_made_up(event)]
        first = next((place for place, event in enumerate(found) if event[4] == GTID), len(found))
        return found[first:]

    @property
    def beats(self) -> int:
        return sum(event[4] == HEARTBEAT for event in self.events)

    def wait_end(self) -> HeadraceError | None:
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()
        return self.error


@contextmanager
def reading(
    dsn: Dsn, position: GtidPosition, replica_id: int = 77, heartbeat_s: float = 0.2
) -> Iterator[Reader]:
    dump = BinlogDump.open(dsn, position, replica_id, server_id=1, heartbeat_s=heartbeat_s)
    reader = Reader(dump)
    try:
        yield reader
    finally:
        dump.close()
        reader.wait_end()
        dump.release()


def is_made_up(event: bytes) -> bool:
    """Of what each connection begins with, and each file: no event has a place there, or only that of the file's head."""
    return event[4] == ROTATE and int.from_bytes(event[13:17], "little") == 0


def events_of(file: Path, after: int = 4) -> list[bytes]:
    """The events in a binlog file, each with header and checksum; without the texts of statements."""
    content = file.read_bytes()
    found = []
    while after < len(content):
        size = int.from_bytes(content[after + 9 : after + 13], "little")
        if content[after + 4] != ANNOTATION:
            found.append(content[after : after + size])
        after += size
    return found


def here(dsn: Dsn) -> GtidPosition:
    with closing(connect(dsn)) as session:
        return current_gtid(session)


def test_every_event_of_the_files_arrives_once_over_a_rotation(unsteady: Server) -> None:
    database = unsteady.create_captured("rotated")
    database.sql("CREATE TABLE t (a INT PRIMARY KEY, b TEXT)")
    unsteady.rotate()
    dsn = parse_dsn(database.dsn)
    start = here(dsn)
    with reading(dsn, start) as reader:
        wait_until(lambda: reader.beats, WITHIN_S, what="a heartbeat")
        assert reader.logged == []
        with database.connect(autocommit=True) as app, app.cursor() as cursor:
            for number in range(50):
                cursor.execute(f"INSERT INTO t VALUES ({number}, REPEAT('x', {number * 100}))")
        unsteady.rotate()
        database.sql("UPDATE t SET b = 'y'")
        *_, one, two = unsteady.binlogs()
        ends = events_of(one), events_of(two)
        assert ends[0][-1][4] == ROTATE
        first = next(place for place, event in enumerate(ends[0]) if event[4] == GTID)
        expected = [*ends[0][first:], *ends[1]]
        wait_until(lambda: reader.logged[-1:] == expected[-1:], WITHIN_S, what="the last event")
        assert kinds(reader.logged) == kinds(expected)
        assert [one for one in reader.logged if one[4] != FORMAT] == [
            one for one in expected if one[4] != FORMAT
        ]
    # Anybody who begins at any transaction gets what follows it.
    with reading(dsn, here(dsn)) as later:
        wait_until(lambda: later.beats, WITHIN_S, what="a heartbeat")
        assert later.logged == []


def kinds(events: list[bytes]) -> list[int]:
    return [event[4] for event in events]


def test_an_event_greater_than_a_packet_is_joined(unsteady: Server) -> None:
    database = unsteady.create_captured("large")
    database.sql("CREATE TABLE t (a INT PRIMARY KEY, b LONGBLOB)")
    ((before,),) = unsteady.sql("SELECT @@GLOBAL.max_allowed_packet")
    unsteady.sql(f"SET GLOBAL max_allowed_packet = {64 << 20}")
    dsn = parse_dsn(database.dsn)
    with reading(dsn, here(dsn)) as reader:
        database.sql(f"INSERT INTO t VALUES (1, REPEAT('z', {35 << 20})), (2, 'small')")
        wait_until(lambda: kinds(reader.logged)[-1:] == [16], WITHIN_S, what="the commit")
        great = max(reader.logged, key=len)
        assert great.count(b"z" * 1000) == (35 << 20) // 1000
        assert int.from_bytes(great[9:13], "little") == len(great)
        assert kinds(reader.logged)[-3:] == [great[4], great[4], 16]
    unsteady.sql(f"SET GLOBAL max_allowed_packet = {before}")


def test_over_tls_the_same_events_arrive(tmp_path: Path) -> None:
    authority = Authority(private_folder("certificates"))
    pair = authority.sign("server")
    pair.key.chmod(0o644)
    words = (f"--ssl-cert={pair.cert}", f"--ssl-key={pair.key}", f"--ssl-ca={authority.file}")
    with Server(*CAPTURE_OPTIONS, *words, "--require-secure-transport=ON") as server:
        server.sql("CREATE DATABASE test")
        server.sql("GRANT REPLICATION SLAVE ON *.* TO app IDENTIFIED BY 'a' REQUIRE SSL")
        server.sql("CREATE TABLE test.t (a INT PRIMARY KEY, b LONGTEXT)")
        dsn = parse_dsn(f"mariadb://app:a@127.0.0.1:{server.port}?ssl-ca={authority.file}")
        with reading(dsn, here(dsn)) as reader:
            wait_until(lambda: reader.beats, WITHIN_S, what="a heartbeat")
            server.sql("INSERT INTO test.t SELECT seq, REPEAT('x', 5000) FROM test.seq_1_to_200")
            expected = events_of(server.binlogs()[-1])
            wait_until(lambda: reader.logged[-1:] == expected[-1:], WITHIN_S, what="the last event")
            assert reader.logged == expected[-len(reader.logged) :]
            reader.dump.close()
            assert reader.wait_end() is None
        stranger = Authority(tmp_path, "stranger")
        with pytest.raises(SourceUnavailable, match="certificate"):
            connect(parse_dsn(f"mariadb://app:a@127.0.0.1:{server.port}?ssl-ca={stranger.file}"))
        # Without an authority nobody is checked, and there is TLS where the server has it.
        with closing(connect(parse_dsn(f"mariadb://app:a@127.0.0.1:{server.port}"))) as unchecked:
            ((_, cipher),) = fetch(unchecked, "SHOW STATUS LIKE 'Ssl_cipher'")
            assert cipher
            context: ssl.SSLContext = vars(unchecked)["ctx"]
            assert context.cert_store_stats()["x509"] == 0, "no authority was read"


@pytest.mark.parametrize("checksum", ["NONE", "CRC32"])
def test_events_come_with_the_checksums_that_the_server_writes(unsteady: Server, checksum: str) -> None:
    database = unsteady.create_captured(f"checked_{checksum}")
    dsn = parse_dsn(database.dsn)
    start = here(dsn)
    unsteady.sql(f"SET GLOBAL binlog_checksum = {checksum}")  # begins a new file
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    expected = events_of(unsteady.binlogs()[-1])[-1]
    with reading(dsn, start) as reader:
        wait_until(lambda: reader.logged[-1:] == [expected], WITHIN_S, what="the last event")
    unsteady.sql("SET GLOBAL binlog_checksum = CRC32")


def test_a_file_that_a_server_without_checksums_began_is_read_from_its_middle() -> None:
    with Server(*CAPTURE_OPTIONS, "--binlog-checksum=NONE") as server:
        database = server.create_captured("plain")
        database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
        dsn = parse_dsn(database.dsn)
        with reading(dsn, here(dsn)) as reader:
            database.sql("INSERT INTO t VALUES (1)")
            wait_until(lambda: kinds(reader.logged)[-1:] == [16], WITHIN_S, what="the commit")
        decoder = Decoder({})
        assert sum(isinstance(decoder.decode(event), RowsChanged) for event in reader.events) == 1


def first_error(dsn: Dsn, position: str) -> HeadraceError | None:
    with reading(dsn, GtidPosition.parse(position)) as reader:
        return reader.wait_end()


def test_a_position_that_the_server_has_not_is_an_error_of_its_own(unsteady: Server) -> None:
    database = unsteady.create_captured("purged")
    dsn = parse_dsn(database.dsn)
    start = here(dsn)
    last = start.gtids[0]
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    unsteady.rotate()
    unsteady.purge()
    purged = first_error(dsn, str(start))
    assert isinstance(purged, PositionPurged)
    assert "too old" in purged.detail
    assert "snapshot" in purged.advice
    assert isinstance(first_error(dsn, ""), PositionPurged)
    ahead = first_error(dsn, f"0-1-{last.sequence + 1000}")
    assert isinstance(ahead, SourceReplaced)
    assert "not in the master's binlog" in ahead.detail
    diverged = first_error(dsn, f"0-2-{last.sequence}")
    assert isinstance(diverged, SourceReplaced)
    with unsteady.connect_as_root() as root, root.cursor() as cursor:
        cursor.execute(f"SET SESSION gtid_seq_no = {last.sequence + 2000}")
        cursor.execute("INSERT INTO purged.t VALUES (1)")
    never_used = first_error(dsn, f"0-1-{last.sequence + 1000}")
    assert isinstance(never_used, SourceReplaced)
    assert "missing the GTID" in never_used.detail
    with pytest.raises(SourceReplaced, match="server_id 1 answers where 5 was"):
        BinlogDump.open(dsn, here(dsn), 77, server_id=5)


def test_a_binlog_that_the_server_cannot_read_is_an_error_of_its_own(unsteady: Server) -> None:
    database = unsteady.create_captured("damaged")
    dsn = parse_dsn(database.dsn)
    unsteady.rotate()
    start = here(dsn)
    database.sql("CREATE TABLE t (a INT PRIMARY KEY)")
    file = unsteady.binlogs()[-1]
    unsteady.rotate()
    with file.open("r+b") as content:
        content.seek(file.stat().st_size - len(events_of(file)[-1]) + 9)
        content.write(b"\xff\xff\xff\xff")  # the length of its last event
    damaged = first_error(dsn, str(start))
    assert isinstance(damaged, BinlogInvalid)
    assert "can't send its binlog" in damaged.detail
    unsteady.purge()


def test_who_may_not_replicate_is_told_what_names_the_grant(unsteady: Server) -> None:
    database = unsteady.create_database("forbidden")
    unsteady.sql("REVOKE REPLICATION SLAVE ON *.* FROM app@'%'")
    with pytest.raises(SourceForbidden, match="Access denied") as caught:
        BinlogDump.open(parse_dsn(database.dsn), GtidPosition(), 77, server_id=1)
    assert "GRANT" in caught.value.advice


def test_of_two_with_one_id_the_newer_stays_and_the_older_is_told(unsteady: Server) -> None:
    database = unsteady.create_captured("twice")
    dsn = parse_dsn(database.dsn)
    with reading(dsn, here(dsn), 5) as older, reading(dsn, here(dsn), 6) as other:
        wait_until(lambda: older.beats and other.beats, WITHIN_S, what="heartbeats")
        assert {row[0] for row in unsteady.sql("SHOW SLAVE HOSTS")} >= {5, 6}
        with closing(connect(dsn)) as session:
            register(session, 6)  # as a check does while capture runs: nobody is sent away
        with reading(dsn, here(dsn), 5) as newer:
            told = older.wait_end()
            assert isinstance(told, SourceUnavailable)
            assert "replica-server-id" in told.detail + told.advice
            wait_until(lambda: newer.beats, WITHIN_S, what="a heartbeat")
            beats = other.beats
            wait_until(lambda: other.beats > beats, WITHIN_S, what="the other to go on")


def test_a_silent_line_counts_as_lost_after_three_heartbeats(unsteady: Server) -> None:
    database = unsteady.create_captured("silent")
    with Proxy("127.0.0.1", unsteady.port) as proxy:
        dsn = parse_dsn(database.dsn.replace(f":{unsteady.port}/", f":{proxy.port}/"))
        with reading(dsn, here(dsn)) as reader:
            wait_until(lambda: reader.beats >= 2, WITHIN_S, what="heartbeats")
            proxy.freeze()
            silent = reader.wait_end()
            assert isinstance(silent, SourceUnavailable)
            assert "heartbeat" in silent.detail
            proxy.thaw()
        with reading(dsn, here(dsn)) as reader:
            wait_until(lambda: reader.beats, WITHIN_S, what="a heartbeat")
            proxy.reset()
            assert isinstance(reader.wait_end(), SourceUnavailable)


def _close(reader: Reader, server: Server) -> None:
    reader.dump.close()
    reader.dump.close()


ENDS: dict[str, tuple[Callable[[Reader, Server], None], type[HeadraceError] | None]] = {
    "closed": (_close, None),
    "killed": (lambda reader, server: server.kill(), SourceUnavailable),
    "stopped": (lambda reader, server: server.stop(), None),
}


@pytest.mark.parametrize("way", ENDS)
def test_a_reader_is_woken_whoever_ends_it(unsteady: Server, way: str) -> None:
    database = unsteady.create_captured(f"ends_{way}")
    end, kind = ENDS[way]
    dsn = parse_dsn(database.dsn)
    with reading(dsn, here(dsn)) as reader:
        wait_until(lambda: reader.beats, WITHIN_S, what="a heartbeat")
        end(reader, unsteady)
        error = reader.wait_end()
        assert (None if error is None else type(error)) is kind
    if way != "closed":
        unsteady.start()


def test_an_id_is_made_of_a_name_and_is_always_the_same() -> None:
    assert default_replica_id("shop/capture") == default_replica_id("shop/capture")
    assert default_replica_id("shop/capture") != default_replica_id("shop/other")
    assert all((1 << 31) <= default_replica_id(name) < (1 << 32) for name in ("", "a", "shop"))
