"""A backup agent that runs while its server's data folder is lost: what it holds gets into the archive, and is rebuilt."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.backup import agent as backup_agent
from headrace.backup.process import Outcome
from headrace.errors import ServerUnreachable
from tests.integration.backup.agents import (
    AgentHere,
    backing_up,
    backup,
    entries_of,
    logged,
    lsns_of,
    manifests_of,
    post,
    registered,
)
from tests.proxy import Proxy
from tests.rebuilding import rebuilt_in_place
from tests.servers import ServerProcess, serving


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent in this process does not wait for long until a server that is gone has taken its last ack."""
    monkeypatch.setattr(backup_agent, "ACK_S_MAX", 0.5)


def delete_data(server: ServerProcess) -> None:
    """SIGKILL, and the folder is gone."""
    server.kill()
    shutil.rmtree(server.data_dir)


def test_an_agent_that_is_left_running(server: ServerProcess, tmp_path: Path) -> None:
    """The rebuild warns that the agent still holds entries. It ends once it has written them; then all is rebuilt anew."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "f")
    post(feed, 1, 2)
    backup(server, archive)
    post(feed, 3, 2)
    lsns = lsns_of(logged(server))
    with backing_up(server, archive, folder=tmp_path / "agent") as agent:
        agent.until(lambda: "a segment is begun" in agent.said(), "the agent to hold entries")
        delete_data(server)
        made = rebuilt_in_place(archive, server.data_dir)
        assert any("stop the agent" in one and str(agent.process.pid) in one for one in made.warnings)
        server.start()
        assert lsns_of(logged(server)) == lsns[:2]
        code, said = agent.wait()
    assert (code, said["code"]) == (3, "beyond-head"), agent.said()
    assert lsns_of(entries_of(archive)) == lsns
    (told,) = manifests_of(archive)[-1].registry
    assert (told.incarnation, told.next_sequence_id) == (made.feeds[0].was, 5), "the feed as it was then"

    delete_data(server)
    again = rebuilt_in_place(archive, server.data_dir)
    assert not any("stop the agent" in one for one in again.warnings)
    server.start()
    assert lsns_of(logged(server)) == lsns
    feed.register()
    post(feed, 5, 1)
    assert backup(server, archive).entries == 1
    assert entries_of(archive) == logged(server)


def test_an_agent_that_is_stopped_writes_what_it_holds_without_a_server(
    server: ServerProcess, tmp_path: Path
) -> None:
    (feed,) = registered(server, "f")
    post(feed, 1, 2)
    lsns = lsns_of(logged(server))
    with backing_up(server, tmp_path / "archive", folder=tmp_path / "agent") as agent:
        agent.until(lambda: "a segment is begun" in agent.said(), "the agent to hold entries")
        delete_data(server)
        agent.stop()
    assert lsns_of(entries_of(tmp_path / "archive")) == lsns


@pytest.mark.usefixtures("hasty")
def test_a_feed_that_is_made_shortly_before_the_end_is_archived_and_rebuilt(
    server: ServerProcess, tmp_path: Path
) -> None:
    """The server is asked for it at once: later there is nobody any more who could tell of it."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "f")
    post(feed, 1, 2)
    with AgentHere(server, archive) as agent:
        agent.wait_held(2)
        for name in ("g", "h"):
            (made,) = registered(server, name)
            post(made, 1, 3)
        post(feed, 3, 1)
        agent.wait_held(9)
        agent.wait_told("f", "g", "h")
        lsns = lsns_of(logged(server))
        delete_data(server)
        done = agent.stop()
    assert isinstance(done, Outcome)
    assert done.entries == 9
    assert lsns_of(entries_of(archive)) == lsns
    assert {one.feed for one in manifests_of(archive)[-1].registry} == {"f", "g", "h"}
    rebuilt_in_place(archive, server.data_dir)
    server.start()
    assert lsns_of(logged(server)) == lsns


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("first", [0, 4])
def test_what_is_held_in_front_of_a_feed_that_nobody_told_of_is_archived(
    server: ServerProcess, tmp_path: Path, first: int
) -> None:
    """The server's HTTP face was away from the moment on when the feed was made, and then all of it."""
    archive = tmp_path / "archive"
    (feed,) = registered(server, "f")
    with (
        Proxy("127.0.0.1", int(server.url.rpartition(":")[2])) as proxy,
        AgentHere(server, archive, url=f"http://127.0.0.1:{proxy.port}") as agent,
    ):
        agent.wait_told("f")
        proxy.cut()
        if first:
            post(feed, 1, first)
        (new,) = registered(server, "new")
        post(new, 1, 3)
        post(feed, first + 1, 1)
        agent.wait_held(first + 4)
        lsns = lsns_of(logged(server))
        delete_data(server)
        done = agent.stop()
    assert isinstance(done, ServerUnreachable)
    assert f"the 4 entries from lsn={lsns[first]} on are NOT archived" in done.detail
    assert "with that one begins new, " in done.detail
    assert lsns_of(entries_of(archive)) == lsns[:first]
    if first:
        rebuilt_in_place(archive, server.data_dir)
        server.start()
        assert lsns_of(logged(server)) == lsns[:first]
