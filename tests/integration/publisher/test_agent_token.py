"""A token that is not accepted for a while: agent and listener wait, say so, and go on once the file holds a good one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forks
from tests.agents import AgentProcess, headrace
from tests.identity import Issuer
from tests.scale import chosen
from tests.secured import SecuredServer, secured
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until

ISSUER = Issuer()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredServer]:
    with secured(tmp_path_factory.mktemp("server"), ISSUER) as running:
        yield running


def renew(file: Path, **claims: object) -> None:
    """Put another token there, in one step."""
    draft = file.with_suffix(".draft")
    draft.write_text(ISSUER.token(**{"roles": ["publisher", "listener"], "feeds": ["*"], **claims}))
    draft.replace(file)


def head_of(server: SecuredServer, feed: str) -> int:
    """Where the feed ends; 0 if it is not there yet."""
    return int(server.http.get(f"/feeds/{feed}").json().get("head-sequence-id", 0))


def alarm_of(agent: AgentProcess) -> str:
    """The code of the alarm that ``agent status`` shows, empty without one."""
    words = [*forks.HEADRACE, "agent", "status", "--json"]
    words += ["--config", str(agent.folder / "agent.toml")]
    done = forks.run(
        words, env={"HEADRACE_DSN": agent.dsn}, capture_output=True, text=True, timeout=60, check=False
    )
    alarm = json.loads(done.stdout)["feeds"][0]["alarm"]
    return "" if alarm is None else str(alarm["code"])


@pytest.mark.parametrize(
    ("wrong", "code"), chosen([({"exp": 1}, "unauthenticated"), ({"roles": []}, "forbidden")])
)
def test_agent_and_listener_outlast_a_refused_token(
    tmp_path: Path, server: SecuredServer, wrong: dict[str, object], code: str
) -> None:
    name = f"shop-{code}"
    token, database, dsn = tmp_path / "token", tmp_path / "app.db", f"sqlite:///{tmp_path / 'app.db'}"
    renew(token)
    with application(database) as app:
        app.execute("CREATE TABLE item (id INTEGER PRIMARY KEY, name)")
        headrace(["publisher", "attach", dsn, "--feed", name, "--table", "item", "--no-copy"])
        words = [*forks.HEADRACE, "listen", name, "--server", server.url]
        words += ["--token-file", str(token), "--bookmark", str(tmp_path / "b.db")]
        out, err = tmp_path / "out", tmp_path / "err"
        with AgentProcess(tmp_path / "agent", server.url, dsn, name, token_file=str(token)) as agent:
            app.execute("INSERT INTO item (name) VALUES ('a')")
            wait_until(lambda: head_of(server, name) == 2, what="the schema and the row")
            renew(token, **wrong)
            app.execute("INSERT INTO item (name) VALUES ('b')")
            wait_until(lambda: alarm_of(agent) == code, what="the alarm in agent status")
            with out.open("wb") as lines, err.open("wb") as errors:
                listener = forks.start(words, stdout=lines, stderr=errors)
            try:
                wait_until(lambda: code in err.read_text(), what="the listener's alarm")
                renew(token)
                wait_until(lambda: head_of(server, name) == 3, what="the second row")
                wait_until(lambda: out.read_bytes().count(b"\n") == 3, what="all at the listener")
                wait_until(lambda: alarm_of(agent) == "", what="the alarm taken back")
                assert (agent.ended(), listener.poll()) == (None, None)
            finally:
                listener.kill()
                listener.wait()
        assert code in agent.errors()
