"""The connection to MariaDB is cut in every phase of the agent's work; it stalls; the agent is killed where it hurts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace.publisher.outbox import Outbox
from tests.agents import AgentProcess
from tests.integration.mariadb.outboxes import AGENT, FEED, add, read_feed
from tests.mariadb import Database, Server
from tests.proxy import Proxy
from tests.scale import chosen, sized
from tests.servers import ServerProcess, serving
from tests.waiting import wait_until

SETTLED_S_MAX = 60.0
ANSWER_TIMEOUT_S = 2

PHASES = {
    "is asked for news": b"SELECT MIN(id), MAX(id)",
    "begins": b"BEGIN",
    "locks the owner": b"FOR UPDATE",
    "looks": b"SELECT id \nFROM headrace_outbox",
    "marks": b"SET agent_id = '",
    "notes the places": b"SET next_sequence_id",
    "commits": b"COMMIT",
    "reads the sizes": b"OCTET_LENGTH(changes)",
    "reads a batch": b"tx_index, ROUND",
    "marks as processed": b"SET processed = 1",
    "notes how far it is": b"SET processed_next",
}
KILLED = sized(("marks", "commits", "reads a batch", "marks as processed"), soak=tuple(PHASES))
"""Phases in which the process is killed: test_crash_points ends a relay at each step, in this process."""
JOINING = {
    "connects": b"SET SESSION",
    "asks for the format": b"SHOW TABLES LIKE",
    "makes its owner row": b"INSERT IGNORE INTO headrace_owner",
    "owns the feed": b"agent_id = 'shop-1', alarm = NULL",
    "reads parked rows": b"FROM headrace_parked",
}
"""What it sends only when it joins."""


class Shop:
    """Server and agent over the outbox, which the agent reaches through a proxy."""

    def __init__(self, database: Database, server: ServerProcess, agent: AgentProcess, proxy: Proxy) -> None:
        self.database, self.server, self.agent, self.proxy = database, server, agent, proxy
        self.written: list[str] = []

    def write(self, note: str) -> None:
        """Add three rows in one transaction."""
        keys = [f"{note} {number}" for number in range(3)]
        add(self.database, *keys)
        self.written += keys

    def wait_until_there(self) -> None:
        """Wait until the feed holds what was written, once and in order."""
        wait_until(
            lambda: len(read_feed(self.server)) >= len(self.written),
            SETTLED_S_MAX,
            what="all rows in the feed",
        )
        assert [entry["key"] for entry in read_feed(self.server)] == self.written
        assert self.agent.ended() is None, self.agent.errors()


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> Iterator[Shop]:
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy("127.0.0.1", database.server.port))
        server = stack.enter_context(serving(tmp_path / "server"))
        dsn = database.dsn.replace(f":{database.server.port}/", f":{proxy.port}/")
        agent = AgentProcess(
            tmp_path / "agent",
            server.url,
            f"{dsn}?answer-timeout={ANSWER_TIMEOUT_S}",
            FEED,
            agent_id=AGENT,
        )
        running = Shop(database, server, stack.enter_context(agent), proxy)
        running.write("first")
        wait_until(
            lambda: server.http.get(f"/feeds/{FEED}").status_code == 200, SETTLED_S_MAX, what="the feed"
        )
        running.wait_until_there()
        yield running


@pytest.mark.parametrize(
    "delivered",
    chosen([False, True], of="MariaDB"),
    ids=lambda delivered: f"{'after' if delivered else 'before'} it is done",
)
def test_a_cut_in_any_phase_loses_and_doubles_nothing(shop: Shop, delivered: bool) -> None:
    for phase, message in {**PHASES, **JOINING}.items():
        note = f"cut when it {phase}"
        shop.proxy.cut_at(message, delivered=delivered)
        if phase in JOINING:
            shop.proxy.reset()
        shop.write(note)
        wait_until(lambda: shop.proxy.sprung, SETTLED_S_MAX, what=note)
        shop.proxy.resume()
        shop.wait_until_there()


def test_an_agent_killed_in_any_phase_loses_and_doubles_nothing(shop: Shop) -> None:
    for phase in KILLED:
        note = f"killed when it {phase}"
        shop.proxy.cut_at(PHASES[phase], delivered=True)
        shop.write(note)
        wait_until(lambda: shop.proxy.sprung, SETTLED_S_MAX, what=note)
        shop.agent.kill()
        shop.proxy.resume()
        shop.agent.start()
        shop.wait_until_there()


def test_rows_that_were_marked_and_not_posted_are_posted_by_the_next_life(shop: Shop) -> None:
    shop.server.kill()
    shop.write("marked")
    marked = "SELECT COUNT(*) FROM headrace_outbox WHERE sequence_id IS NOT NULL AND NOT processed"
    wait_until(lambda: shop.database.sql(marked) == [(3,)], SETTLED_S_MAX, what="the rows to be marked")
    shop.agent.kill()
    shop.server.start()
    shop.agent.start()
    shop.wait_until_there()


def test_a_connection_on_which_nothing_passes_any_more_is_given_up(shop: Shop) -> None:
    shop.proxy.freeze()
    shop.write("while nothing passes")
    wait_until(
        lambda: "the connection was lost" in shop.agent.errors(), SETTLED_S_MAX, what="the agent to notice"
    )
    assert len(read_feed(shop.server)) == 3
    shop.proxy.thaw()
    shop.wait_until_there()


def test_a_database_that_is_stopped_is_noticed_and_gone_on_with(tmp_path: Path) -> None:
    with Server() as running:
        database = running.create_database("test")
        with database.connect() as app:
            Outbox.create(app)
        dsn = f"{database.dsn}?answer-timeout={ANSWER_TIMEOUT_S}"
        with (
            serving(tmp_path / "server") as server,
            AgentProcess(tmp_path / "agent", server.url, dsn, FEED, agent_id=AGENT) as agent,
        ):
            add(database, "a")
            wait_until(
                lambda: database.sql("SELECT MIN(processed) FROM headrace_outbox") == [(1,)],
                SETTLED_S_MAX,
                what="the first row to be posted",
            )
            running.suspend()
            wait_until(
                lambda: "the connection was lost" in agent.errors(), SETTLED_S_MAX, what="the agent to notice"
            )
            running.go_on()
            add(database, "b")
            wait_until(lambda: len(read_feed(server)) == 2, SETTLED_S_MAX, what="the agent to go on")
            assert [entry["key"] for entry in read_feed(server)] == ["a", "b"]
            assert agent.ended() is None
