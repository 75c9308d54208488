"""An old copy of the server's data folder that is put back: whoever has seen more notices at once, and stops loudly."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables
from headrace.runtime.dsn import parse_dsn
from tests import forks
from tests.agents import AgentProcess
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path) as running:
        yield running


def copy_away(server: ServerProcess) -> Path:
    """Stop the server, copy its folder, and start it again."""
    server.stop()
    copy = server.folder / "copy"
    shutil.copytree(server.data_dir, copy)
    server.start()
    return copy


def put_back(server: ServerProcess, copy: Path) -> None:
    """Stop the server and start it on the old copy."""
    server.stop()
    shutil.rmtree(server.data_dir)
    shutil.copytree(copy, server.data_dir)
    server.start()


def post(feed: Feed, first: int, last: int, mark: str = "") -> None:
    answer = feed.post(*({"changes": changes(number) | {"mark": mark}} for number in range(first, last + 1)))
    assert answer.status_code == 200, answer.text


def listen(feed: Feed, *words: str) -> subprocess.CompletedProcess[str]:
    folder = feed.server.folder
    command = [*forks.HEADRACE, "listen", feed.name, "--server", feed.server.url]
    command += ["--bookmark", str(folder / "bookmark.db"), "--once", "--ndjson", *words]
    return forks.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def test_listener_that_has_seen_more_stops(server: ServerProcess) -> None:
    """While the copy is shorter than its bookmark, and when the feed has grown past it with other entries."""
    feed = Feed(server, "test::feed")
    feed.register()
    post(feed, 1, 5)
    copy = copy_away(server)
    post(feed, 6, 10)
    assert len(listen(feed).stdout.splitlines()) == 10
    place = feed.entries(10, 10)[0]["lsn"]
    put_back(server, copy)
    shorter = listen(feed)
    assert shorter.returncode == 3, shorter.stderr
    assert "beyond-head" in shorter.stderr
    assert shorter.stdout == ""
    feed.listener()
    post(feed, 6, 12, "another history")
    grown = listen(feed)
    assert grown.returncode == 3, grown.stderr
    assert "feed-recreated" in grown.stderr
    assert grown.stdout == "", "not one entry of the other history is taken for the next one"
    assert code_of(feed.poll(after=10, headers={"Headrace-Lsn": place})) == "feed-recreated"


def rows(path: Path, first: int, last: int) -> None:
    with closing(sqlite3.connect(path, timeout=60)) as application, application:
        application.executemany(
            "INSERT INTO t VALUES (?, 'x')", [(number,) for number in range(first, last + 1)]
        )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.db"
    with closing(sqlite3.connect(path)) as application, application:
        application.execute("PRAGMA journal_mode = WAL")
        application.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
    attach_tables(parse_dsn(f"sqlite:///{path}"), AttachRequest(feed="shop", tables=("t",)))
    return path


def head_of(feed: Feed) -> int:
    answer = feed.server.http.get(f"{feed.path}/tail")
    return int(answer.json()["next-sequence-id"]) - 1 if answer.status_code == 200 else 0


@pytest.mark.parametrize("swept", [False, True], ids=["rows are kept", "rows were swept"])
def test_agent_fills_an_old_copy_again_or_stops(
    server: ServerProcess, source: Path, tmp_path: Path, swept: bool
) -> None:
    """It compares the feed's end with what it had handed over; what is no longer in its outbox it can't hand over again."""
    feed = Feed(server, "shop")
    with AgentProcess(tmp_path / "agent", server.url, f"sqlite:///{source}", "shop") as agent:
        rows(source, 1, 5)
        wait_until(lambda: head_of(feed) >= 5)
        assert agent.stop() == 0
        copy = copy_away(server)
        agent.start()
        before = head_of(feed)
        rows(source, 6, 10)
        wait_until(lambda: head_of(feed) == before + 5)
        assert agent.stop() == 0
        entries = [entry["changes"] for entry in feed.entries(limit=100)]
        put_back(server, copy)
        assert head_of(feed) == before
        if swept:
            with closing(sqlite3.connect(source, timeout=60)) as application, application:
                application.execute(
                    "DELETE FROM headrace_outbox WHERE processed"
                )  # as the agent's own sweep does
                application.execute("UPDATE headrace_owner SET kept_from = next_sequence_id")
        agent.start()
        if swept:
            wait_until(lambda: agent.ended() is not None, what="the agent to stop")
            assert agent.ended() == 3, agent.errors()
            assert "feed-behind-outbox" in agent.errors()
            assert head_of(feed) == before
        else:
            wait_until(lambda: head_of(feed) == before + 5)
            assert [entry["changes"] for entry in feed.entries(limit=100)] == entries
