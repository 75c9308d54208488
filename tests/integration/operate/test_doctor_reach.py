"""``headrace doctor`` looks over the line: a server's version and clock, a source's fitness and clock, a database's log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path

import pytest

from headrace.publisher.outbox import Outbox
from tests.integration.operate.test_doctor import Undated, agent_config, answering, doctor, the
from tests.mariadb import CAPTURE_OPTIONS, Server
from tests.mariadb import Database as Captured
from tests.ports import free_port
from tests.postgres import Cluster, Database
from tests.servers import Feed, changes, serving


class Other(Undated):
    """A server of another version, on a machine whose clock is an hour ahead."""

    said_version = "0.0.1"

    def date_time_string(self, timestamp: float | None = None) -> str:
        return format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)


def test_a_server_of_another_version_whose_clock_is_ahead(tmp_path: Path) -> None:
    with answering(Other) as url:
        found = doctor("--server", url, cwd=tmp_path)
    version = the(found, "server-version", "warn")
    assert (version["verdict"], version["code"]) == ("warn", "format-too-new")
    assert "Headrace 0.0.1" in version["reason"]
    clock = the(found, "server-clock", "warn")
    assert (clock["verdict"], clock["code"]) == ("warn", "clock-lead")
    assert "+3" in clock["reason"]


def test_a_source_whose_clock_is_behind(database: Database, tmp_path: Path) -> None:
    with database.connect() as made:
        Outbox.create(made)
    agent_config(tmp_path, dsn=json.dumps(database.dsn))
    assert [one["verdict"] for one in doctor(cwd=tmp_path)["source-clock"]] == ["ok"]
    database.sql("CREATE SCHEMA behind")
    database.sql(
        "CREATE FUNCTION behind.clock_timestamp() RETURNS timestamptz LANGUAGE sql"
        " RETURN pg_catalog.clock_timestamp() - interval '90 s'"
    )
    database.sql(
        f'ALTER DATABASE "{database.name}" SET search_path = behind, pg_catalog, public',
    )
    found = doctor(cwd=tmp_path)
    clock = the(found, "source-clock", "warn")
    assert (clock["verdict"], clock["code"]) == ("warn", "clock-lead")
    assert "-90" in clock["reason"] or "-89" in clock["reason"]


@pytest.fixture(scope="module")
def unfit() -> Iterator[Server]:
    """A MariaDB whose binlog holds statements, not rows."""
    options = [one for one in CAPTURE_OPTIONS if "format" not in one]
    with Server(*options, "--binlog-format=STATEMENT") as running:
        yield running


def test_a_captured_source_that_is_unfit_and_one_that_is_not_there(unfit: Server, tmp_path: Path) -> None:
    database = unfit.create_captured("unfit")
    config = tmp_path / "capture.toml"
    config.write_text(f'feed = "shop"\nagent-id = "capture-1"\ndsn = {json.dumps(database.dsn)}\n')
    found = doctor(cwd=tmp_path, code=1)
    wrong = the(found, "captured-source", "fail")
    assert (wrong["verdict"], wrong["code"]) == ("fail", "source-unfit")
    assert "binlog_format" in wrong["reason"]
    config.write_text(
        f'feed = "shop"\nagent-id = "capture-1"\ndsn = "mariadb://app@127.0.0.1:{free_port()}/unfit"\n'
    )
    assert the(doctor(cwd=tmp_path, code=1), "captured-source", "fail")["code"] == "source-unavailable"


def test_a_captured_source_that_is_fit(tmp_path: Path) -> None:
    with Server(*CAPTURE_OPTIONS) as running:
        database = running.create_captured("fit")
        assert verdict_of(database, tmp_path) == "warn", "there is nothing to capture"
        database.sql("CREATE TABLE item (id INT PRIMARY KEY)")
        assert verdict_of(database, tmp_path) == "ok"


def verdict_of(database: Captured, folder: Path) -> str:
    """The one thing that is said of this source."""
    (folder / "capture.toml").write_text(
        f'feed = "shop"\nagent-id = "capture-1"\ndsn = {json.dumps(database.dsn)}\n'
    )
    (found,) = doctor(cwd=folder)["captured-source"]
    return str(found["verdict"])


def test_a_log_in_a_database(cluster: Cluster, tmp_path: Path) -> None:
    store = cluster.create_database("doctored")
    with serving(tmp_path / "server", args=["--store", store]) as server:
        feed = Feed(server, "shop")
        assert feed.register().status_code == 200
        for number in range(3):
            assert feed.post({"changes": changes(number)}).status_code == 200
    for words in ((), ("--deep",)):
        assert [one["verdict"] for one in doctor("--store", store, *words, cwd=tmp_path)["store"]] == ["ok"]
    damage = "set_byte(data, length(data) - 5, get_byte(data, length(data) - 5) # 1)"
    newest = "(SELECT max(position) FROM headrace_log.frame)"
    cluster.sql(f"UPDATE headrace_log.frame SET data = {damage} WHERE position = {newest}", "doctored")
    found = doctor("--store", store, "--deep", cwd=tmp_path, code=1)
    assert the(found, "store", "fail")["code"] == "journal-corrupt"
    assert doctor("--store", store, cwd=tmp_path)["store"][0]["verdict"] == "ok", (
        "only --deep reads every byte"
    )
    gone = store.replace(f":{cluster.port}/", f":{free_port()}/")
    assert the(doctor("--store", gone, cwd=tmp_path, code=1), "store", "fail")["code"] == "store-unavailable"
