"""What stands around the stream: rights, manifests that are gone, files that were changed, the hourly prune."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.backup import process
from headrace.backup.agent import Agent
from headrace.backup.settings import BackupSettings
from headrace.errors import ArchiveConflict, ArchiveOwned, Forbidden, SegmentCorrupt, Usage
from tests.identity import Issuer
from tests.integration.backup.agents import (
    WAIT_S_MAX,
    backing_up,
    backup,
    entries_of,
    logged_by,
    manifests_of,
    post,
    registered,
)
from tests.secured import secured
from tests.servers import ServerProcess, serving
from tests.waiting import async_wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


def test_only_an_admin_sees_everything(tmp_path: Path) -> None:
    """Another one's stream would leave feeds out, and nobody would notice before a restore."""
    issuer = Issuer()
    token = tmp_path / "token"
    with secured(tmp_path / "server", issuer) as server:
        feeds = registered(server, "vmapi::vm", "cnapi::server")
        for feed in feeds:
            post(feed, 1, 2)
        token.write_text(issuer.token(roles=["replication"], tenant="default"))
        with pytest.raises(Forbidden):
            backup(server, tmp_path / "archive", token_file=token)
        token.write_text(issuer.token())
        assert backup(server, tmp_path / "archive", token_file=token).entries == 4


def test_a_segment_without_a_manifest_is_told_anew_and_trusted_as_far_as_it_joins(
    server: ServerProcess, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    orders, items = registered(server, "shop::orders", "shop::items")
    post(orders, 1, 5)
    backup(server, archive)
    post(orders, 6, 5)
    backup(server, archive)
    told = manifests_of(archive)
    for path in (archive / told[1].name.manifest, archive / told[0].name.manifest):
        path.unlink()
        assert backup(server, archive).entries == 0
    first, second = manifests_of(archive)
    assert second.feeds == told[1].feeds
    assert (second.walked_from, second.predecessor) == (told[1].walked_from, told[1].predecessor)
    assert first.feeds[0].incarnation == "", "of the first one nobody knows the history"
    assert first.walked_from != told[0].walked_from, "nor what was before"

    post(items, 1, 1)
    backup(server, archive)
    (archive / manifests_of(archive)[2].name.manifest).unlink()
    backup(server, archive)
    third = manifests_of(archive)[2]
    assert third.walked_from not in {second.last_lsn, third.first_lsn}, (
        "of a new feed, entries may be missing"
    )
    assert len(entries_of(archive, gaps=True)) == 11


def test_a_damaged_segment_without_a_manifest_is_not_told_anew(server: ServerProcess, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    backup(server, archive)
    (manifest,) = manifests_of(archive)
    (archive / manifest.name.manifest).unlink()
    path = archive / manifest.segment
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SegmentCorrupt):
        backup(server, archive)


def test_a_segment_that_stands_there_with_other_bytes_is_not_written_over(
    server: ServerProcess, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    backup(server, archive)
    (manifest,) = manifests_of(archive)
    name = manifest.name.manifest
    (archive / name).unlink()
    (archive / manifest.segment).rename(archive / "kept")
    (archive / name).write_bytes(b"something else")
    with pytest.raises((ArchiveConflict, SegmentCorrupt)):
        backup(server, archive)
    assert (archive / name).read_bytes() == b"something else"


def test_a_recipient_that_is_none_is_named_before_anything_is_done(
    server: ServerProcess, tmp_path: Path
) -> None:
    with pytest.raises(Usage, match="age1nobody"):
        backup(server, tmp_path / "archive", recipients=("age1nobody",))
    assert not (tmp_path / "archive").exists()


def test_who_lost_the_archive_writes_nothing_more(server: ServerProcess, tmp_path: Path) -> None:
    """Somebody took the lock away: another agent may be there."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "shop::orders")
    with backing_up(server, archive, "--segment-time", "100ms", folder=tmp_path / "agent") as agent:
        agent.until((archive / "owner.lock").exists, "the lock")
        (archive / "owner.lock").unlink()
        post(feed, 1, 1)
        code, said = agent.wait()
    assert (code, said["code"]) == (3, ArchiveOwned.code)
    assert not list(archive.glob("kdb-wal-*"))


async def test_an_agent_prunes_beside_its_work(
    server: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 5)
    monkeypatch.setattr(process, "FIRST_PRUNE_S", 0.1)
    monkeypatch.setattr(process, "PRUNE_EVERY_S", 0.1)
    settings = BackupSettings(
        archive=str(tmp_path / "archive"),
        server=server.url,
        grpc=server.grpc_address,
        segment_s=0.1,
        retention_days=0,
    )
    stop, said = asyncio.Event(), [""]
    behind: list[tuple[int, float]] = []

    async def until_pruned(agent: Agent) -> None:
        def is_pruned() -> bool:
            said[0] += "".join(capsys.readouterr())
            return "a segment is archived" in said[0] and "is pruned" in said[0].partition("is archived")[2]

        try:
            await async_wait_until(is_pruned, WAIT_S_MAX, what="a prune behind the segment")
            behind.append(await agent.behind())
        finally:
            stop.set()

    outcome = await process.run_backup(settings, stop, until_pruned)
    assert behind == [(0, 0.0)], said
    assert outcome.entries == 5
    assert (await asyncio.to_thread(entries_of, tmp_path / "archive")) == await logged_by(server.grpc_address)
