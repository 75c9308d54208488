"""The data folder is deleted under load and rebuilt from the archive: who goes on, who stops, and what each is told."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from headrace.archive.files.folder import Folder
from headrace.backup.rebuilding.outcome import Rebuilt
from headrace.client.wal_stream import WalClient
from headrace.client.wal_subscription import WalSubscription
from headrace.entries.lsn import Lsn
from headrace.errors import BeyondHead, FeedRecreated, HeadraceError, LsnNotAvailable
from headrace.listener import Fold, Listener, ListenerSettings, SqliteBookmarks
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.runtime.dsn import parse_dsn
from tests import forks
from tests.agents import AgentProcess, headrace
from tests.integration.backup.agents import (
    backing_up,
    backup,
    entries_of,
    logged,
    lsns_of,
    manifests_of,
    post,
    registered,
)
from tests.rebuilding import rebuilt_in_place
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until

FEED = "shop"
LOAD_ROWS = 60
"""Rows that the archive holds at least when the folder goes."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


def archived(archive: Path) -> int:
    """How many entries the archive has; 0 while a segment has no manifest yet."""
    if not archive.is_dir():
        return 0
    folder = Folder(str(archive))
    segments = folder.segments(needed=False)
    manifests = folder.manifests(segments)
    return sum(one.entries for one in manifests.values()) if len(manifests) == len(segments) else 0


def delete_data(server: ServerProcess) -> None:
    """SIGKILL, and the folder is gone."""
    server.kill()
    shutil.rmtree(server.data_dir)


class Application:
    """A table that somebody writes to: inserts, updates and deletes, each a transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dsn = f"sqlite:///{path}"
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
        attach_tables(parse_dsn(self.dsn), AttachRequest(feed=FEED, tables=("t",)))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def rows(self) -> dict[int, str]:
        with closing(sqlite3.connect(self.path, timeout=60)) as database:
            return dict(database.execute("SELECT id, x FROM t"))

    def _write(self) -> None:
        number = 0
        while not self._stop.wait(0.01):
            number += 1
            with closing(sqlite3.connect(self.path, timeout=60)) as database, database:
                database.execute("INSERT INTO t VALUES (?, ?)", (number, f"new-{number}"))
                database.execute("UPDATE t SET x = ? WHERE id = ?", (f"changed-{number}", number // 2))
                database.execute("DELETE FROM t WHERE id = ?", (number // 3,))


class Following:
    """A ``headrace listen`` that runs until it ends by itself."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self._out, self._err = folder / "listen.out", folder / "listen.err"
        words = [
            "listen",
            FEED,
            "--server",
            server.url,
            "--bookmark",
            str(folder / "bookmark.db"),
            "--ndjson",
        ]
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = forks.start([*forks.HEADRACE, *words], stdout=out, stderr=err)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.process.kill()
        self.process.wait()

    def count(self) -> int:
        return self._out.read_bytes().count(b"\n")

    def wait(self) -> tuple[int, str]:
        wait_until(lambda: self.process.poll() is not None, what="the listener to end")
        return self.process.wait(), self._err.read_text()


class Subscribed:
    """A gRPC subscription in a thread of its own, until something ends it. It asks where it is to begin."""

    def __init__(self, server: ServerProcess) -> None:
        self.lsns: list[Lsn] = []
        self.error: HeadraceError | None = None
        self._address = server.grpc_address
        self._thread = threading.Thread(target=lambda: asyncio.run(self._read()), daemon=True)
        self._thread.start()

    async def _read(self) -> None:
        try:
            async with (
                WalClient(self._address, subscriber_id="reader") as wal,
                WalSubscription(wal) as stream,
            ):
                async for record in stream.records():
                    self.lsns.append(record.lsn)
        except HeadraceError as error:
            self.error = error

    def wait(self) -> HeadraceError:
        self._thread.join(60)
        assert self.error is not None, "the subscription goes on"
        return self.error


def folded(server: ServerProcess) -> dict[int, str]:
    """The table as a new listener has it that begins with the oldest entry."""

    async def follow() -> Fold:
        fold = Fold()
        settings = ListenerSettings(drain=True)
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(SqliteBookmarks(f"{folder}/anew.db")) as bookmarks,
        ):
            async with Listener(server.url, FEED, "anew", bookmarks, settings=settings) as listener:
                async for change in listener:
                    fold.change(change)
        return fold

    rows = [json.loads(text) for text in asyncio.run(follow()).rows().values()]
    return {row["id"]: row["x"] for row in rows}


