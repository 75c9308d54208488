"""The audit's source side: a real MariaDB, its feed and its tables, equal in every type, and every difference by name."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from headrace.capture.mariadb.catalogue import ListedTable, list_tables
from headrace.capture.mariadb.connection import Source
from headrace.capture.selection import Selection
from headrace.capture.settings import load_capture_settings
from headrace.cli.pipeline_audit import lines_of
from headrace.errors import AuditBehind, SourceNotAudited, SourceShifted
from headrace.pipeline.audit import seeing
from headrace.pipeline.audit import source as source_side
from headrace.pipeline.audit.comparing import Comparing
from headrace.pipeline.audit.job import run_audit
from headrace.pipeline.audit.seeing import SourceAsked
from headrace.pipeline.audit.source import SourceRead, read_source
from headrace.pipeline.audit.verdicts import Audit, SourceVerdict
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables.reader import published_moment
from headrace.pipeline.tables.requests import leave_request
from headrace.pipeline.tables.states import Request
from headrace.runtime.dsn import Dsn
from tests.integration.capture.every_type import CREATE
from tests.integration.pipeline.audit import one_cell
from tests.integration.pipeline.audit.test_audit import publish_what_is_there
from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.mariadb import Server
from tests.servers import ServerProcess
from tests.waiting import wait_until


def asked(captured: CapturedSource, wait_s: float = 60.0) -> SourceAsked:
    return SourceAsked(load_capture_settings(captured.capture.config), captured.capture.environment, wait_s)


def audit(captured: CapturedSource, source: SourceAsked) -> Audit:
    endpoint = Endpoint(captured.server.url, retry_s=20.0)
    found = run_audit(captured.spark, captured.to, endpoint, source=source, entries_max=1000)
    assert not list(Path(captured.to).glob("_headrace/audit-*"))
    return found


def behind_the_binlog(captured: CapturedSource, *statements: str) -> None:
    """Run statements of which the binlog has nothing."""
    with closing(captured.database.server.connect_as_root()) as root, root.cursor() as cursor:
        cursor.execute(f"USE `{captured.database.name}`")
        cursor.execute("SET NAMES utf8mb4")
        cursor.execute("SET sql_log_bin = 0, time_zone = '+00:00', sql_mode = ''")
        for statement in statements:
            cursor.execute(statement)


def of_source(found: Audit, table: str) -> SourceVerdict:
    (one,) = [one.source for one in found.tables if one.table[1] == table]
    assert one is not None
    return one


def verdicts(captured: CapturedSource, files: Path) -> dict[str, SourceVerdict]:
    """Read the source into ``files``, and compare each of its tables with what is published of it."""
    files.mkdir()
    settings, environment, _ = asked(captured)
    read = read_source(settings.find_dsn(environment), settings.find_selection(), files)
    published = {tuple(one.table): one for one in published_moment(captured.to).tables}
    comparing = Comparing(captured.spark, Path(captured.to), len(one_cell.CELLS))
    return {one.name[1]: comparing.with_source(published[one.name], one) for one in read.tables}


def test_every_type_is_equal_until_a_cell_of_it_is_changed(captured: CapturedSource, tmp_path: Path) -> None:
    """One fold serves both: an audit's is made by the same code."""
    captured.sql(CREATE, "ALTER TABLE every DROP COLUMN g_point, DROP COLUMN g_any")
    captured.sql("INSERT INTO every (id, b_medium) VALUES (1, 'x')")
    captured.settle()
    captured.sql(
        "INSERT INTO every (id, b_medium, n_tiny, n_big, n_bits, n_decimal, s_text, s_json, e_set, t_date, t_time, "
        "t_datetime3, t_timestamp, m_inet4, m_inet6, n_float, n_double, n_real, n_numeric, n_zerofill, n_medium, t_time2, "
        "s_char, s_gbk, s_national) VALUES (2, x'00ff', 127, 0, b'0', 999999.999999, 'ü', "
        "'{\"a\": 1}', '', '9999-12-31', '-838:59:59', '2020-02-29 12:00:00.120', '2038-01-19 03:14:07', "
        "'255.255.255.255', 'ffff::1', 0.1, 0.3, -1e-30, -12345, 1.5, 77, '-00:00:01.50', 'é', '中', 'a ')",
        "INSERT INTO every (id, b_medium, s_text, t_date, n_real) VALUES (3, '', 'z', '0000-00-00', -0.0)",
        "INSERT INTO every (id, b_medium, s_text, t_date, t_datetime3) VALUES (5, '', 'a', '1000-01-01', "
        "'1582-10-10 00:00:00')",
        "INSERT INTO every (id, b_medium, t_date, t_datetime3) VALUES (6, '', '0001-01-01', '0044-03-15 23:59:59.9')",
        "UPDATE every SET s_varchar = 'new', n_big = 5, id = 30 WHERE id = 3",
        "INSERT INTO every (id, b_medium, t_date, t_datetime) VALUES (7, '', '0000-01-01', '0000-02-28 00:00:01')",
        *one_cell.rows(),
        "CREATE TABLE narrow (id BIGINT PRIMARY KEY, d DECIMAL(12,6), at DATETIME(6), n BIGINT, a VARCHAR(10))",
        "INSERT INTO narrow VALUES (1, 1.5, '2020-02-02', -3, 'x'), (2, 100, '2020-02-02 01:02:03', 0, NULL)",
        "ALTER TABLE narrow MODIFY id INT, MODIFY d DECIMAL(8,2), MODIFY n SMALLINT, RENAME COLUMN a TO b, "
        "ADD COLUMN m INT NOT NULL DEFAULT 7",
        "INSERT INTO narrow VALUES (3, 0.25, '2020-02-02 01:02:03.5', 7, 'q', 5), (4, 1, NULL, NULL, '', 6)",
        "UPDATE narrow SET id = 9 WHERE id = 1",
        "DELETE FROM narrow WHERE id = 2",
    )
    captured.settle()
    assert captured.bring().stopped == {}
    found = verdicts(captured, tmp_path / "same")
    assert all(one.equal for one in found.values()), found
    assert all(one.source == one.feed for one in found.values()), found
    rows = {name: one.source.rows for name, one in found.items() if one.source}
    assert rows == {"every": 6 + len(one_cell.CELLS), "narrow": 3}
    behind_the_binlog(captured, *one_cell.changes(), "DROP TABLE narrow")
    told = {one.key for one in verdicts(captured, tmp_path / "changed")["every"].differences}
    wanted = {f'{{"id":"{number}"}}': name for number, name in enumerate(one_cell.CELLS, one_cell.FIRST_ID)}
    assert told == set(wanted), [wanted.get(key, key) for key in told ^ set(wanted)]


