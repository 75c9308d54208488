"""The agent dies, or loses an answer, at every step over a MariaDB outbox: nothing is lost, nothing is there twice."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from pymysql.connections import Connection
from pymysql.cursors import Cursor

from headrace.client.http import FeedClient
from headrace.publisher.mysql.source import MysqlSource
from headrace.publisher.outbox import Outbox
from headrace.runtime.dsn import parse_dsn
from tests.integration.publisher.relay_steps import CUTS, Killed, Steps, relay_all
from tests.mariadb import Database
from tests.servers import ServerProcess, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[FeedClient]:
    async with FeedClient(server.url) as found:
        yield found


def write(app: Connection[Cursor], feed: str, first: int, transactions: int) -> None:
    """Run transactions of two rows each."""
    for number in range(first, first + transactions):
        for row in (2 * number, 2 * number + 1):
            Outbox.add(app, feed, {"row": row}, key=str(row))
        app.commit()


@pytest.mark.parametrize("cut", CUTS, ids=str)
async def test_every_step_may_be_the_last(database: Database, client: FeedClient, cut: str) -> None:
    with database.connect() as app, database.connect(autocommit=True) as looking:
        await end_at_every_step(database, app, looking.cursor(), client, cut)


async def end_at_every_step(
    database: Database, app: Connection[Cursor], looking: Cursor, client: FeedClient, cut: str
) -> None:
    def opener() -> MysqlSource:
        return MysqlSource(parse_dsn(database.dsn))

    for fatal in itertools.count(1):
        feed = f"{database.name}-{cut}-{fatal}"

        def is_processed(feed: str = feed) -> bool:
            query = "SELECT COUNT(*) FROM headrace_outbox WHERE NOT processed AND change_feed_id = %s"
            looking.execute(query, (feed,))
            return looking.fetchone() == (0,)

        write(app, feed, 0, 2)
        error, sides = CUTS[cut]
        steps = Steps(fatal, error)
        with suppress(Killed):
            await relay_all(opener, feed, client, is_processed, steps=steps, sides=sides)
        write(app, feed, 2, 1)
        await relay_all(opener, feed, client, is_processed)
        entries = (await client.read(feed, 1)).changes_list
        assert [(one.sequence_id, one.key) for one in entries] == [(n + 1, str(n)) for n in range(6)]
        assert entries[-1].tx_last is True
        if steps.taken < fatal:
            assert fatal > (4 if sides == "server" else 20), "there are fewer steps than a relay takes"
            return
