"""A server whose listener is another subject's: what of it is refused (for ``test_every_error.py``)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from headrace.log.metadata.owners import OF_SUBJECT_MAX
from headrace.log.metadata.sqlite import METADATA_NAME
from tests.identity import Issuer
from tests.integration.server.asks import ASKS, FEED, LISTENER, Refusal, World, seed
from tests.postgres import Cluster
from tests.secured import secured


def owned(folder: Path, _: Cluster) -> set[Refusal]:
    """A listener that is another subject's, then one of which it can't be read whose it is; and one too many."""
    with secured(folder, Issuer()) as server:
        seed(server)
        bob = server.issuer.token(sub="bob", roles=["listener"], feeds=["*"])
        met = set()
        with server.client(bob) as client:
            world = World(client)
            world.send_all()
            for number in range(OF_SUBJECT_MAX + 1):
                world.send(
                    ASKS["POST /listeners/register"],
                    body={"listener-id": f"l-{number}", "change-feed-id": FEED},
                )
            met |= world.met
        server.kill()
        with closing(sqlite3.connect(server.data_dir / METADATA_NAME)) as database, database:
            changed = database.execute(
                "UPDATE listener_owner SET subject = 'bob' WHERE listener_id = ?", (LISTENER,)
            )
            assert changed.rowcount == 1
        server.start()
        with server.client(bob) as client:
            world = World(client)
            world.send_all()
            met |= world.met
        return met
