"""An archive without room: the agent keeps what it has, says so, acks nothing of it, and goes on once there is room."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import ArchiveFull
from tests.fault.volumes import VOLUME_BYTES, small_volume
from tests.integration.backup.agents import (
    AgentProcess,
    archived,
    backing_up,
    backup,
    entries_of,
    logged,
    manifests_of,
    post,
    registered,
)
from tests.servers import ServerProcess, serving

KEPT = "kept in memory and tried again"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


@contextmanager
def no_room(volume: Path, *, mounted: bool, agent: AgentProcess) -> Iterator[None]:
    """Let the volume have no room for the length of a ``with``: by a file that fills it, or a limit on the agent's files."""
    filler = volume / "filler"
    if mounted:
        with suppress(OSError):
            filler.write_bytes(bytes(VOLUME_BYTES))
    else:
        resource.prlimit(agent.process.pid, resource.RLIMIT_FSIZE, (1_000, resource.RLIM_INFINITY))
    yield
    if mounted:
        filler.unlink()
    else:
        resource.prlimit(
            agent.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        )


def test_a_full_disk_is_waited_for(server: ServerProcess, tmp_path: Path) -> None:
    (feed,) = registered(server, "shop::orders")
    with small_volume(tmp_path / "volume") as mounted:
        archive = tmp_path / "volume" / "archive"
        words = ("--segment-size", "64k", "--segment-time", "100ms")
        with backing_up(server, archive, *words, folder=tmp_path / "agent") as agent:
            post(feed, 1, 100)
            agent.until(lambda: archived(archive) == 100, "the first segment")
            with no_room(tmp_path / "volume", mounted=mounted, agent=agent):
                for first in range(101, 1_001, 100):
                    post(feed, first, 100)
                agent.until(lambda: agent.said().count(KEPT) > 1, "two tries")
                (found,) = server.http.get(feed.path).json()["subscribers"]
                assert Lsn.parse(found["lsn"]) <= Lsn.parse(manifests_of(archive)[-1].last_lsn)
                assert archived(archive) == 100
                assert not list(archive.glob(".tmp*")), "what was begun takes no room"
            agent.until(lambda: archived(archive) == 1_000, "the rest")
            agent.stop()
        assert entries_of(archive) == logged(server)


def test_the_server_is_killed_while_there_is_no_room(server: ServerProcess, tmp_path: Path) -> None:
    """What the agent holds is archived once there is room, with the server or without; then it goes on with the rest."""
    (feed,) = registered(server, "shop::orders")
    with small_volume(tmp_path / "volume") as mounted:
        archive = tmp_path / "volume" / "archive"
        words = ("--segment-size", "64k", "--segment-time", "100ms")
        with backing_up(server, archive, *words, folder=tmp_path / "agent") as agent:
            post(feed, 1, 100)
            agent.until(lambda: archived(archive) == 100, "the first segment")
            with no_room(tmp_path / "volume", mounted=mounted, agent=agent):
                post(feed, 101, 100)
                agent.until(lambda: KEPT in agent.said(), "a try")
                server.kill()
                tries = agent.said().count(KEPT)
                agent.until(lambda: agent.said().count(KEPT) > tries, "a try without the server")
                assert archived(archive) == 100
            agent.until(lambda: archived(archive) == 200, "what was held, while the server is away")
            server.start()
            feed.register()
            post(feed, 201, 100)
            agent.until(lambda: archived(archive) == 300, "the rest")
            agent.stop()
        assert entries_of(archive) == logged(server)


def test_an_agent_that_is_told_to_stop_or_runs_once_does_not_wait_for_room(
    server: ServerProcess, tmp_path: Path
) -> None:
    (feed,) = registered(server, "shop::orders")
    post(feed, 1, 100)
    with small_volume(tmp_path / "volume") as mounted:
        archive = tmp_path / "volume" / "archive"
        with backing_up(server, archive, "--segment-time", "100ms", folder=tmp_path / "agent") as agent:
            agent.until(lambda: archived(archive) == 100, "the first segment")
            with no_room(tmp_path / "volume", mounted=mounted, agent=agent):
                post(feed, 101, 100)
                agent.until(lambda: KEPT in agent.said(), "a try")
                agent.process.terminate()
                code, said = agent.wait()
                assert (code, said["code"]) == (1, "archive-full")
                if mounted:
                    with pytest.raises(ArchiveFull):
                        backup(server, archive)
        assert archived(archive) == 100
        assert backup(server, archive).entries == 100
        assert entries_of(archive) == logged(server)
