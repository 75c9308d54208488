"""RFD 5, "Failure scenarios", on the publisher's side: real processes, real cuts. Each test is named after its sentence.

In the end every committed row is in the feed once, in the order of the commits, as a reader sees it over HTTP.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from tests.agents import AgentProcess
from tests.postgres import Database
from tests.proxy import Proxy
from tests.scale import SEED, chosen, scaled
from tests.scenario_processes import (
    CONNECT_S_MAX,
    FEED,
    Application,
    SlammedDoor,
    agent_status,
    head_of,
    told,
    wait_until_told,
)
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

POST = f"POST /feeds/{FEED.replace(':', '%3A')}/entries ".encode()
"""How the agent's append begins on the wire."""

BACKOFF_TRIES = 8
BACKOFF_S_LAST = 1.5
"""The agent's longest wait is 3 s, drawn between half of it and all of it."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


@pytest.fixture
def app(database: Database) -> Application:
    return Application(database)


@pytest.fixture
def line(server: ServerProcess) -> Iterator[Proxy]:
    """The line between the agent and the API."""
    host, port = server.address.split(":")
    with Proxy(host, int(port)) as proxy:
        yield proxy


@pytest.fixture
def agent(tmp_path: Path, app: Application, line: Proxy) -> Iterator[AgentProcess]:
    """An agent that reaches the API by the line, and runs already. A call that hangs is given up after 3 s."""
    url = f"http://127.0.0.1:{line.port}"
    with AgentProcess(tmp_path / "agent", url, app.database.dsn, FEED, server_timeout="3s") as running:
        yield running


def through(database: Database, port: int) -> str:
    """The database's address by way of a proxy; an attempt to connect is soon given up."""
    return f"postgresql://postgres@127.0.0.1:{port}/{database.name}?connect_timeout={CONNECT_S_MAX}"


@pytest.mark.parametrize("how", chosen(["reset", "half-open"]))
def test_once_the_partition_is_resolved_the_agent_picks_up_the_changes_and_pushes_them(
    app: Application, server: ServerProcess, tmp_path: Path, how: str
) -> None:
    """VMAPI is partitioned from Moray.

    "No writes to Moray from VMAPI will happen until the partition is resolved. Thus no change feed entries will be produced.
    Once the partition is resolved VMAPI will begin storing data and publisher-agent will pick up the changes and push them
    to Sdc-changefeed API."
    """
    with Proxy("127.0.0.1", app.database.cluster.port) as moray:
        dsn = through(app.database, moray.port)
        with AgentProcess(tmp_path / "agent", server.url, dsn, FEED) as agent:
            app.commit(20, dsn)
            app.wait_until_delivered(server, agent)
            head = head_of(server)

            moray.cut() if how == "reset" else moray.freeze()
            with pytest.raises(psycopg.OperationalError):
                app.commit(1, dsn)
            app.commit(30)  # by who is on Moray's side: it can't be known here
            if how == "reset":
                wait_until_told(agent, "the source does not answer", 3, code="source-unavailable")
            code, error = agent_status(agent, dsn)
            assert (code, error["code"]) == (1, "source-unavailable")
            assert head_of(server) == head
            assert agent.ended() is None

            moray.resume() if how == "reset" else moray.thaw()
            app.commit(10, dsn)
            app.wait_until_delivered(server, agent)
            assert len(app.committed()) == 2 * 60
            assert agent_status(agent, dsn)[0] == 0


def test_entries_marked_with_the_agents_id_are_processed_at_startup(
    app: Application, server: ServerProcess, line: Proxy, agent: AgentProcess
) -> None:
    """VMAPI's publisher-agent crashes, with rows marked but not posted.

    "Because we may have missed notifications from Moray and the next notification event will happen at a non-deterministic
    time, we should assume that we missed notifications and have marked entries in the change feed bucket at agent startup."
    """
    app.commit(10)
    app.wait_until_delivered(server, agent)
    head = head_of(server)
    line.cut_at(POST, delivered=False)
    app.commit(10)
    wait_until(lambda: line.sprung, what="the agent to post")
    agent.kill()
    marked, processed = app.places()
    assert (head_of(server), processed) == (head, head + 1)
    assert marked > processed, "rows are marked, and were posted in vain"
    app.commit(10)
    line.resume()
    agent.start()
    app.wait_until_delivered(server, agent)


def test_entries_are_not_considered_processed_until_the_api_has_accepted_them(
    app: Application, server: ServerProcess, line: Proxy, agent: AgentProcess
) -> None:
    """VMAPI's publisher-agent crashes, with rows that the API has and the agent doesn't know of: they are not posted again.

    "Since publisher-agent entries are not considered processed until sdc-changefeed has accepted them, we don't need to
    consider entries marked processed that haven't actually been processed."
    """
    app.commit(10)
    app.wait_until_delivered(server, agent)
    head = head_of(server)
    line.cut_at(POST, delivered=True)
    app.commit(10)
    wait_until(lambda: head_of(server) > head, what="the API to accept what it can't answer")
    wait_until(lambda: line.sprung and line.connections == 0, what="the answer to be lost")
    agent.kill()
    accepted = head_of(server)
    marked, processed = app.places()
    assert processed == head + 1
    assert marked > accepted > head, "accepted, and not noted"
    app.commit(10)
    line.resume()
    agent.start()
    app.wait_until_delivered(server, agent)
    (joined,) = [one for one in told(agent, "joined the feed") if one["next_sequence_id"] == accepted + 1]
    assert joined["resume"]["confirm_below"] == accepted + 1