def wait_delivered(application: Application) -> None:
    """Wait until the agent has handed over and processed all that the outbox has, and made its copies."""

    def left() -> int:
        with closing(sqlite3.connect(application.path, timeout=60)) as database:
            query = "SELECT (SELECT count(*) FROM headrace_outbox WHERE NOT processed)"
            return int(database.execute(query).fetchone()[0])

    wait_until(lambda: left() == 0 and _copied(application), what="the outbox to be empty")


def _copied(application: Application) -> bool:
    found = headrace(["publisher", "copy", application.dsn, "--status"])
    return all(one["state"] == "done" for one in found["copies"])


def test_folder_deleted_under_load_and_rebuilt(server: ServerProcess, tmp_path: Path) -> None:
    """Agent, listener and subscriber stop with feed-recreated. The command that the agent names brings the table back."""
    archive = tmp_path / "archive"
    application = Application(tmp_path / "source.db")
    with (
        AgentProcess(tmp_path / "agent", server.url, application.dsn, FEED) as agent,
        backing_up(server, archive, "--segment-size", "16k", folder=tmp_path / "backup") as archiving,
        application,
    ):
        feed = Feed(server, FEED)
        wait_until(lambda: feed.server.http.get(f"{feed.path}/tail").status_code == 200, what="the feed")
        with Following(server, tmp_path) as listener:
            subscribed = Subscribed(server)
            wait_until(lambda: archived(archive) >= LOAD_ROWS, what="entries in the archive")
            wait_until(lambda: listener.count() >= LOAD_ROWS and len(subscribed.lsns) >= LOAD_ROWS)
            before = feed.server.http.get(feed.path).json()
            delete_data(server)
            wait_until(lambda: archived(archive) > 0, what="the segment under way to have its manifest")
            archiving.kill()
            made = rebuilt_in_place(archive, server.data_dir)
            server.start()
            code, said = listener.wait()
        assert (code, "feed-recreated" in said, "move that file away" in said) == (3, True, True), said
        assert isinstance(subscribed.wait(), FeedRecreated | LsnNotAvailable)
        wait_until(lambda: agent.ended() is not None, what="the agent to stop")
        assert agent.ended() == 3, agent.errors()
        assert "feed-recreated" in agent.errors()
        assert "headrace publisher accept" in agent.errors()
        _check_feed(feed, made, before)
        agent.stop()
        headrace(
            ["publisher", "accept", application.dsn, "--feed", FEED, "--reason", "the folder was rebuilt"]
        )
        agent.start()
        wait_until(lambda: len(folded(server)) > 0, what="the copy")
        application.stop()
        wait_delivered(application)
        assert folded(server) == application.rows()
        assert agent.stop() == 0
    _check_second_loss(server, archive, made)


def _check_second_loss(server: ServerProcess, archive: Path, first: Rebuilt) -> None:
    """The backup goes on in the same archive; rebuilt once more, the feed has what came before the first rebuild, too."""
    backup(server, archive)
    (told,) = manifests_of(archive)[-1].registry
    assert [lost.after for lost in told.lost_lsns] == [first.lost_after_lsn]
    assert lsns_of(logged(server))[-1] == Lsn.parse(manifests_of(archive)[-1].last_lsn)
    (one,) = first.feeds
    histories = {run.incarnation for manifest in manifests_of(archive) for run in manifest.feeds}
    assert histories == {one.was, one.incarnation}
    wanted = folded(server)
    delete_data(server)
    (again,) = rebuilt_in_place(archive, server.data_dir).feeds
    assert (again.was, again.oldest_sequence_id) == (one.incarnation, one.oldest_sequence_id)
    assert again.epoch > one.epoch
    server.start()
    assert folded(server) == wanted


def _check_feed(feed: Feed, made: Rebuilt, before: dict[str, Any]) -> None:
    """The feed is what the rebuild said, its owner is kept, and nothing is given a second time."""
    one, now = made.feeds[0], feed.server.http.get(feed.path).json()
    assert (now["incarnation"], now["region-id"], now["owner"]) == (
        one.incarnation,
        before["region-id"],
        "agent-1",
    )
    assert one.was == before["incarnation"] != one.incarnation
    assert now["epoch"] > before["epoch"]
    assert now["head-sequence-id"] == one.next_sequence_id - 1 < before["head-sequence-id"] + LOAD_ROWS
    alarms = feed.server.http.get("/alarms").json()["alarms"]
    assert any(alarm["code"] == "feed-recreated" and alarm["cleared-at"] for alarm in alarms)


