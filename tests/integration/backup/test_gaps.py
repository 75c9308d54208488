"""Where the backup can't simply go on: retention was faster, a copy was put back, a feed has another history."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import read_gaps
from headrace.backup.agent import Agent
from headrace.backup.process import run_backup
from headrace.backup.settings import BackupSettings
from headrace.cli.app import main
from headrace.errors import BackupGap, BeyondHead
from tests import forks
from tests.fault.journals import flip, segments
from tests.integration.backup.agents import (
    WAIT_S_MAX,
    backup,
    backup_command,
    entries_of,
    logged,
    lsns_of,
    manifests_of,
    post,
    registered,
)
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import async_wait_until, wait_until

DROPPING = ("--retention", "1ms", "--retention-every", "100ms", "--subscriber-expiry", "1ms")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(
        tmp_path / "server", args=("--segment-size", "4k", "--stream-heartbeat", "200ms"), grpc=True
    ) as running:
        yield running
    assert "Traceback" not in running.errors()


def drop_all(server: ServerProcess, feed: Feed) -> None:
    """Have retention drop what is there; nobody holds it."""
    usual = server.args
    server.stop()
    server.args = [*usual, *DROPPING]
    server.start()

    def is_gone() -> bool:
        found = server.http.get(feed.path).json()
        return bool(found["oldest-sequence-id"] == found["next-sequence-id"])

    wait_until(is_gone, WAIT_S_MAX, what="retention to drop all")
    server.stop()
    server.args = usual
    server.start()


def test_what_retention_took_is_refused_and_stays_on_record_once_accepted(
    server: ServerProcess, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    orders, items = registered(server, "shop::orders", "shop::items")
    post(orders, 1, 5)
    post(items, 1, 5)
    end = str(backup(server, archive).last)
    post(orders, 6, 4)
    drop_all(server, orders)
    post(orders, 10, 3)
    refused = backup_command(server, archive, code=3)
    assert refused["code"] == "backup-gap"
    oldest = str(lsns_of(logged(server))[0])
    assert (refused["after-lsn"], refused["before-lsn"]) == (end, oldest)
    assert refused["lost"] == ["shop::orders 6 to 9"]
    assert len(manifests_of(archive)) == 1

    backup_command(server, archive, "--accept-gap", "the backup slept")
    (gap,) = read_gaps(Folder(str(archive)), list(Folder(str(archive)).files()))
    assert (gap.after, gap.before, gap.reason) == (end, oldest, "the backup slept")
    first, second = manifests_of(archive)
    assert second.walked_from != first.last_lsn
    assert second.predecessor is not None
    assert second.predecessor.last_lsn == first.last_lsn
    assert [one.first_sequence_id for one in second.feeds] == [10]
    assert len(entries_of(archive, gaps=True)) == 13
    post(orders, 13, 1)
    assert backup(server, archive).entries == 1, "the next start has no gap"
    assert read_gaps(Folder(str(archive)), list(Folder(str(archive)).files())) == [gap]


def test_an_archive_begins_where_the_log_does_now(server: ServerProcess, tmp_path: Path) -> None:
    """That is no gap: nobody promised what was before."""
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    drop_all(server, feed)
    assert backup(server, tmp_path / "archive").entries == 0
    post(feed, 6, 5)
    assert backup(server, tmp_path / "archive").entries == 5
    (manifest,) = manifests_of(tmp_path / "archive")
    assert "0000000000000000" < manifest.walked_from < manifest.first_lsn
    assert entries_of(tmp_path / "archive") == logged(server)


def test_an_older_copy_of_the_archive_goes_on_from_its_end(server: ServerProcess, tmp_path: Path) -> None:
    """The server knows of more acks than the archive has entries: the archive decides."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    backup(server, archive)
    shutil.copytree(archive, tmp_path / "copy")
    post(feed, 6, 5)
    backup(server, archive)
    shutil.rmtree(archive)
    shutil.copytree(tmp_path / "copy", archive)
    post(feed, 11, 1)
    assert backup(server, archive).entries == 6
    assert entries_of(archive) == logged(server)


