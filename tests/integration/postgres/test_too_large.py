"""A row over the server's limit stops its feed and is named; the how-to's way out ends with the feed equal to the tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents import headrace
from tests.integration.postgres.shop import FEED, attach, make_table, running_shop
from tests.postgres import Cluster


@pytest.fixture
def own() -> Iterator[Cluster]:
    """A cluster of the test's own, with the shop's table and a column that may be large."""
    with Cluster() as cluster:
        make_table(cluster)
        cluster.sql("ALTER TABLE orders ADD COLUMN scan text", "shop")
        yield cluster


def test_a_row_that_is_too_large_is_named_and_there_is_a_way_on(own: Cluster, tmp_path: Path) -> None:
    dsn = own.dsn("shop")
    attach(dsn)
    with running_shop(tmp_path, dsn) as shop:
        shop.wait_until_equal(own)
        own.sql("UPDATE orders SET note = 'large', scan = repeat('x', 2000000) WHERE id = 7", "shop")
        own.sql("UPDATE orders SET note = 'after' WHERE id = 8", "shop")
        assert shop.wait_until_ended() != 0
        shop.wait_until_told("too-large", "public.orders", "orders", "7]")

        own.sql("DROP SCHEMA headrace CASCADE", "shop")
        attach(dsn, "--exclude-columns", "scan")
        shop.agent.start()
        assert shop.wait_until_ended() == 3
        headrace(["publisher", "accept", dsn, "--feed", FEED, "--reason", "a large column was left out"])
        shop.agent.start()
        shop.wait_until_equal(own)