def test_producer_of_plain_http_is_told(server: ServerProcess, tmp_path: Path) -> None:
    """Whatever it names, and whatever it does not: nothing is appended before it has registered again."""
    (feed,) = registered(server, "vmapi::vm")
    incarnation = server.http.get(feed.path).json()["incarnation"]
    post(feed, 1, 5)
    backup(server, tmp_path / "archive")
    post(feed, 6, 3)
    delete_data(server)
    rebuilt_in_place(tmp_path / "archive", server.data_dir)
    server.start()
    known = {"Headrace-Incarnation": incarnation}
    assert code_of(feed.post({"changes": changes(9)}, headers=known)) == "feed-recreated"
    assert code_of(feed.post({"changes": changes(9)})) == "not-registered"
    assert feed.register("agent-2").status_code == 409
    answer = feed.register().json()
    assert answer["next-sequence-id"] == 6
    assert code_of(feed.post({"changes": changes(9), "sequence-id": 9})) == "sequence-gap"
    assert code_of(feed.post({"changes": changes(9), "expected-offset": 9})) == "offset-mismatch"
    retried = feed.post(*({"changes": changes(number), "expected-offset": number} for number in (4, 5)))
    assert code_of(retried) == "offset-mismatch"
    assert retried.json()["side-effects"] == "possible"
    assert feed.post({"changes": changes(6), "sequence-id": 6}).status_code == 200
    assert [entry["changes"]["number"] for entry in feed.entries()] == [1, 2, 3, 4, 5, 6]


def test_subscriber_that_knows_an_lsn_alone(server: ServerProcess, tmp_path: Path) -> None:
    """It has seen what is lost: it is refused, also when the log has grown beyond; one that has not goes on."""
    (feed,) = registered(server, "f")
    post(feed, 1, 2)
    backup(server, tmp_path / "archive")
    post(feed, 3, 2)
    *_, kept, _, lost = lsns_of(logged(server))
    delete_data(server)
    rebuilt_in_place(tmp_path / "archive", server.data_dir)
    server.start()

    async def next_after(place: Lsn) -> Lsn:
        async with (
            asyncio.timeout(60),
            WalClient(server.grpc_address) as wal,
            WalSubscription(wal, after=place) as stream,
        ):
            async for record in stream.records():
                return record.lsn
        raise AssertionError("the stream ended")

    feed.register()
    for number in range(9, 11):
        with pytest.raises(LsnNotAvailable, match="was lost: the log was rebuilt"):
            asyncio.run(next_after(lost))
        post(feed, number, 1)
        newest = lsns_of(logged(server))
        assert newest[2] > lost, "no new entry lies below a lost one"
        assert asyncio.run(next_after(kept)) == newest[2]


def test_moment_before_the_end_and_a_folder_of_its_own(server: ServerProcess, tmp_path: Path) -> None:
    """What is behind the target stays in the archive, which the rebuilt server must not go on with."""
    feeds = registered(server, "a", "b")
    for number in range(1, 4):
        for feed in feeds:
            post(feed, number, 1)
    archive = tmp_path / "archive"
    backup(server, archive)
    lsns = lsns_of(logged(server))
    delete_data(server)
    made = rebuilt_in_place(archive, server.data_dir, lsns[3])
    server.start()
    assert lsns_of(logged(server)) == lsns[:4]
    assert [str(one.discarded) for one in made.feeds] == ["3 to 3", "3 to 3"]
    for feed in feeds:
        feed.register()
        post(feed, 30, 1)
        assert [entry["changes"]["number"] for entry in feed.entries()] == [1, 2, 30]
    for accept_gap in ("", "nobody needs what was discarded"):
        with pytest.raises(BeyondHead, match="was rebuilt to a moment before") as refused:
            backup(server, archive, accept_gap=accept_gap)
        assert "folder of its own" in refused.value.advice
    assert lsns_of(entries_of(archive)) == lsns, "nothing was written"
    assert backup(server, tmp_path / "another").entries == 6
