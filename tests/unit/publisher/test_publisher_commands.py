"""The commands as a person runs them: exit codes, documents, and that nobody's DSN is printed."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.unit.publisher.outboxes import application


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "customer-secret.db"
    with application(path) as app:
        app.executescript(
            "CREATE TABLE account (id INTEGER PRIMARY KEY, owner TEXT, ssn TEXT); INSERT INTO account VALUES (1, 'a', 's');"
            "CREATE TABLE twin (id INTEGER PRIMARY KEY, e TEXT UNIQUE);"
        )
    return path


def headrace(*words: str, dsn: str = "") -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    return forks.run(
        [*forks.HEADRACE, *words],
        env={**environment, **({"HEADRACE_DSN": dsn} if dsn else {})},
        capture_output=True,
        text=True,
        check=False,
    )


def document(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.stdout.count("\n") == 1, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_attach_check_detach(path: Path) -> None:
    dsn = f"sqlite:///{path}"
    words = ("publisher", "attach", "--table", "account", "--feed", "shop", "--mask", "account.ssn", "--json")
    (attached,) = document(headrace(*words, dsn=dsn))["attached"]
    assert attached["new"] is True
    assert (attached["table"], attached["version"], attached["copied-rows"], attached["masked"]) == (
        "account",
        1,
        1,
        ["ssn"],
    )
    (again,) = document(headrace(*words, dsn=dsn))["attached"]
    assert again["new"] is False
    done = headrace("publisher", "check", dsn, "--json")
    assert (done.returncode, document(done)["ok"]) == (0, True)
    with application(path) as app:
        app.execute("DROP TRIGGER headrace_1_delete")
    done = headrace("publisher", "check", "--dsn", dsn, "--json")
    assert (done.returncode, document(done)["ok"]) == (1, False)
    assert document(done)["attached"][0]["findings"][0]["kind"] == "trigger-missing"
    assert "trigger-missing" in headrace("publisher", "check", dsn=dsn).stdout
    (detached,) = document(headrace("publisher", "detach", "--discard", "--json", dsn=dsn))["detached"]
    assert detached == {"table": "account", "feed": "shop", "waiting-rows": 0}


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (("attach", "--feed", "shop", "--table", "twin"), "attach-unsafe", 3),
        (("attach", "--feed", "shop", "--table", "nope"), "table-not-found", 2),
        (("attach", "--feed", "sh op", "--table", "account"), "invalid-request", 2),
        (("attach", "--feed", "shop"), "usage", 2),
        (("attach", "--table", "account"), "usage", 2),
        (("check",), "table-not-found", 2),
        (("detach",), "table-not-found", 2),
        (("accept", "--feed", "shop", "--reason", "why"), "table-not-found", 2),
        (("accept", "--feed", "shop", "--reason", " "), "usage", 2),
    ],
    ids=lambda value: "-".join(value)[:60].replace(" ", "_") if isinstance(value, tuple) else None,
)
def test_mistakes_are_told_in_three_lines(
    path: Path, words: tuple[str, ...], code: str, exit_code: int
) -> None:
    done = headrace("publisher", *words, dsn=f"sqlite:///{path}")
    assert done.returncode == exit_code
    assert f"code: {code}" in done.stderr
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == ["error", "code", "hint"]
    assert str(path) not in done.stderr + done.stdout
    with application(path) as app:
        assert app.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'headrace%'").fetchone() == (
            0,
        )


@pytest.mark.parametrize(
    ("dsn", "code"),
    [("", "dsn-invalid"), ("sqlite:///missing.db", "dsn-invalid"), ("oracle://u:pw@h/db", "dsn-invalid")],
)
def test_wrong_dsn(dsn: str, code: str) -> None:
    done = headrace("publisher", "attach", "--feed", "shop", "--table", "account", "--json", dsn=dsn)
    assert (done.returncode, document(done)["code"]) == (2, code)
    assert "pw" not in done.stdout + done.stderr
    assert not Path("missing.db").exists()


def test_agent_names_the_key_that_is_wrong(tmp_path: Path) -> None:
    config = tmp_path / "agent.toml"
    config.write_text('agent-id = "a"\nfeeds = ["f"]\nretension = "2d"\n')
    done = headrace("agent", "run", "--config", str(config))
    assert done.returncode == 2
    assert "retension" in done.stderr
    assert "retention" in done.stderr


def test_agent_that_is_told_to_stop_ends_well(path: Path) -> None:
    dsn = f"sqlite:///{path}"
    headrace("publisher", "attach", dsn, "--table", "account", "--feed", "shop")
    config = path.with_name("agent.toml")
    config.write_text('agent-id = "a"\nfeeds = ["shop"]\nserver = "http://127.0.0.1:9"\n')
    process = forks.start(
        [*forks.HEADRACE, "agent", "run", "--config", str(config), "--json"],
        env={**os.environ, "HEADRACE_DSN": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == {"agent-id": "a", "feeds": ["shop"]}
    process.terminate()
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert str(path) not in errors
