"""A slot holds retention as any subscriber does, is shown beside them, and is lost, loudly, once it has expired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg2.errors
import pytest

from tests.pg import create_slot, numbers, query, registered, replicating, serving_pg, slot_row
from tests.servers import Feed, ServerProcess
from tests.waiting import wait_until

FAST = ["--retention-every", "100ms", "--segment-size", "4k", "--retention", "1s"]


def view(feed: Feed) -> Any:
    return feed.server.http.get(feed.path).json()


def fill(feed: Feed, count: int) -> None:
    for number in range(count):
        numbers(feed, number, number)


def oldest(feed: Feed) -> int:
    return int(view(feed)["oldest-sequence-id"])


def test_a_slot_holds_and_is_shown(tmp_path: Path) -> None:
    with serving_pg(tmp_path, *FAST) as server:
        feed = registered(server, "f")
        fill(feed, 40)
        create_slot(server, "s")
        fill(feed, 60)
        (shown,) = view(feed)["subscribers"]
        assert shown["subscriber-id"] == "slot s"
        assert shown["lag-entries"] == 60
        assert shown["time-to-loss"]["state"]
        other = registered(server, "other")
        fill(other, 60)
        # What nobody holds is dropped up to the slot's place, and no further.
        wait_until(lambda: oldest(feed) > 1, what="entries before the slot to be dropped")
        assert oldest(feed) <= 41
        follow(server, 60 + 60)
        wait_until(lambda: oldest(feed) > 41, what="what was confirmed to be dropped")
        traced = wait_until(lambda: acked(feed), what="the trace to say that the slot has it")
        assert [traced["kind"], traced["name"]] == ["subscriber", "slot s"]


def acked(feed: Feed) -> Any:
    """What the trace of the newest entry says of a consumer that has acked it."""
    trace = feed.server.http.get(
        f"{feed.path}/trace", params={"sequence-id": view(feed)["head-sequence-id"]}
    ).json()
    return next((one for one in trace["consumers"] if one["state"] == "acked"), None)


def follow(server: ServerProcess, count: int) -> None:
    """Read so many records and confirm them."""
    connection = replicating(server)
    with connection.cursor() as cursor:
        cursor.start_replication(slot_name="s", decode=False)
        last = None
        for _ in range(count):
            last = wait_until(cursor.read_message, what="a record")
        assert last is not None
        cursor.send_feedback(flush_lsn=last.data_start, force=True)
        wait_until(
            lambda: slot_row(server, "s")["restart_lsn"] == lsn_text(last.data_start), what="it to be kept"
        )
    connection.close()


def lsn_text(position: int) -> str:
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def test_an_expired_slot_is_lost_and_says_so(tmp_path: Path) -> None:
    with serving_pg(tmp_path, *FAST, "--subscriber-expiry", "2s") as server:
        feed = registered(server, "f")
        create_slot(server, "s")
        fill(feed, 60)
        wait_until(lambda: oldest(feed) > 6, 60, what="the slot to hold nothing any more")
        assert slot_row(server, "s")["wal_status"] == "lost"
        connection = replicating(server)
        with (
            connection.cursor() as cursor,
            pytest.raises(psycopg2.errors.ObjectNotInPrerequisiteState, match="no longer"),
        ):
            cursor.start_replication(slot_name="s", decode=False)
        connection.close()
        query(server, "SELECT pg_drop_replication_slot('s')")
        assert not view(feed)["subscribers"]


def test_a_slot_in_use_does_not_expire(tmp_path: Path) -> None:
    with serving_pg(tmp_path, *FAST, "--subscriber-expiry", "1s") as server:
        feed = registered(server, "f")
        create_slot(server, "s")
        connection = replicating(server)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", decode=False)
            before = view(feed)["subscribers"][0]["seen-at"]
            fill(feed, 60)
            wait_until(
                lambda: view(feed)["subscribers"][0]["seen-at"][:19] > before[:19], what="it to be seen"
            )
            fill(feed, 60)
            assert oldest(feed) == 1
        connection.close()


def test_an_open_transaction_is_held_from_its_first_frame(tmp_path: Path) -> None:
    with serving_pg(tmp_path, *FAST) as server:
        feed = registered(server, "f")
        create_slot(server, "s")
        assert feed.post({"changes": {"uuid": "first"}, "tx": "t"}).status_code == 200
        other = registered(server, "other")
        fill(other, 60)
        follow_part(server, 60)
        row = slot_row(server, "s")
        assert row["restart_lsn"] != row["confirmed_flush_lsn"]
        fill(other, 30)
        assert oldest(feed) == 1
        assert feed.post({"changes": {"uuid": "last"}, "tx": "t", "tx-last": True}).status_code == 200
        connection = replicating(server)
        with connection.cursor() as cursor:
            cursor.start_replication(slot_name="s", options={"feeds": "f"}, decode=True)
            found = [wait_until(cursor.read_message, what="a record").payload for _ in range(2)]
        connection.close()
        assert ["first" in found[0], "last" in found[1]] == [True, True]


def follow_part(server: ServerProcess, count: int) -> None:
    """Read so many records and confirm them, while a transaction is open."""
    connection = replicating(server)
    with connection.cursor() as cursor:
        cursor.start_replication(slot_name="s", decode=False)
        position = 0
        for _ in range(count):
            position = wait_until(cursor.read_message, what="a record").data_start
        cursor.send_feedback(flush_lsn=position, force=True)
        wait_until(
            lambda: slot_row(server, "s")["confirmed_flush_lsn"] == lsn_text(position), what="it to be kept"
        )
    connection.close()
