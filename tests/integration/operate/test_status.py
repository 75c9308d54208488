"""``headrace status``: what it shows is what the server says, and its exit code is 1 exactly if something needs a person."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.identity import Issuer
from tests.ports import free_port
from tests.reports import report
from tests.secured import secured
from tests.servers import Feed, ServerProcess, changes, serving


def status(*words: str, code: int, columns: int = 200) -> str:
    """Run it; returns what it printed."""
    done = forks.run(
        [*forks.HEADRACE, "status", *words], capture_output=True, text=True, timeout=120,
        env={**os.environ, "COLUMNS": str(columns)},
    )  # fmt: skip
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def document(server: ServerProcess, *words: str, code: int = 0) -> Any:
    return json.loads(status("--server", server.url, "--interval", "0s", "--json", *words, code=code))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path) as running:
        feed = Feed(running, "vmapi::vm")
        assert feed.register().status_code == 200
        assert feed.listener(hold=True).status_code == 200
        for number in range(3):
            assert feed.post({"changes": changes(number)}).status_code == 200
        yield running


def test_document_is_what_the_server_says(server: ServerProcess) -> None:
    server.http.put("/reports/agent/agent-1", json=report("vmapi::vm"))
    found = document(server)
    assert (found["ready"], found["in-order"], found["reasons"], found["not-shown"]) == (True, True, [], [])
    (feed,) = found["feeds"]
    assert feed.pop("entries-per-second") is None
    said = server.http.get("/feeds").json()["feeds"][0]
    for moving in (feed, said):  # these go on between the two looks
        moving["listeners"] = [
            {name: value for name, value in one.items() if name not in {"seen-at", "time-to-loss"}}
            for one in moving["listeners"]
        ]
    assert feed == said
    assert found["processes"][0]["name"] == "agent-1"
    assert found["alarms"] == []
    assert found["retention"]["terms"] == server.http.get("/retention").json()["terms"]


def test_rates_are_those_of_the_interval(server: ServerProcess) -> None:
    found = json.loads(status("--server", server.url, "--interval", "100ms", "--json", code=0))
    assert [feed["entries-per-second"] for feed in found["feeds"]] == [0.0]


def test_tables_name_everything(server: ServerProcess) -> None:
    server.http.put("/reports/agent/agent-1", json=report("vmapi::vm"))
    said = status("--server", server.url, "--interval", "0s", code=0)
    for word in (
        "ready",
        "vmapi::vm",
        "agent-1",
        "listener-1",
        "listener, holds",
        "retention",
        "time to loss",
    ):
        assert word in said, said
    assert "[bold" not in said


def test_an_alarm_stands(server: ServerProcess) -> None:
    feed = Feed(server, "vmapi::vm")
    assert feed.post({"sequence-id": 1, "changes": {"another": 1}}).status_code == 409
    found = document(server, code=1)
    assert [one["code"] for one in found["alarms"]] == ["duplicate-entry"]
    assert found["feeds"][0]["quarantined"] is True
    said = status("--server", server.url, "--interval", "0s", code=1)
    assert "quarantined" in said
    assert "headrace explain duplicate-entry" in said
    server.http.post("/publishers/agent-1/release")
    assert document(server)["alarms"] == []


def test_a_process_is_stuck(server: ServerProcess) -> None:
    stuck = report("vmapi::vm", state="stuck")
    assert server.http.put("/reports/agent/agent-1", json=stuck).status_code == 200
    found = document(server, code=1)
    assert found["processes"][0]["state"] == "stuck"


def test_a_token_that_may_not_see_all(tmp_path: Path) -> None:
    with secured(tmp_path / "server", Issuer()) as server:
        Feed(server, "shop").register()
        (tmp_path / "token").write_text(server.issuer.token(roles=["listener"], feeds=["*"]))
        words = ("--server", server.url, "--token-file", str(tmp_path / "token"), "--interval", "0s")
        found = json.loads(status(*words, "--json", code=0))
        assert found["not-shown"] == ["alarms", "processes", "retention"]
        assert found["alarms"] is None
        assert "not shown without an admin's token" in status(*words, code=0)


def test_no_server() -> None:
    said = status("--server", f"http://127.0.0.1:{free_port()}", "--json", code=4)
    assert json.loads(said)["code"] == "server-unreachable"


def test_interval_that_is_none(server: ServerProcess) -> None:
    assert json.loads(status("--interval", "2h", "--json", code=2))["code"] == "config-invalid"
