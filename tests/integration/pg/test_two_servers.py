"""Two servers of one store: a slot is in use at one of them, and goes on at the other where it was."""

from __future__ import annotations

from pathlib import Path

import psycopg2.errors
import pytest

from tests.pg import create_slot, numbers, query, registered, replicating, serving_pg, slot_row
from tests.postgres import Cluster
from tests.servers import ServerProcess
from tests.stores import database_of
from tests.waiting import wait_until


def read(server: ServerProcess, count: int) -> list[str]:
    """Read so many records and confirm them."""
    connection = replicating(server)
    found = []
    with connection.cursor() as cursor:
        cursor.start_replication(slot_name="s", decode=True)
        position = 0
        for _ in range(count):
            message = wait_until(cursor.read_message, what="a record")
            position = message.data_start
            found.append(message.payload)
        cursor.send_feedback(flush_lsn=position, force=True)
        wanted = f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"
        wait_until(lambda: slot_row(server, "s")["confirmed_flush_lsn"] == wanted, what="it to be kept")
    connection.close()
    wait_until(lambda: slot_row(server, "s")["active"] == "f", what="the slot to be free")
    return found


def test_a_slot_is_in_use_at_one_server(tmp_path: Path, cluster: Cluster) -> None:
    store = ["--store", database_of(cluster, tmp_path)]
    with serving_pg(tmp_path / "one", *store) as one, serving_pg(tmp_path / "two", *store) as two:
        feed = registered(one, "f")
        create_slot(one, "s")
        numbers(feed, 1, 2)
        assert len(read(two, 2)) == 2
        connection = replicating(one)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", decode=True)
            assert slot_row(two, "s")["active"] == "t"
            other = replicating(two)
            with (
                other.cursor() as refused,
                pytest.raises(psycopg2.errors.ObjectInUse, match="another server"),
            ):
                refused.start_replication(slot_name="s", decode=True)
            with pytest.raises(psycopg2.errors.ObjectInUse):
                query(two, "SELECT pg_drop_replication_slot('s')")
            other.close()
        connection.close()
        wait_until(lambda: slot_row(one, "s")["active"] == "f", what="the slot to be free")
        numbers(feed, 3, 3)
        (last,) = read(two, 1)
        assert '"sequence-id":3' in last
