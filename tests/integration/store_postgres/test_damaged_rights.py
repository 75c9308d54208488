"""A feed whose state is damaged: nobody can say whose its entries are, so a tenant's stream ends and leaves nothing out."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from headrace.access.grants import Grant, Role
from headrace.errors import MetadataCorrupt
from headrace.server.grpc.wal_stream import _Named
from headrace.server.guard import StreamRights
from headrace.server.streams.selection import Selection
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.wire.batch import Batch
from tests.integration.store_postgres.shared import opened, started
from tests.postgres import Database

WHO = Subscriber("east", "s")
EAST = Grant("east", frozenset({Role.REPLICATION}), tenant="east")
DAMAGE = "UPDATE headrace_log.feed SET crc = crc + 1 WHERE name = 'hurt'"
DAMAGE_LATER = """
CREATE FUNCTION public.damage() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN NEW.crc = NEW.crc + 1; RETURN NEW; END $$;
CREATE TRIGGER damage BEFORE UPDATE ON headrace_log.feed FOR EACH ROW
WHEN (NEW.name = 'hurt') EXECUTE FUNCTION public.damage()"""


async def take_all(subscriptions: Subscriptions, ask: Ask) -> None:
    """Read a stream until it ends."""
    async with asyncio.timeout(60), aclosing(subscriptions.subscribe(WHO, ask)) as items:
        async for _ in items:
            pass


async def test_a_tenants_stream_ends_at_a_feed_that_may_be_its_own(database: Database) -> None:
    with opened(database.dsn) as running:
        for feed in ("hurt", "whole"):
            running.register(feed, tenant="east")
        first = running.append("whole", "w0").first_lsn
        for number in range(1, 6):
            running.append("hurt", f"h{number}")
            running.append("whole", f"w{number}")
    database.sql(DAMAGE)
    async with started(database.dsn) as log:
        subscriptions = Subscriptions(log)
        await subscriptions.start()
        ask = Ask(selection=Selection(StreamRights(log.store, EAST)))
        with pytest.raises(MetadataCorrupt, match=r"^data_loss: after lsn=.*whose its entries are"):
            await take_all(subscriptions, ask)
        place = await subscriptions.place(WHO)
        assert place is not None
        assert place < first, "nothing was passed over"
        await subscriptions.close()


async def test_a_stream_goes_on_where_a_feed_that_it_has_met_is_damaged(database: Database) -> None:
    with opened(database.dsn) as running:
        for feed in ("hurt", "whole"):
            running.register(feed, tenant="east")
            running.append(feed, "1")
        async with started(database.dsn) as log:
            subscriptions = Subscriptions(log)
            await subscriptions.start()
            named = _Named(log)
            async with asyncio.timeout(60), aclosing(subscriptions.subscribe(WHO)) as items:
                seen = 0
                while seen < 2:
                    batch = await anext(items)
                    assert isinstance(batch, Batch)
                    seen += batch.entries
                    assert named.new_in(batch)
                database.sql(DAMAGE_LATER)
                running.append("hurt", "2")
                while not isinstance(batch := await anext(items), Batch):
                    pass
                assert (batch.entries, named.new_in(batch)) == (1, {})
            await subscriptions.close()
