"""Behind damage that a repair skipped: the error holds the command to go on with, and that leaves nothing else out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg2
import pytest

from headrace.server.pg.lsn import lsn_text
from tests.integration.server import folders
from tests.pg import create_slot, registered, replicating, serving_pg, slot_row
from tests.servers import ServerProcess
from tests.waiting import wait_until


def read(cursor: Any, count: int) -> list[Any]:
    """So many records."""
    return [wait_until(cursor.read_message, what="a record") for _ in range(count)]


def confirm(server: ServerProcess, cursor: Any, position: int) -> None:
    cursor.send_feedback(flush_lsn=position, force=True)
    wait_until(
        lambda: slot_row(server, "s")["confirmed_flush_lsn"] == lsn_text(position), what="it to be kept"
    )


def test_behind_skipped_damage_one_goes_on_where_the_error_says(tmp_path: Path) -> None:
    with serving_pg(tmp_path) as server:
        feed = registered(server, "f")
        create_slot(server, "s")
        said: list[dict[str, Any]] = [
            {"changes": {"uuid": "first"}, "tx": "t"},
            {"changes": {"uuid": "second"}},
            {"changes": {"uuid": "2", "note": "victim-a"}},
            {"changes": {"uuid": "3", "note": "victim-b"}},
            {"changes": {"uuid": "third"}},
            {"changes": {"uuid": "fourth"}, "tx": "t", "tx-last": True},
        ]
        for entry in said:
            assert feed.post(entry).status_code == 200
        server.stop()
        for victim in (b"victim-a", b"victim-b"):
            folders.damage_entry(server.data_dir, victim)
            folders.skip_damage(server.data_dir)
        server.start()

        connection = replicating(server)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", decode=True)
            (before,) = read(cursor, 1)
            assert "second" in before.payload
            with pytest.raises(psycopg2.Error) as told:
                wait_until(cursor.read_message, what="the end of the stream")
        connection.close()
        refused = told.value
        assert refused.pgcode == "XX001"
        hint = refused.diag.message_hint
        assert hint is not None
        found = re.search(r"START_REPLICATION SLOT .* LOGICAL ([0-9A-F]+/[0-9A-F]+)$", hint)
        assert found is not None, hint
        connection = replicating(server)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", start_lsn=found[1], decode=True)
            rest = read(cursor, 3)
            assert [word for one in rest for word in ("first", "third", "fourth") if word in one.payload] == [
                "third",
                "first",
                "fourth",
            ]
            confirm(server, cursor, rest[-1].data_start)
        connection.close()

        assert feed.post({"changes": {"uuid": "later"}}).status_code == 200
        connection = replicating(server)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", decode=True)
            (later,) = read(cursor, 1)
            assert "later" in later.payload, "from now on by itself"
        connection.close()