def test_entries_which_happen_while_the_agent_is_unavailable_are_processed_at_startup(
    app: Application, server: ServerProcess, agent: AgentProcess
) -> None:
    """VMAPI's publisher-agent crashes while it sleeps: nobody hears the notifications.

    "What we do need to consider is entries which happen during the time the publisher-agent is unavailable [...] With this
    behavior if the agent crashes or is restarted, any in process and/or missed notifications will be processed at startup
    and which will result in a delay, but maintain correctness and sequential ordering."
    """
    app.commit(10)
    app.wait_until_delivered(server, agent)
    agent.kill()
    head = head_of(server)
    app.commit(30)
    assert app.unmarked() == 60
    assert head_of(server) == head
    agent.start()
    app.wait_until_delivered(server, agent)


def test_a_crash_at_any_moment_results_in_a_delay_but_maintains_sequential_ordering(
    app: Application, server: ServerProcess, line: Proxy, agent: AgentProcess
) -> None:
    """VMAPI's publisher-agent crashes again and again while VMAPI writes; now and then it was frozen before.

    "[...] which will result in a delay, but maintain correctness and sequential ordering."
    """
    rng = random.Random(SEED)
    written = threading.Event()

    def write() -> None:
        while not written.is_set():
            app.commit(5)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(scaled(3)):
            head, more = head_of(server), rng.randrange(1, 200)
            wait_until(lambda: head_of(server) > head + more, what="the agent to get on")  # noqa: B023  # called at once
            if rng.random() < 0.5:
                line.freeze()
                wait_until(lambda: app.places()[0] > app.places()[1], what="the agent to mark")
            agent.kill()
            line.thaw()
            agent.start()
    finally:
        written.set()
        writing.join()
    app.wait_until_delivered(server, agent)


def test_the_agent_continues_marking_and_uses_an_exponential_back_off(
    app: Application, server: ServerProcess, line: Proxy, agent: AgentProcess
) -> None:
    """VMAPI's publisher-agent is partitioned off from sdc-changefeed API.

    "The change feed bucket will continue to receive new entries and the publisher-agent will continue marking entries which
    need to be processed. The publisher-agent will continue attempts to publish to sdc-changefeed API and use an exponential
    back-off. When sdc-changefeed API becomes available again, messages piled up on the publisher-agent's change feed bucket
    will be delivered. The result is delayed, but sequentially correct events being delivered."
    """
    app.commit(10)
    app.wait_until_delivered(server, agent)
    head = head_of(server)
    line.cut()
    with SlammedDoor(line.port) as door:
        app.commit(200)
        wait_until(lambda: app.unmarked() == 0, what="the agent to mark what waits")
        wait_until(lambda: len(door.times) >= BACKOFF_TRIES, 60, what="attempts to publish")
        app.commit(50)
        wait_until(lambda: app.unmarked() == 0, what="the agent to go on marking")
        assert app.places() == (head + 501, head + 1)
        assert head_of(server) == head
        wait_until_told(agent, "alarm", code="server-unreachable")
        wait_until(lambda: agent_status(agent, app.database.dsn)[0] == 1, 60, what="it to be shown")
        _, status = agent_status(agent, app.database.dsn)
        assert status["alarm"]["code"] == "server-unreachable"
        assert status["waiting-rows"] == 500
    gaps = [later - earlier for earlier, later in pairwise(door.times)]
    tries = told(agent, "trying again", code="server-unreachable")
    delays = [one["delay_s"] for one in tries]
    assert len(door.times) <= len(delays) + 1, "it tries once, then waits"
    assert max(delays) > 4 * delays[0]
    assert all(gap >= BACKOFF_S_LAST for gap in gaps[BACKOFF_TRIES - 2 :]), "attempts get rarer"
    line.resume()
    app.wait_until_delivered(server, agent)
    assert agent_status(agent, app.database.dsn)[0] == 0


@pytest.mark.parametrize("how", chosen(["frozen server", "half-open line"]))
def test_an_api_that_takes_connections_and_never_answers_is_a_partition_too(
    app: Application, server: ServerProcess, line: Proxy, agent: AgentProcess, how: str
) -> None:
    """VMAPI's publisher-agent is partitioned off from sdc-changefeed API, and nobody is told.

    "When sdc-changefeed API becomes available again, messages piled up on the publisher-agent's change feed bucket will be
    delivered. The result is delayed, but sequentially correct events being delivered."
    """
    app.commit(10)
    app.wait_until_delivered(server, agent)
    if how == "frozen server":
        os.kill(server.pid, signal.SIGSTOP)
    else:
        line.freeze()
    app.commit(50)
    wait_until(lambda: app.places()[0] > app.places()[1], what="the agent to mark")
    if how == "frozen server":
        os.kill(server.pid, signal.SIGCONT)
    else:
        wait_until_told(agent, "trying again", code="server-unreachable")
        app.commit(50)
        wait_until(
            lambda: app.unmarked() == 0,
            120,
            what="the agent to go on marking between two tries, each of which hangs",
        )
        line.thaw()  # what it sent in vain arrives now, before and beside what it sends anew
    app.commit(10)
    app.wait_until_delivered(server, agent)
