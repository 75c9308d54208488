"""RFD 5, "Failure scenarios", on the API's side: real processes, real cuts. Each test is named after its sentence.

In the end every committed row is in the feed once, in the order of the commits, as a reader sees it over HTTP.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import AgentProcess
from tests.fault.volumes import VOLUME_BYTES, limit_files, small_volume
from tests.postgres import Cluster, Database
from tests.proxy import Proxy
from tests.scale import chosen
from tests.scenario_processes import (
    FEED,
    Application,
    agent_status,
    command,
    delivered,
    head_of,
    posts,
    told,
    wait_until_ended,
    wait_until_told,
)
from tests.servers import Feed, ServerProcess, changes, code_of, serving
from tests.waiting import wait_until

AGENT = "agent-1"
TRIES = 6


@pytest.fixture
def app(database: Database) -> Application:
    return Application(database)


def agent_of(app: Application, server: ServerProcess, folder: Path) -> AgentProcess:
    """The agent of ``app``."""
    return AgentProcess(folder / "agent", server.url, app.database.dsn, FEED, agent_id=AGENT)


def check_refused(server: ServerProcess) -> None:
    """Check that every POST is refused as the RFD says, with a code, and when to come back."""
    for answer in posts(server, AGENT):
        assert answer.status_code == 503, answer.text
        assert code_of(answer) in {"store-unavailable", "disk-reserve"}
        assert int(answer.headers["Retry-After"]) >= 1
        assert answer.json()["retryable"] is True


def check_backs_off(agent: AgentProcess) -> None:
    """Wait until the agent has met the 503 so often that its waits have grown. It has met no trouble before."""
    wait_until(lambda: len(told(agent, "trying again")) >= TRIES, 60, what="the agent to try again")

    def grown() -> bool:
        """``Retry-After`` is the least wait; the back-off grows above it, up to what these agents are told (3 s)."""
        delays = [one["delay_s"] for one in told(agent, "trying again")]
        return bool(max(delays) > 2 * delays[0])

    wait_until(grown, 120, what="the waits to grow")
    assert agent.ended() is None, "it goes on trying"


UNABLE_TO_PERSIST = "test_api_that_is_unable_to_persist_refuses_all_incoming_posts_with_503"


@pytest.mark.parametrize(
    "how", ["reset", pytest.param("half-open", marks=pytest.mark.soak(sibling=UNABLE_TO_PERSIST))]
)
def test_api_that_is_unable_to_persist_refuses_all_incoming_posts_with_503(
    app: Application, cluster: Cluster, tmp_path: Path, how: str
) -> None:
    """Sdc-changefeed API is partitioned from its Moray.

    "If sdc-changefeed API is unable to persist entries, it must refuse all incoming POSTs and respond with an HTTP 503
    (Service unavailable). The 503 response will be handled by the publisher-agent(s) in exactly the same way as a partition
    between the publisher-agent and sdc-changefeed API."
    """
    name = f"log_of_{app.database.name}"
    cluster.create_database(name)
    with Proxy("127.0.0.1", cluster.port) as moray:
        store = f"postgresql://postgres@127.0.0.1:{moray.port}/{name}"
        with serving(tmp_path, args=["--store", store]) as server, agent_of(app, server, tmp_path) as agent:
            app.commit(20)
            app.wait_until_delivered(server, agent)
            moray.cut() if how == "reset" else moray.freeze()
            app.commit(20)
            check_refused(server)
            wait_until_told(agent, "trying again")
            if how == "reset":
                check_backs_off(agent)
                assert told(agent, "trying again", code="store-unavailable")
            app.commit(20)
            wait_until(lambda: app.unmarked() == 0, what="the agent to go on marking")
            assert app.places()[0] > app.places()[1]
            moray.resume() if how == "reset" else moray.thaw()
            app.commit(10)
            app.wait_until_delivered(server, agent)
            wait_until(lambda: server.http.get("/readyz").status_code == 200, what="the server to be ready")
    cluster.drop_database(name)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[ServerProcess, bool]]:
    """A running server on a small volume, and whether that is one of its own."""
    folder = tmp_path / "volume"
    with (
        small_volume(folder) as mounted,
        serving(tmp_path, data_dir=folder / "data", args=["--disk-reserve", "1"]) as server,
    ):
        yield server, mounted


def test_api_whose_disk_is_full_refuses_all_incoming_posts_with_503(
    app: Application, small: tuple[ServerProcess, bool], tmp_path: Path
) -> None:
    """Sdc-changefeed API can't write its own store.

    "If sdc-changefeed API is unable to persist entries, it must refuse all incoming POSTs and respond with an HTTP 503
    (Service unavailable)."
    """
    server, mounted = small
    with agent_of(app, server, tmp_path) as agent:
        app.commit(20)
        app.wait_until_delivered(server, agent)
        head = head_of(server)
        filler = server.data_dir.parent / "filler"
        if mounted:
            fill(filler)
        else:
            limit_files(server, 1)
        app.commit(100)
        wait_until_told(agent, "trying again")
        check_backs_off(agent)
        check_refused(server)
        assert len(delivered(server)) == 2 * 20, "readers go on"
        assert head_of(server) == head
        if mounted:
            filler.unlink()
        else:
            limit_files(server, VOLUME_BYTES)
        app.wait_until_delivered(server, agent)


@pytest.mark.parametrize(
    "changed", chosen([True, False]), ids=lambda changed: "other bytes" if changed else "the same bytes"
)
def test_api_refuses_all_new_entries_from_the_publisher_agent_in_question_and_alarms_loudly(
    app: Application, tmp_path: Path, *, changed: bool
) -> None:
    """Sdc-changefeed receives a duplicate entry from a publisher-agent: here from a second process under the agent's name.

    "This is a state that realistically shouldn't ever exist. However, if this scenario is encountered, sdc-changefeed API
    should refuse all new entries from the publisher-agent in question and alarm loudly because this is a state that will
    likely need manual intervention and inspection of the change feed buckets in each subsystem."
    """
    with serving(tmp_path) as server, agent_of(app, server, tmp_path) as agent:
        app.commit(20)
        app.wait_until_delivered(server, agent)
        feed, head = Feed(server, FEED), head_of(server)
        taken = feed.entries(head, head)[0]
        resent = changes(4711) if changed else taken["changes"]

        duplicate = feed.post({"sequence-id": head, "changes": resent})
        assert (duplicate.status_code, code_of(duplicate)) == (409, "duplicate-entry")
        for place in ({"sequence-id": head + 1}, {"expected-offset": head + 1}, {}):
            refused = feed.post({"changes": changes(1), **place})
            assert (refused.status_code, code_of(refused)) == (423, "quarantined")
        app.commit(10)
        assert wait_until_ended(agent) == 3
        assert told(agent, "alarm", code="quarantined", level="error")
        code, status = agent_status(agent, app.database.dsn)
        assert (code, status["alarm"]["code"], status["waiting-rows"]) == (1, "quarantined", 20)
        check_alarmed(server, head)

        other = Feed(server, "napi::nic")
        other.agent = "agent-2"
        assert other.register().status_code == 200
        assert other.post({"changes": changes(1)}).status_code == 200, "others go on"
        server.restart()
        agent.start()
        assert wait_until_ended(agent) == 3, "no restart lifts it"
        check_alarmed(server, head)
        assert head_of(server) == head
        assert feed.entries(head, head) == [taken]

        done = command(["feeds", "release", AGENT, "--server", server.url])
        assert done == (0, {"agent-id": AGENT, "feeds": [FEED]})
        assert not [one for one in alarms(server, raised=True) if one["code"] == "duplicate-entry"]
        kept = [one for one in alarms(server, raised=False) if one["code"] == "duplicate-entry"]
        assert len(kept) == 1, "it is kept, as cleared"
        agent.start()
        app.wait_until_delivered(server, agent)
        wait_until(lambda: alarms(server, raised=True) == [], 60, what="the agent's own failure to be over")
        assert agent_status(agent, app.database.dsn)[0] == 0


def alarms(server: ServerProcess, *, raised: bool) -> list[dict[str, Any]]:
    """The server's alarms that stand, or those that were cleared."""
    found = server.http.get("/alarms").json()["alarms"]
    return [one for one in found if (one.get("cleared-at") is None) is raised]


def check_alarmed(server: ServerProcess, sequence_id: int) -> None:
    """Check that a person is told of the duplicate: in the alarms, in the server's log, in what shows the feed."""
    raised = alarms(server, raised=True)
    assert {one["code"] for one in raised} <= {"duplicate-entry", "quarantined"}, (
        "the second one: that its agent has ended, and why"
    )
    (alarm,) = [one for one in raised if one["code"] == "duplicate-entry"]
    assert (alarm["change-feed-id"], alarm["agent-id"]) == (FEED, AGENT)
    assert f"sequence id {sequence_id} " in alarm["detail"]
    known = {"feed": FEED, "agent_id": AGENT, "sequence_id": sequence_id}
    assert told(server, "publisher quarantined", level="error", **known)
    assert server.http.get(f"/feeds/{FEED}").json()["quarantined"] is True


def fill(file: Path) -> None:
    """Write until the disk is full to the last byte."""
    with file.open("wb", buffering=0) as out:
        for size in (1 << 12, 1):
            try:
                while True:
                    out.write(bytes(size))
            except OSError:
                continue
