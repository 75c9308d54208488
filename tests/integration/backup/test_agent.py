"""The agent beside a real server: what is archived is the log, entry for entry, however segments are cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.entries.lsn import ZERO
from headrace.wire.entry import bare_message_of
from tests import forks
from tests.integration.backup.agents import (
    archived,
    backing_up,
    backup,
    backup_command,
    entries_of,
    logged,
    manifests_of,
    post,
    registered,
)
from tests.servers import ServerProcess, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running
    assert "Traceback" not in running.errors()


def place_of(server: ServerProcess) -> str:
    """Up to where the server knows that the backup has everything."""
    (feed, *_) = server.http.get("/feeds").json()["feeds"]
    return next(str(one["lsn"]) for one in feed["subscribers"] if one["subscriber-id"] == "backup")


def test_segments_are_the_log_cut_where_appends_end(server: ServerProcess, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    assert backup(server, archive).segments == 0, "an empty log is no failure"
    feeds = registered(server, "shop::orders", "shop::items")
    for number in range(1, 41):
        for feed in feeds:
            post(feed, number, 1 + number % 7)
    done = backup_command(server, archive, "--segment-size", "4k")
    entries = entries_of(archive)
    assert entries == logged(server)
    assert done["entries"] == len(entries)
    manifests = manifests_of(archive)
    assert done["segments"] == len(manifests) > 5
    assert manifests[0].walked_from == str(ZERO)
    assert manifests[0].predecessor is None
    assert done["last-lsn"] == done["acked-lsn"] == manifests[-1].last_lsn == place_of(server)
    assert {one.feed for one in manifests[0].registry} == {"shop::orders", "shop::items"}
    at = 0
    for manifest in manifests:
        assert manifest.size <= 4096
        at += manifest.entries
        assert bare_message_of(memoryview(entries[at - 1])).append_end
    again = backup(server, archive)
    assert (again.segments, str(again.last)) == (0, done["last-lsn"])


def test_an_append_that_is_larger_than_a_segment_is_not_torn(server: ServerProcess, tmp_path: Path) -> None:
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 2)
    post(feed, 3, 3_000)
    post(feed, 3_003, 2)
    backup(server, tmp_path / "archive", segment_bytes=64 << 10)
    assert [one.entries for one in manifests_of(tmp_path / "archive")] == [2, 3_000, 2]
    assert entries_of(tmp_path / "archive") == logged(server)


def test_a_segment_is_written_in_time_on_rotate_and_at_the_end(server: ServerProcess, tmp_path: Path) -> None:
    archive, words = tmp_path / "archive", ("--segment-size", "1g")
    (feed,) = registered(server, "shop::orders")
    with backing_up(server, archive, *words, "--segment-time", "300ms", folder=tmp_path / "timely") as agent:
        post(feed, 1, 3)
        agent.until(lambda: archived(archive) == 3, "the entries in the archive")
        agent.until(lambda: place_of(server) == manifests_of(archive)[-1].last_lsn, "the ack")
        document = agent.stop()
    assert (document["segments"], document["entries"]) == (1, 3)
    with backing_up(server, archive, *words, folder=tmp_path / "slow") as agent:
        post(feed, 4, 2)
        rotate = [*forks.HEADRACE, "wal", "rotate", "--server", server.url, "--json"]

        def is_archived() -> bool:
            """Asked again: the agent may not have had the entries when it was asked first."""
            forks.run(rotate, capture_output=True, timeout=60, check=True)
            return archived(archive) == 5

        agent.until(is_archived, "the rotation")
        begun = agent.said().count("a segment is begun")
        post(feed, 6, 4)
        agent.until(lambda: agent.said().count("a segment is begun") > begun, "the agent to have all")
        assert len(manifests_of(archive)) == 2, "nothing made it write them yet"
        document = agent.stop()
    assert document["last-lsn"] == document["acked-lsn"] == place_of(server)
    assert entries_of(archive) == logged(server)
    assert len(entries_of(archive)) == 9


def test_one_agent_owns_a_folder(server: ServerProcess, tmp_path: Path) -> None:
    (feed,) = registered(server, "shop::orders")
    archive = tmp_path / "archive"
    with backing_up(server, archive, "--segment-time", "100ms", folder=tmp_path / "one") as agent:
        post(feed, 1, 1)
        agent.until(lambda: archived(archive) == 1, "the entries in the archive")
        refused = backup_command(server, archive, code=3)
        assert refused["code"] == "archive-owned"
        assert str(agent.process.pid) in refused["detail"]
        post(feed, 2, 1)
        agent.until(lambda: archived(archive) == 2, "the entries in the archive")
    post(feed, 3, 1)
    assert backup(server, archive).entries == 1
    assert entries_of(archive) == logged(server)


def test_the_server_may_come_and_go(server: ServerProcess, tmp_path: Path) -> None:
    """Killed with entries in the agent's hands, started again, feeds made in between: it goes on where it was."""
    archive = tmp_path / "archive"
    feeds = registered(server, "shop::orders")
    server.stop()
    with backing_up(
        server, archive, "--segment-size", "4k", "--segment-time", "200ms", folder=tmp_path / "agent"
    ) as agent:
        agent.until(lambda: "does not answer" in agent.said(), "the agent to miss the server")
        server.start()
        for number in range(3):
            feeds += registered(server, f"shop::more-{number}")
            for feed in feeds:
                post(feed, 1, 20)
            if number < 2:
                server.restart()
        agent.until(lambda: archived(archive) == 20 * (2 + 3 + 4), "the entries in the archive")
        agent.stop()
    assert entries_of(archive) == logged(server)
