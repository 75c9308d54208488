"""A real agent over a MariaDB outbox that many write at once: killed at any moment, it loses, tears and swaps nothing."""

from __future__ import annotations

import json
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.publisher.marked import MarkedRow, RowPlace
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.publisher.owner import FeedPlace
from headrace.runtime.dsn import parse_dsn
from tests.agents import AgentProcess, headrace
from tests.integration.mariadb.outboxes import read_feed
from tests.mariadb import Database
from tests.scale import SEED, scaled, sized
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

FEED, AGENT = "bank", "agent-1"
ACCOUNTS = 8
SETTINGS = {
    "repeatable-read": ("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",),
    "read-committed": ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",),
    "serializable": ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",),
    "ids-in-steps": (
        "SET SESSION auto_increment_increment = 10, auto_increment_offset = 7",
        "SET SESSION auto_increment_increment = 3, auto_increment_offset = 1",
        "SET SESSION auto_increment_increment = 1",
    ),
}
"""What the writers' sessions are set to, in turn."""


class Bank:
    """Accounts whose changes are in the outbox, and writers that move money between them, one transaction each."""

    def __init__(self, database: Database, settings: tuple[str, ...] = ("DO 0",)) -> None:
        self.database = database
        self._settings = settings
        self.failures: list[BaseException] = []
        database.sql("CREATE TABLE account (id INT PRIMARY KEY, balance INT, version INT) ENGINE = InnoDB")
        for number in range(ACCOUNTS):
            database.sql(f"INSERT INTO account VALUES ({number}, 100, 0)")

    def start(self, seed: int, writers: int, transfers: int) -> list[threading.Thread]:
        """Start writers; each is a thread with a connection."""
        threads = [
            threading.Thread(
                target=self._write,
                args=(f"{seed}-{number}", transfers, self._settings[number % len(self._settings)]),
            )
            for number in range(writers)
        ]
        for thread in threads:
            thread.start()
        return threads

    def _write(self, name: str, transfers: int, setting: str) -> None:
        rng = random.Random(name)
        try:
            with self.database.connect(init_command=setting) as app:
                for number in range(transfers):
                    # In the order of their ids, so that no two wait for each other.
                    one, other = sorted(rng.sample(range(ACCOUNTS), 2))
                    self._move(app, f"{name}-{number}", one, -1)
                    self._move(app, f"{name}-{number}", other, 1)
                    app.rollback() if rng.random() < 0.1 else app.commit()
        except BaseException as error:  # noqa: BLE001  # shown by the test
            self.failures.append(error)

    @staticmethod
    def _move(app: Any, transfer: str, account: int, amount: int) -> None:
        with app.cursor() as cursor:
            cursor.execute(
                "UPDATE account SET balance = balance + %s, version = version + 1 WHERE id = %s",
                (amount, account),
            )
            cursor.execute("SELECT balance, version FROM account WHERE id = %s", (account,))
            balance, version = cursor.fetchone()
        said = {"balance": balance, "version": version, "transfer": transfer}
        Outbox.add(app, FEED, said, key=str(account))

    def check(self, entries: list[tuple[str, dict[str, Any], bool]]) -> None:
        """Compare (key, changes, tx-last) in the feed's order with the table: complete, whole, in order."""
        assert self.failures == []
        versions: defaultdict[str, int] = defaultdict(int)
        balances: dict[str, int] = {str(number): 100 for number in range(ACCOUNTS)}
        half: dict[str, str] = {}
        for key, changes, is_last in entries:
            versions[key] += 1
            assert changes["version"] == versions[key], f"account {key} is out of order"
            balances[key] = changes["balance"]
            if half.pop(changes["transfer"], None) is None:
                half[changes["transfer"]] = key
            if is_last:
                assert half == {}, "a transfer is torn"
                assert sum(balances.values()) == 100 * ACCOUNTS
        rows = self.database.sql("SELECT id, balance, version FROM account")
        assert {str(number): version for number, _, version in rows if version} == dict(versions)
        assert {str(number): balance for number, balance, _ in rows} == balances


@pytest.mark.parametrize("seed", range(sized(1, soak=5)), ids=lambda seed: f"seed-{seed}")
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_concurrent_transactions_are_whole_and_each_key_is_in_the_order_of_commits(
    database: Database, settings: tuple[str, ...], seed: int
) -> None:
    """An account's row lock lets its changes commit one after the other: their versions are the order of commits."""
    bank = Bank(database, settings)
    source = MysqlSource(parse_dsn(database.dsn))
    source.claim(FEED, AGENT, FeedPlace("A", 1, 1), 1_000)
    posted: list[MarkedRow] = []
    writers = bank.start(SEED + seed, writers=6, transfers=sized(25, soak=200))
    is_over = False
    while not is_over:
        is_over = not any(writer.is_alive() for writer in writers)
        source.advance(FEED, AGENT, 1, None, 1_000)
        while rows := source.batch(FEED, AGENT):
            posted += rows
            source.advance(FEED, AGENT, 1, RowPlace(rows[-1].id, rows[-1].sequence_id), 2_000, rows_max=0)
    source.close()
    assert [row.sequence_id for row in posted] == list(range(1, len(posted) + 1))
    bank.check([(str(row.key), json.loads(row.changes), row.tx_last) for row in posted])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server") as running:
        yield running


def waiting(database: Database) -> int:
    return int(database.sql("SELECT COUNT(*) FROM headrace_outbox WHERE NOT processed")[0][0])


def processed(database: Database) -> int:
    return int(database.sql("SELECT COUNT(*) FROM headrace_outbox WHERE processed")[0][0])


@pytest.mark.parametrize("seed", range(scaled(1)), ids=lambda seed: f"seed-{seed}")
def test_sigkill_of_agent_and_server_loses_and_doubles_nothing(
    database: Database, server: ServerProcess, tmp_path: Path, seed: int
) -> None:
    seed += SEED
    rng = random.Random(seed)
    bank = Bank(database)
    with AgentProcess(tmp_path / "agent", server.url, database.dsn, FEED, agent_id=AGENT) as agent:
        for life in range(sized(3, soak=5)):
            done = processed(database)
            writers = bank.start(seed * 100 + life, writers=3, transfers=rng.randrange(20, 80))
            wait_until(lambda done=done: processed(database) > done, within=60)  # type: ignore[misc]  # mypy infers no default
            agent.kill()
            if life % 2:
                server.kill()
            for writer in writers:
                writer.join()
            if life % 2:
                server.start()
            agent.start()
        for writer in bank.start(seed, writers=1, transfers=50):  # only an agent that is up delivers them
            writer.join()
        wait_until(lambda: waiting(database) == 0, within=60)
        status = agent.status()
        assert agent.stop() == 0
    assert [one["waiting-rows"] for one in status["feeds"]] == [0]
    entries = read_feed(server, FEED)
    assert [entry["sequence-id"] for entry in entries] == list(range(1, len(entries) + 1))
    bank.check([(entry["key"], entry["changes"], entry.get("tx-last", False)) for entry in entries])


def test_attach_says_to_use_capture(database: Database, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="capture"):
        headrace(["publisher", "attach", database.dsn, "--feed", FEED, "--table", "account"])
