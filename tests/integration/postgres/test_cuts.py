"""The connection to the source is cut in every phase of the agent's work, before and after the database did its part."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.postgres.shop import Shop, attach, make_table, running_shop, write
from tests.postgres import Cluster
from tests.proxy import Proxy
from tests.scale import chosen
from tests.waiting import wait_until

SPRUNG_S_MAX = 60.0

PHASES = {
    "is asked for news": b"last_value",
    "locks the owner": b"FOR UPDATE",
    "looks": b"headrace_outbox\nWHERE id >",
    "marks": b"INSERT INTO headrace.headrace_mark",
    "notes the pass": b"INSERT INTO headrace.headrace_pass",
    "commits": b"COMMIT",
    "reads a batch": b"headrace_batch",
}


@pytest.fixture
def shop(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[Shop, Proxy, Cluster, str]]:
    """A shop whose agent reaches the database through a proxy."""
    name = f"cuts_{tmp_path.name}".lower()[:60]
    make_table(cluster, name)
    attach(cluster.dsn(name))
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy("127.0.0.1", cluster.port))
        dsn = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}"
        running = stack.enter_context(running_shop(tmp_path, dsn))
        running.wait_until_equal(cluster, name)
        yield running, proxy, cluster, name
    cluster.drop_database(name)


def test_a_cut_in_any_phase_loses_and_doubles_nothing(shop: tuple[Shop, Proxy, Cluster, str]) -> None:
    running, proxy, cluster, name = shop
    written = []
    for phase, message in PHASES.items():
        for delivered in chosen((False, True), of=phase):
            note = f"cut when it {phase}, {'after' if delivered else 'before'} it is done"
            proxy.cut_at(message, delivered=delivered)
            write(cluster, range(3), note, name)
            written.append(note)
            wait_until(lambda: proxy.sprung, SPRUNG_S_MAX, what=f"the agent to be cut: {note}")
            proxy.resume()
            running.wait_until_equal(cluster, name)
    rows = [
        json.loads(bytes(entry.changes))
        for entry in running.entries()
        if entry.control is None and not entry.copy
    ]
    assert [(row["id"], row["note"]) for row in rows] == [
        (number, note) for note in written for number in range(3)
    ]
    assert running.agent.ended() is None


def test_a_connection_that_stalls_goes_on(shop: tuple[Shop, Proxy, Cluster, str]) -> None:
    running, proxy, cluster, name = shop
    proxy.freeze()
    write(cluster, range(3), "while nothing passes", name)
    proxy.thaw()
    running.wait_until_equal(cluster, name)


def test_an_agent_whose_database_never_answers_ends_when_it_is_told_to(
    shop: tuple[Shop, Proxy, Cluster, str],
) -> None:
    """It leaves its connection behind, as if it had been killed; the next start goes on."""
    running, proxy, cluster, name = shop
    proxy.freeze()
    write(cluster, range(3), "while nothing passes", name)
    assert running.agent.stop() == 0
    assert "the source does not answer; its connection is left as it is" in running.agent.errors()
    proxy.thaw()
    running.agent.start()
    running.wait_until_equal(cluster, name)
