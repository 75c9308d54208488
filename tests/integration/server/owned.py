"""A server whose listener is another subject's: what of it is refused (for ``test_every_error.py``)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from headrace.log.metadata.owners import OF_SUBJECT_MAX, Claimant
from headrace.log.metadata.sqlite import METADATA_NAME, SqliteMetadata
from tests.identity import Issuer
from tests.integration.server.asks import ASKS, FEED, LISTENER, Refusal, World, seed
from tests.postgres import Cluster
from tests.secured import SecuredServer, secured


def owned(folder: Path, _: Cluster) -> set[Refusal]:
    """A listener that is another subject's, then one of which it can't be read whose it is; and one too many."""
    with secured(folder, Issuer()) as server:
        seed(server)
        bob = server.issuer.token(sub="bob", roles=["listener"], feeds=["*"])
        met = refusals(server, bob)
        server.kill()
        change_owners(server.data_dir / METADATA_NAME)
        server.start()
        return met | refusals(server, bob, "one-too-many")


def refusals(server: SecuredServer, token: str, *listeners: str) -> set[Refusal]:
    """What is refused of all calls, and of the registration of more ``listeners``."""
    with server.client(token) as client:
        world = World(client)
        world.send_all()
        for name in listeners:
            world.send(ASKS["POST /listeners/register"], body={"listener-id": name, "change-feed-id": FEED})
        return world.met


def change_owners(path: Path) -> None:
    """Let the subject have as many listeners as it may, and write its name over the owner of the one that is asked for."""
    with closing(SqliteMetadata(path)) as metadata:
        for number in range(OF_SUBJECT_MAX):
            metadata.register_listener(f"l-{number}", FEED, False, 1, Claimant("bob", False))
    with closing(sqlite3.connect(path)) as database, database:
        changed = database.execute(
            "UPDATE listener_owner SET subject = 'bob' WHERE listener_id = ?", (LISTENER,)
        )
        assert changed.rowcount == 1
