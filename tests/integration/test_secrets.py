"""No token and no password stands in what a command says, at the most talkative level, whatever goes wrong."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import forks
from tests.ports import free_port
from tests.waiting import wait_until

TOKEN = "Tok3nTok3nTok3n"
PASSWORD = "Passw0rdPassw0rd"
WITHIN = 120.0

Words = Callable[[Path], list[str]]


def _dsn(scheme: str) -> str:
    return f"{scheme}://app:{PASSWORD}@127.0.0.1:{free_port()}/app"


def _agent(scheme: str) -> Words:
    def words(folder: Path) -> list[str]:
        config = folder / "agent.toml"
        config.write_text(f'agent-id = "a"\nfeeds = ["shop"]\ndsn = "{_dsn(scheme)}"\nserver = "{_away()}"\n')
        return ["agent", "run", "--config", str(config)]

    return words


def _capture(folder: Path) -> list[str]:
    config = folder / "capture.toml"
    config.write_text(
        f'feed = "shop"\ndsn = "{_dsn("mariadb")}"\nserver = "{_away()}"\ngrpc = "127.0.0.1:{free_port()}"\n'
        f'state-dir = "{folder}"\n'
    )
    return ["capture", "run", "--config", str(config)]


def _capture_check(folder: Path) -> list[str]:
    return ["capture", "check", *_capture(folder)[2:]]


def _away() -> str:
    return f"http://127.0.0.1:{free_port()}"


def _listen(folder: Path) -> list[str]:
    return ["listen", "shop", "--server", _away(), "--bookmark", str(folder / "bookmark")]


def _listen_in_database(folder: Path) -> list[str]:
    return ["listen", "shop", "--server", _away(), "--bookmark", _dsn("postgresql")]


def _backup(folder: Path) -> list[str]:
    faces = ["--server", _away(), "--grpc", f"127.0.0.1:{free_port()}"]
    return ["wal", "backup", "--pitr-dir", str(folder / "archive"), *faces]


def _tables(folder: Path) -> list[str]:
    return ["pipeline", "tables", "--feed", "shop", "--to", str(folder / "tables"), "--server", _away()]


def _kafka(folder: Path) -> list[str]:
    sink = f"kafka://127.0.0.1:{free_port()}/topic?protocol=simple&sasl-user=app&sasl-password={PASSWORD}"
    return [
        "pipeline",
        "kafka",
        "--feed",
        "shop",
        "--sink-uri",
        sink,
        "--checkpoint",
        str(folder / "checkpoint"),
    ]


def _serve(folder: Path) -> list[str]:
    return ["serve", "--store", _dsn("postgresql"), "--http", f"127.0.0.1:{free_port()}"]


def _misspelt(folder: Path) -> list[str]:
    return ["serve", "--store", f"postgresql://app:{PASSWORD}@127.0.0.1:no-port/app"]


CASES: dict[str, Words] = {
    "agent-postgresql": _agent("postgresql"),
    "agent-mariadb": _agent("mariadb"),
    "capture": _capture,
    "capture-check": _capture_check,
    "listen": _listen,
    "listen-in-a-database": _listen_in_database,
    "backup": _backup,
    "tables": _tables,
    "kafka": _kafka,
    "serve": _serve,
    "misspelt": _misspelt,
}


@pytest.mark.parametrize("name", CASES)
def test_nothing_that_is_said_holds_a_secret(name: str, tmp_path: Path) -> None:
    said = tmp_path / "said"
    environment = {**os.environ, "HEADRACE_TOKEN": TOKEN, "HEADRACE_LOG_LEVEL": "debug"}
    with said.open("wb") as file:
        process = forks.start(
            [*forks.HEADRACE, *CASES[name](tmp_path)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment,
        )
    try:
        # It ends with an error, or waits for what is away: then it says so, and is told to end.
        wait_until(
            lambda: process.poll() is not None or "ttempt" in said.read_text() or "code" in said.read_text(),
            WITHIN,
            what="an error or a line that says what is away",
        )
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(WITHIN)
    finally:
        process.kill()
        process.wait(WITHIN)
    found = said.read_text()
    assert found, "it says what is wrong"
    assert TOKEN not in found
    assert PASSWORD not in found