def test_each_table_is_told_of_by_side_and_key_and_moments_that_do_not_come(
    mariadb: Server,
    log_server: ServerProcess,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = ('exclude-columns = ["*.person.secret"]', 'mask = ["*.person.mail"]')
    captured = CapturedSource(mariadb.create_captured("masked"), log_server, spark, tmp_path, *lines)
    captured.sql(
        "CREATE TABLE person (id INT PRIMARY KEY, secret INT, mail VARCHAR(20))",
        "INSERT INTO person VALUES (1, 2, 'a@b'), (2, NULL, NULL)",
        "CREATE TABLE halted (id INT PRIMARY KEY, v INT)",
        "INSERT INTO halted VALUES (1, 1)",
        "CREATE TABLE dropped (id INT PRIMARY KEY, v INT)",
        "INSERT INTO dropped VALUES (1, 1)",
        "CREATE TABLE t (id INT, name VARCHAR(10), d DECIMAL(5,2), PRIMARY KEY (id, name))",
        "INSERT INTO t SELECT seq, CONCAT('n', seq), seq FROM seq_1_to_9",
        "CREATE TABLE shaped (id INT PRIMARY KEY)",
        "CREATE TABLE gone (id INT PRIMARY KEY)",
        "INSERT INTO gone VALUES (1)",
    )
    try:
        captured.settle()
        captured.bring()
        for name in ("halted", "dropped"):
            captured.sql(f"ALTER TABLE {name} ADD COLUMN g INT AS (id + 1) VIRTUAL")
        captured.sql("INSERT INTO halted (id) VALUES (2)")
        captured.settle()
        with pytest.raises(AuditBehind, match="are published up to the entry"):
            audit(captured, asked(captured, 0.5))
        assert captured.bring().stopped.keys() == {"halted", "dropped"}
        leave_request(Path(captured.to), Request(("masked", "dropped"), forget=True))
        DeltaTable.forPath(spark, f"{captured.to}/masked.t").update("id = 8", {"d": "8.01"})
        publish_what_is_there(captured.to)
        behind_the_binlog(
            captured,
            "DELETE FROM t WHERE id = 2",
            "UPDATE t SET d = 3.01 WHERE id = 3",
            "INSERT INTO t VALUES (10, 'lost', 1)",
            "ALTER TABLE shaped ADD COLUMN more INT",
            "DROP TABLE gone",
            "CREATE TABLE unknown (id INT PRIMARY KEY)",
            "INSERT INTO unknown VALUES (1)",
            "CREATE TABLE untold (id INT PRIMARY KEY)",
        )
        check_verdicts(audit_with_a_copy(captured, monkeypatch))
        with_statements(captured, monkeypatch)
        captured.stop()
        captured.sql("INSERT INTO person VALUES (3, 4, 'c')")
        with pytest.raises(AuditBehind, match="the feed does not go up to"):
            audit(captured, asked(captured, 0.5))
        text = captured.capture.config.read_text()
        captured.capture.config.write_text(text.replace('feed = "feed-masked"', 'feed = "other"'))
        with pytest.raises(SourceNotAudited, match="--source is of other"):
            audit(captured, asked(captured))
    finally:
        captured.stop()


def audit_with_a_copy(captured: CapturedSource, monkeypatch: pytest.MonkeyPatch) -> Audit:
    """Where rows were copied behind the source's moment, the source is read again."""
    reads = []

    def read_then_copy(dsn: Dsn, selection: Selection, folder: Path) -> SourceRead:
        reads.append(read_source(dsn, selection, folder))
        if len(reads) == 1:
            captured.sql("INSERT INTO person VALUES (9, 9, 'z')")
            assert captured.capture.run("copy", "masked.person")[0] == 0
            captured.settle()
            captured.run()
        return reads[-1]

    with monkeypatch.context() as patched:
        patched.setattr(seeing, "read_source", read_then_copy)
        found = audit(captured, asked(captured))
    assert len(reads) == 2
    return found


def check_verdicts(found: Audit) -> None:
    assert not found.equal
    equal = [one for one in found.tables if one.equal]
    assert [(one.table[1], one.let_go) for one in equal] == [
        ("dropped", True),
        ("person", False),
        ("untold", False),  # without a row it need not be
    ]
    person = of_source(found, "person")
    assert (person.source, person.source and person.source.rows) == (person.feed, 3)
    table = of_source(found, "t")
    assert [(one.key, one.rows_in_source, one.rows_in_feed) for one in table.differences] == [
        ('{"id":"10","name":"lost"}', 1, 0),
        ('{"id":"2","name":"n2"}', 0, 1),
        ('{"id":"3","name":"n3"}', 1, 1),
    ]
    published = {one.table[1]: one for one in found.tables}
    assert [one.key for one in published["t"].differences] == ['{"id":"8","name":"n8"}']
    for name, rows in (("shaped", 0), ("gone", 1)):
        feed = published[name].feed
        assert feed is not None
        assert (feed, feed.rows) == (published[name].published, rows)
    assert {one.reason for one in found.tables} == {""}
    assert of_source(found, "shaped").reason == "its columns are others: more"
    assert of_source(found, "gone").reason == "the source has no such captured table"
    assert of_source(found, "unknown").reason == "the feed has no such table"
    assert "it is stopped after" in of_source(found, "halted").reason
    assert found.commit_ts is not None
    assert found.source is not None
    assert found.source.sequence_id <= found.sequence_id
    lines = lines_of(found)
    assert lines[1].startswith(f"the source at {found.source.gtid} (binlog.")
    assert "  masked.dropped: let go, not compared" in lines
    assert '      {"id":"10","name":"lost"}: only in the source' in lines
    assert '      {"id":"2","name":"n2"}: only in the feed' in lines
    assert '      {"id":"3","name":"n3"}: another row' in lines
    lines = lines_of(msgspec.structs.replace(found, tables=equal))
    assert lines[-1] == "equal: 2 tables: the source, the feed and what is published"


def with_statements(captured: CapturedSource, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that are altered at each read, also between the moment of a read and its end, can't be seen at one moment."""
    end, reads = threading.Event(), threading.Event()
    altered = [0]

    def alter() -> None:
        with closing(captured.database.connect(autocommit=True)) as app, app.cursor() as cursor:
            while not end.is_set():
                if reads.wait(0.05):  # while nothing is read, capture is to catch up
                    cursor.execute(f"ALTER TABLE person COMMENT '{altered[0]}'")
                    altered[0] += 1

    def list_while_altered(reading: Source) -> list[ListedTable]:
        before = altered[0]
        reads.set()
        found = list_tables(reading)
        wait_until(lambda: altered[0] > before + 1, 60.0, what="a statement after the read's moment")
        reads.clear()
        return found

    altering = threading.Thread(target=alter)
    altering.start()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(source_side, "list_tables", list_while_altered)
            with pytest.raises(SourceShifted, match="3 times"):
                audit(captured, asked(captured))
    finally:
        end.set()
        altering.join()
