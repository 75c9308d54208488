"""``headrace capture check``, ``status`` and ``copy`` beside a real MariaDB and a real server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from headrace.capture.changes import Append
from headrace.capture.control import watermark_entry
from headrace.capture.feed import CaptureFeed
from headrace.capture.mariadb.connection import connect
from headrace.capture.mariadb.server import current_gtid, current_place
from headrace.capture.position import CopyProgress, SourcePosition
from headrace.capture.requests import CopyRefusal, CopyRequests
from headrace.client.http import FeedClient
from headrace.client.log_append import LogAppendClient
from headrace.runtime.disk import Disk
from headrace.runtime.dsn import parse_dsn
from tests.integration.capture.commands import TIMEOUT_S, Capture
from tests.mariadb import Database, Server
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

GUIDE = (Path(__file__).parents[3] / "docs" / "howto" / "capture.md").read_text(encoding="utf-8")
COMMIT_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server"), grpc=True) as running:
        yield running


def test_check_finds_a_fit_source_fit(tmp_path: Path, database: Database, server: ServerProcess) -> None:
    database.sql("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), email VARCHAR(80))")
    capture = Capture(tmp_path, database, server, f'mask = ["{database.name}.users.email"]')
    assert capture.run("check") == (0, "the source is fit\n", "")
    assert capture.document("check") == {"fit": True, "findings": []}


def test_the_set_up_of_the_guide_is_fit(tmp_path: Path, server: ServerProcess) -> None:
    options, statements = (
        re.findall(rf"```{kind}\n(.*?)```", GUIDE, re.DOTALL)[0] for kind in ("ini", "sql")
    )
    words = re.findall(r"^(\w+) *= *(\w+)", options, re.MULTILINE)
    assert len(words) == 8
    with Server(*(f"--{name.replace('_', '-')}={value}" for name, value in words)) as mariadb:
        database = mariadb.create_database("shop")
        database.sql("CREATE TABLE users (id INT PRIMARY KEY)")
        for statement in re.findall(r"(.+?);.*\n", statements):
            mariadb.sql(statement)
        capture = Capture(tmp_path, database, server, 'longest-outage = "6d"')
        capture.environment["HEADRACE_DSN"] = f"mariadb://headrace:PASSWORD@127.0.0.1:{mariadb.port}/"
        assert capture.run("check") == (0, "the source is fit\n", "")


def test_check_names_what_stands_in_the_way(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    database.sql("CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20), born DATE, shape POINT)")
    capture = Capture(
        tmp_path,
        database,
        server,
        f'exclude-columns = ["{database.name}.users.shape", "{database.name}.users.nmae"]',
        'longest-outage = "3000d"',
    )
    code, out, _ = capture.run("check", "--mask", f"{database.name}.*.born,*.users.id")
    assert code == 1
    assert out.endswith("the source is not fit\n")
    assert "SET GLOBAL binlog_expire_logs_seconds" not in out, "the binlog is kept for ever here"
    assert f"error: {database.name}.users: {database.name}.users.id is in the handle key" in out
    assert f"error: exclude-columns: '{database.name}.users.nmae' names no column" in out
    assert "shape" not in out, "what is left out may be of any type"
    findings = capture.document("check", "--mask", f"{database.name}.*.born", code=1)["findings"]
    assert [(one["severity"], one["table"]) for one in findings] == [
        ("error", [database.name, "users"]),
        ("error", None),
    ]
    assert "is of the type date: only text can be masked" in findings[0]["detail"]
    assert all(one["remedy"] for one in findings)


def test_status_says_how_far_the_feed_is(tmp_path: Path, database: Database, server: ServerProcess) -> None:
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)")
    database.sql(
        "CREATE TABLE orders (id INT PRIMARY KEY, user INT, "
        "CONSTRAINT owner FOREIGN KEY (user) REFERENCES users (id) ON DELETE CASCADE)"
    )
    capture = Capture(tmp_path, database, server)
    code, _, err = capture.run("status")
    assert (code, "feed-not-found" in err) == (1, True)
    with closing(connect(parse_dsn(database.dsn))) as source:
        place = current_place(source)
        position = SourcePosition(
            gtid=str(current_gtid(source)),
            file=place.file,
            offset=place.offset,
            server_id=1,
            commit_ts=COMMIT_MS << 18,
            table_id=7,
            time_s=COMMIT_MS // 1000 - 60,
            copies=(CopyProgress(table=(database.name, "users"), rows=41, id="1-a"),),
            stopped={f"{database.name}.orders": "it has GEOMETRY"},
        )
    asyncio.run(register(server, capture.feed))
    empty = capture.document("status")
    assert (empty["position"], empty["next-sequence-id"], empty["owner"]) == (None, 1, "capture")
    asyncio.run(register(server, capture.feed, position))
    document = capture.document("status", code=1)
    assert document["position"]["gtid"] == position.gtid
    assert document["position"]["committed-at"] == "2023-11-14T22:13:20.000Z"
    assert document["source"] == {"gtid": position.gtid, "behind-transactions": 0, "lag-ms": 0}
    assert "the feed has everything" in capture.run("status")[1]
    assert document["copies"] == [{"table": f"{database.name}.users", "copied-rows": 41, "request": "1-a"}]
    assert document["stopped"] == [{"table": f"{database.name}.orders", "reason": "it has GEOMETRY"}]
    assert document["cascades"] == [
        {"table": f"{database.name}.orders", "key": "owner", "actions": ["ON DELETE CASCADE"]}
    ]
    for number in range(3):
        database.sql(f"INSERT INTO users VALUES ({number})")
    document = capture.document("status", code=1)
    assert document["source"]["behind-transactions"] == 3
    assert document["source"]["lag-ms"] > 1000
    code, out, _ = capture.run("status")
    assert code == 1
    for line in ("3 transactions and", "41 rows so far", f"stopped: {database.name}.orders", "cascade: "):
        assert line in out
    position = msgspec.structs.replace(position, commit_ts=1 << 62, whole=False)
    asyncio.run(register(server, capture.feed, position))
    document = capture.document("status", code=1)
    assert document["position"]["whole"] is False
    assert document["source"]["lag-ms"] > 1000, "the age of what was taken, whatever its commitTs"
    position = msgspec.structs.replace(position, gtid=document["source"]["gtid"])
    asyncio.run(register(server, capture.feed, position))
    assert "rows are still to be copied" in capture.run("status")[1]
    capture.environment["HEADRACE_DSN"] = "mariadb://nobody@127.0.0.1:1/"
    document = capture.document("status", code=1)
    assert document["source"] is None
    assert document["source-error"]["code"] == "source-unavailable"
    assert document["position"]["gtid"] == position.gtid


async def register(server: ServerProcess, feed: str, position: SourcePosition | None = None) -> None:
    """Claim the feed as capture, and put a WATERMARK with this position into it."""
    async with (
        FeedClient(server.url) as http,
        LogAppendClient(server.grpc_address) as appends,
        await CaptureFeed.open(http, appends, feed, "capture") as opened,
    ):
        if position is not None:
            await opened.send(Append([watermark_entry(COMMIT_MS << 18, COMMIT_MS).alone()], position))
            await opened.flush()


def test_copy_waits_until_capture_has_begun_with_it(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    capture = Capture(tmp_path, database, server)
    table = f"{database.name}.users"
    requests = CopyRequests(tmp_path / "state", capture.feed, Disk())
    process = capture.start("copy", table)
    try:
        wait_until(lambda: requests.waiting() or process.poll() is not None, what="the request")
        (request,) = requests.waiting()
        assert (request.database, request.table) == (database.name, "users")
        assert process.poll() is None
        requests.done(request.id)
        out, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, f"the copy of {table} has begun\n", "")


def test_copy_tells_why_capture_refuses_it(tmp_path: Path, database: Database, server: ServerProcess) -> None:
    capture = Capture(tmp_path, database, server)
    requests = CopyRequests(tmp_path / "state", capture.feed, Disk())
    process = capture.start("copy", f"{database.name}.users")
    try:
        wait_until(lambda: requests.waiting() or process.poll() is not None, what="the request")
        refusal = CopyRefusal("table-not-found", "it is gone", "Name another.")
        requests.refuse(requests.waiting()[0].id, refusal)
        _, err = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 2
    assert err == "error: it is gone\ncode: table-not-found\nhint: Name another.\n"


def test_copy_without_waiting(tmp_path: Path, database: Database, server: ServerProcess) -> None:
    capture = Capture(tmp_path, database, server)
    document = capture.document("copy", f"{database.name}.users", "--no-wait")
    (request,) = CopyRequests(tmp_path / "state", capture.feed, Disk()).waiting()
    assert document == {"request": request.id, "table": f"{database.name}.users", "begun": False}
    code, _, err = capture.run("copy", "elsewhere.users")
    assert (code, "not captured" in err) == (2, True)
    code, _, err = capture.run("copy", "users")
    assert (code, "names no table" in err) == (2, True)