def test_an_older_copy_of_the_log_and_another_log_are_refused(server: ServerProcess, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    server.stop()
    shutil.copytree(server.data_dir, tmp_path / "copy")
    server.start()
    post(feed, 6, 5)
    backup(server, archive)
    held = entries_of(archive)
    server.stop()
    shutil.rmtree(server.data_dir)
    shutil.copytree(tmp_path / "copy", server.data_dir)
    server.start()
    with pytest.raises(BeyondHead, match="older copy"):
        backup(server, archive)
    feed.register()
    post(feed, 6, 7)
    with pytest.raises(BeyondHead, match="older copy"):
        backup(server, archive)
    assert entries_of(archive) == held, "nothing was written"

    server.stop()
    shutil.rmtree(server.data_dir)
    server.start()
    registered(server, "shop::orders")
    post(feed, 1, 3)
    with pytest.raises(BeyondHead, match="another log"):
        backup(server, archive)
    backup(server, archive, accept_gap="the server's disk was lost")
    assert len(entries_of(archive, gaps=True)) == len(held) + 3
    old, new = manifests_of(archive)
    assert old.feeds[0].incarnation != new.feeds[0].incarnation
    assert (new.feeds[0].first_sequence_id, new.feeds[0].last_sequence_id) == (1, 3)


def test_a_feed_with_another_history_goes_on_in_a_segment_of_its_own(
    server: ServerProcess, tmp_path: Path
) -> None:
    """A repair skipped what was archived already: nothing is lost, but the feed's entries are of another history."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    for number in range(1, 11):
        post(feed, number, 1)
    backup(server, archive)
    before = entries_of(archive)
    server.stop()
    damage(server, b'"object-2"')
    words = ["log", "repair", "--skip", "--yes", "--data-dir", str(server.data_dir)]
    forks.run([*forks.HEADRACE, *words], check=True, timeout=60, capture_output=True)
    server.start()
    feed.register()
    post(feed, 11, 2)
    assert backup(server, archive).entries == 2
    assert entries_of(archive)[:10] == before
    old, new = (manifest.feeds[0] for manifest in manifests_of(archive))
    assert old.incarnation != new.incarnation == server.http.get(feed.path).json()["incarnation"]
    assert (new.first_sequence_id, new.last_sequence_id) == (11, 12)


async def test_a_history_that_changes_under_the_agent_ends_its_segment(
    server: ServerProcess, tmp_path: Path
) -> None:
    """Sequence ids go on as if nothing had happened, so one range would hold entries of two histories."""
    (feed,) = await asyncio.to_thread(registered, server, "shop::orders")
    settings = BackupSettings(archive=str(tmp_path / "archive"), server=server.url, grpc=server.grpc_address)
    stop, held = asyncio.Event(), list[tuple[int, int]]()

    def disturb() -> None:
        server.stop()
        damage(server, b'"object-2"')
        repair(server)
        server.start()
        feed.register()
        post(feed, 11, 2)

    async def beside(agent: Agent) -> None:
        def has(segments: int, gathered: int) -> bool:
            held.append((agent.standing.segments, agent.standing.gathered))
            return held[-1] == (segments, gathered)

        try:
            for number in range(1, 11):
                await asyncio.to_thread(post, feed, number, 1)
            await async_wait_until(lambda: has(0, 10), WAIT_S_MAX)
            await asyncio.to_thread(disturb)
            await async_wait_until(lambda: has(1, 2), WAIT_S_MAX)
        finally:
            stop.set()

    await run_backup(settings, stop, beside)
    old, new = (manifest.feeds[0] for manifest in manifests_of(tmp_path / "archive"))
    assert (old.first_sequence_id, old.last_sequence_id) == (1, 10), held
    assert (new.first_sequence_id, new.last_sequence_id) == (11, 12)
    assert old.incarnation != new.incarnation


def test_a_rebuilt_server_goes_on_in_the_same_archive(server: ServerProcess, tmp_path: Path) -> None:
    """Its feeds have new histories behind the archive's last entry, which is no gap."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    end = str(backup(server, archive).last)
    server.stop()
    shutil.rmtree(server.data_dir)
    words = ["wal", "restore", "--wal-dir", str(archive), "--to-lsn", end, "--as", "server"]
    assert main([*words, "--data-dir", str(server.data_dir)]) == 0
    server.start()
    feed.register()
    post(feed, 6, 2)
    assert backup(server, archive).entries == 2
    assert entries_of(archive) == logged(server)
    old, new = manifests_of(archive)
    assert new.walked_from == old.last_lsn == end
    assert old.feeds[0].incarnation != new.feeds[0].incarnation
    assert new.feeds[0].first_sequence_id == 6


def test_what_a_repair_skipped_before_it_was_archived_is_a_gap(server: ServerProcess, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    for number in range(1, 11):
        post(feed, number, 1)
    server.stop()
    damage(server, b'"object-6"')
    words = ["log", "repair", "--skip", "--yes", "--data-dir", str(server.data_dir)]
    forks.run([*forks.HEADRACE, *words], check=True, timeout=60, capture_output=True)
    server.start()
    for _ in range(2):
        with pytest.raises(BackupGap):
            backup(server, archive)
        assert len(entries_of(archive)) == 5, "what stands before it is archived"
    backup(server, archive, accept_gap="a disk error")
    assert len(entries_of(archive, gaps=True)) == 9
    assert backup(server, archive).entries == 0


def damage(server: ServerProcess, text: bytes) -> None:
    """Flip a bit of the frame that holds ``text``, in the body of a stopped server's journal."""
    for path in segments(server.data_dir):
        data = path.read_bytes()
        if (at := data.find(text)) >= 0:
            start = data.rfind(b"HRFR", 0, at)
            flip(server.data_dir, int.from_bytes(data[start + 8 : start + 16], "little") + at - start)
            return
    raise AssertionError(f"the journal does not have {text!r}")


def repair(server: ServerProcess) -> None:
    """Skip what is damaged."""
    words = ["log", "repair", "--skip", "--yes", "--data-dir", str(server.data_dir)]
    forks.run([*forks.HEADRACE, *words], check=True, timeout=60, capture_output=True)
