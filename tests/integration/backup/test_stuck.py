"""A backup that can't go on says so (its health, its report, an alarm), and archives every entry once all the same."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault.volumes import small_volume
from tests.integration.backup.agents import (
    AgentProcess,
    archived,
    command,
    entries_of,
    logged,
    post,
    registered,
)
from tests.integration.backup.test_full import no_room
from tests.ports import free_port
from tests.proxy import Proxy
from tests.servers import ServerProcess, serving
from tests.stuck import stalled, wait_over, wait_state, wait_stuck

WORDS = ("--segment-size", "64k", "--segment-time", "100ms")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", args=["--gone-after", "10s"], grpc=True) as running:
        yield running


def health(port: int, stalled_after: str) -> tuple[str, ...]:
    return ("--health", f"127.0.0.1:{port}", "--stalled-after", stalled_after)


def test_a_half_open_line_to_the_server_and_a_process_that_stands_still(
    server: ServerProcess, tmp_path: Path
) -> None:
    (feed,) = registered(server, "shop::orders")
    archive, port = tmp_path / "archive", free_port()
    assert server.grpc_address is not None
    with Proxy("127.0.0.1", int(server.grpc_address.rpartition(":")[2])) as proxy:
        words = command(server, archive, *WORDS, *health(port, "3s"))
        words[words.index(server.grpc_address)] = f"127.0.0.1:{proxy.port}"
        agent = AgentProcess([*words, "--json"], tmp_path / "agent")
        try:
            post(feed, 1, 10)
            agent.until(lambda: archived(archive) == 10, "the first segment")
            wait_state(server, "backup", "idle")
            proxy.freeze()
            post(feed, 11, 10)
            wait_stuck(server, port, "stream does not move at ", "the server's stream")
            (alarm,) = stalled(server)
            assert "the backup backup on " in alarm
            proxy.thaw()
            agent.until(lambda: archived(archive) == 20, "the second segment")
            wait_over(server, port)

            agent.process.send_signal(signal.SIGSTOP)
            try:
                wait_state(server, "backup", "gone")
            finally:
                agent.process.send_signal(signal.SIGCONT)
            post(feed, 21, 10)
            agent.until(lambda: archived(archive) == 30, "the third segment")
            agent.stop()
        finally:
            agent.kill()
    wait_state(server, "backup", "ending")
    assert entries_of(archive) == logged(server)


def test_an_archive_that_takes_nothing(server: ServerProcess, tmp_path: Path) -> None:
    (feed,) = registered(server, "shop::orders")
    port = free_port()
    with small_volume(tmp_path / "volume") as mounted:
        archive = tmp_path / "volume" / "archive"
        words = [*command(server, archive, *WORDS, *health(port, "3s")), "--json"]
        agent = AgentProcess(words, tmp_path / "agent")
        try:
            post(feed, 1, 10)
            agent.until(lambda: archived(archive) == 10, "the first segment")
            with no_room(tmp_path / "volume", mounted=mounted, agent=agent):
                post(feed, 11, 10)
                wait_stuck(server, port, "archive does not move at ", "though 10 wait", "archive-full")
            agent.until(lambda: archived(archive) == 20, "the second segment")
            wait_over(server, port)
            agent.stop()
        finally:
            agent.kill()
        assert entries_of(archive) == logged(server)
