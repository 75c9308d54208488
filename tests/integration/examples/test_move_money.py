"""``examples/move_money.py`` and its agent killed again and again: the feed tells each account's changes in order."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents import AgentProcess
from tests.integration.examples.test_examples import EXAMPLES, RUN_S_MAX
from tests.mariadb import PASSWORD, USER, Database, Server
from tests.scale import SEED, scaled, sized
from tests.servers import Feed, serving
from tests.waiting import wait_until

FEED = "bank"


@pytest.fixture
def bank() -> Iterator[Database]:
    with Server() as server:
        yield server.create_database("bank")


def start(bank: Database, out: Path, count: int) -> subprocess.Popen[bytes]:
    place = ("--port", str(bank.server.port), "--user", USER, "--database", bank.name, "--count", str(count))
    with out.open("wb") as printed:
        return subprocess.Popen(
            [sys.executable, str(EXAMPLES / "move_money.py"), *place],
            stdout=printed,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "MYSQL_PWD": PASSWORD},
        )


def test_transfers_over_kills(bank: Database, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    subprocess.run(
        [sys.executable, str(EXAMPLES / "move_money.py"), "--help"], check=True, capture_output=True
    )
    assert start(bank, tmp_path / "first", 1).wait(RUN_S_MAX) == 0
    with serving(tmp_path / "server") as server:
        agent = AgentProcess(tmp_path / "agent", server.url, bank.dsn, FEED)
        with agent:
            for life in range(scaled(sized(2, soak=3))):
                out, wanted = tmp_path / f"life-{life}", f"transfer {rng.randrange(20, 80)}:"
                run = start(bank, out, 1_000_000)
                try:
                    wait_until(
                        lambda out=out, wanted=wanted, run=run: (  # type: ignore[misc]  # mypy infers no default
                            wanted in out.read_text() or run.poll() is not None
                        ),
                        RUN_S_MAX,
                        what=wanted,
                    )
                finally:
                    run.kill()
                    run.wait(RUN_S_MAX)
                assert wanted in out.read_text(), out.read_text()[-2000:]
                agent.kill()
                agent.start()
            assert start(bank, tmp_path / "last", 10).wait(RUN_S_MAX) == 0
            left = "SELECT COUNT(*) FROM headrace_outbox WHERE NOT processed"
            wait_until(lambda: bank.sql(left) == [(0,)], RUN_S_MAX, what="all rows in the feed")
        check(bank, Feed(server, FEED).entries(1, limit=10_000))


def check(bank: Database, entries: list[dict[str, Any]]) -> None:
    balances: dict[int, int] = {}
    versions: dict[int, int] = {}
    for number, entry in enumerate(entries, 1):
        state = entry["changes"]
        assert entry["sequence-id"] == number
        assert state["version"] == versions.get(state["id"], 0) + 1
        versions[state["id"]], balances[state["id"]] = state["version"], state["balance"]
        if entry.get("tx-last"):
            assert sum(balances.get(account, 100) for account in range(5)) == 500, "half a transfer"
    assert entries[-1]["tx-last"]
    assert sorted(bank.sql("SELECT id, balance, version FROM account WHERE version > 0")) == sorted(
        (account, balances[account], versions[account]) for account in balances
    )
