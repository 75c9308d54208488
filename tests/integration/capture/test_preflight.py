"""What is looked at before a capture begins, while the tables are changed: nothing is found that is not there."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pymysql
import pytest

from headrace.capture.mariadb.connection import connect, held, source_errors
from headrace.capture.preflight import check_source
from headrace.capture.settings import CaptureSettings
from headrace.errors import SourceLocked
from headrace.runtime.dsn import parse_dsn
from tests.mariadb import Database
from tests.scale import scaled
from tests.waiting import wait_until

STATEMENTS = (
    "CREATE OR REPLACE TABLE entry (id INT PRIMARY KEY, v INT)",
    "RENAME TABLE draft TO third, entry TO draft, third TO entry",
    "ALTER TABLE entry MODIFY v BIGINT",
    "ALTER TABLE entry MODIFY v INT",
    "DROP TABLE entry",
    "CREATE TABLE entry (id INT PRIMARY KEY, v INT)",
)


def settings_of(database: Database, *hidden: str) -> CaptureSettings:
    """Capture all of a database but these columns."""
    return CaptureSettings(
        feed=database.name,
        dsn=database.dsn,
        tables=(f"{database.name}.*",),
        exclude_columns=tuple(f"{database.name}.{one}" for one in hidden),
    )


@contextmanager
def changing(database: Database) -> Iterator[None]:
    """Change tables without a pause."""
    stop = threading.Event()
    failed: list[pymysql.err.MySQLError] = []

    def change() -> None:
        try:
            with closing(database.connect(autocommit=True)) as session, session.cursor() as cursor:
                while not stop.is_set():
                    for statement in STATEMENTS:
                        cursor.execute(statement)
        except pymysql.err.MySQLError as error:
            failed.append(error)

    worker = threading.Thread(target=change)
    worker.start()
    try:
        yield
    finally:
        stop.set()
        worker.join()
    assert not failed


def test_a_table_that_nobody_can_look_at_now_keeps_its_error(database: Database) -> None:
    database.sql("CREATE TABLE bare (v INT)")
    with closing(database.connect()) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM bare")
        altering = threading.Thread(target=database.sql, args=("ALTER TABLE bare ADD w INT",))
        altering.start()
        wait_until(
            lambda: database.server.sql(
                "SELECT 1 FROM information_schema.PROCESSLIST WHERE STATE LIKE '%metadata lock%'"
            ),
            30,
            what="an ALTER that waits",
        )
        with closing(connect(parse_dsn(database.dsn))) as session:
            with (
                pytest.raises(SourceLocked),
                source_errors(),
                held(session, f"{database.name}.bare", wait_s=1),
            ):
                pass
            (found,) = check_source(session, settings_of(database))
        reader.rollback()
        altering.join()
    assert found.table == (database.name, "bare")


@pytest.mark.parametrize("hidden", [(), ("*.v",)], ids=["tables", "rules"])
def test_tables_that_are_changed_meanwhile_are_not_found_unfit(
    database: Database, hidden: tuple[str, ...]
) -> None:
    for name in ("draft", "entry"):
        database.sql(f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)")
    settings = settings_of(database, *hidden)
    with changing(database), closing(connect(parse_dsn(database.dsn))) as session:
        found = [check_source(session, settings) for _ in range(scaled(40))]
    assert [one for one in found if one] == []
