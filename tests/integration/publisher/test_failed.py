"""A process that dies of an error says so, and of which; one that is told to stop says that. The server tells them apart."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.observing import Told, observed, observed_beside
from headrace.errors import ArchiveOwned
from headrace.publisher.outbox import Outbox
from headrace.runtime.progress import Progress, Standing
from tests import forks
from tests.agents import AgentProcess
from tests.samples import exposed
from tests.servers import Feed, ServerProcess, serving
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until

WITHIN = 90.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


@pytest.fixture(scope="module")
def told_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server of one process that dies of one error after the other."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


def add(path: Path, number: int) -> None:
    with application(path) as app:
        app.execute("BEGIN")
        Outbox.add(app, "shop", {"n": number}, str(number))
        app.execute("COMMIT")


def head(server: ServerProcess) -> int:
    """The newest sequence id of the feed; 0 while there is none."""
    feeds = server.http.get("/feeds").json()["feeds"]
    return feeds[0]["head-sequence-id"] if feeds else 0


def report(server: ServerProcess) -> dict[str, Any]:
    """The only report, empty before the first."""
    found = server.http.get("/reports").json()["reports"]
    return found[0] if found else {}


def standing(server: ServerProcess) -> list[tuple[str, str, str]]:
    """The alarms that stand: code, feed, whose."""
    return [
        (one["code"], one["change-feed-id"], one["agent-id"])
        for one in server.http.get("/alarms").json()["alarms"]
        if one["cleared-at"] is None
    ]


def process_metric(server: ServerProcess, name: str) -> float | None:
    """A number of the agent, from the server's ``/metrics``."""
    found = exposed(server.http.get("/metrics").text)
    return found.get(f"headrace_process_{name}", kind="agent", name="agent-1")


def status(server: ServerProcess, *words: str) -> tuple[int, str]:
    """Exit code and output of ``headrace status``."""
    done = forks.run(
        [*forks.HEADRACE, "status", "--server", server.url, "--interval", "0s", *words],
        capture_output=True, text=True, timeout=120, env={**os.environ, "COLUMNS": "240"},
    )  # fmt: skip
    return done.returncode, done.stdout


def test_an_agent_that_ends_of_a_terminal_error_is_an_alarm_until_it_is_well(
    server: ServerProcess, tmp_path: Path
) -> None:
    path = tmp_path / "app.db"
    with application(path) as app:
        Outbox.create(app)
    with AgentProcess(tmp_path / "agent", server.url, f"sqlite:///{path}", "shop") as agent:
        add(path, 1)
        wait_until(lambda: head(server) == 1, WITHIN, what="the first row")
        assert Feed(server, "shop").register(instance="newer").status_code == 200
        add(path, 2)
        assert wait_until(agent.ended, WITHIN, what="the agent to end") == 3

        said = report(server)
        assert (said["state"], said["report"]["state"]) == ("failed", "failed")
        assert said["report"]["code"] == "agent-fenced"
        assert said["report"]["detail"]
        assert standing(server) == [("agent-fenced", "shop", "agent agent-1")]
        assert said["report"]["detail"] in server.http.get("/alarms").json()["alarms"][0]["detail"]
        assert (process_metric(server, "up"), process_metric(server, "ending")) == (0, 0)
        code, document = status(server, "--json")
        assert code == 1
        assert json.loads(document)["in-order"] is False
        code, table = status(server)
        assert code == 1
        assert "failed" in table
        assert "(agent-fenced)" in table
        assert '<span class="chip bad">failed</span>' in server.http.get("/console/processes").text

        agent.kill()
        agent.start()
        wait_until(lambda: head(server) == 2, WITHIN, what="the second row")
        wait_until(lambda: standing(server) == [], WITHIN, what="the alarm to be cleared")
        assert agent.stop() == 0
    assert report(server)["report"]["state"] == "ending"
    assert report(server)["report"]["code"] == ""
    assert process_metric(server, "ending") == 1
    assert status(server, "--json")[0] == 0


async def nothing(_stuck: list[Standing]) -> None:
    """What is never stuck needs no new connection."""


@pytest.mark.parametrize(
    ("error", "state", "code", "words"),
    [
        (ArchiveOwned("another backup writes to it"), "failed", "archive-owned", "another backup"),
        (ExceptionGroup("tasks", [ArchiveOwned("owned")]), "failed", "archive-owned", "owned"),
        (ZeroDivisionError("4711 of account X"), "failed", "failed", "ZeroDivisionError; its log says more"),
        (asyncio.CancelledError(), "ending", "", ""),
        (KeyboardInterrupt(), "ending", "", ""),
        (None, "ending", "", ""),
    ],
)
def test_of_what_a_process_died_is_told_with_and_without_an_event_loop(
    told_of_all: ServerProcess, error: BaseException | None, state: str, code: str, words: str
) -> None:
    server = told_of_all
    told = Told("pipeline", "job", server.url)

    def work() -> None:
        if error is not None:
            raise error

    async def observed_work() -> None:
        async with observed(Progress(), told, nothing):
            work()

    def beside() -> None:
        with observed_beside(Progress(), told, lambda stuck: None):
            work()

    for run in (beside, lambda: asyncio.run(observed_work())):
        if error is None:
            run()
        else:
            with pytest.raises(type(error)) as raised:
                run()
            assert raised.value is error or not isinstance(error, Exception)
        said = report(server)["report"]
        assert (said["state"], said["code"]) == (state, code)
        assert words in said["detail"]
        assert "4711" not in said["detail"], "the text of an unforeseen error may hold anything"
        due = [(code, "", "pipeline job")] if state == "failed" else []
        assert standing(server) == due
        server.http.put("/reports/pipeline/job", json=said | {"state": "ending", "code": "", "detail": ""})
        assert standing(server) == []
