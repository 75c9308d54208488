"""``pg_recvlogical`` as Debian has it: it follows a live feed, and goes on after it or the server was killed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from headrace.client.tls import NO_TLS
from tests.pg import Receiver, create_slot, numbers, query, registered, slot_row
from tests.servers import Feed, ServerProcess
from tests.waiting import wait_until

KILLS = 4


def test_it_follows_a_live_feed(server: ServerProcess, feed: Feed, slot: str, tmp_path: Path) -> None:
    numbers(feed, 1, 3)
    create_slot(server, slot, database=feed.name)
    receiver = Receiver(server, slot, tmp_path / "out", database=feed.name)
    try:
        numbers(feed, 4, 6)
        receiver.wait(3)
        assert [entry["sequence-id"] for entry in receiver.entries()] == [4, 5, 6]
        assert {entry["feed"] for entry in receiver.entries()} == {feed.name}
        assert slot_row(server, slot)["active"] == "t"
        # It confirms once a second what it has written and synced.
        ((end,),) = query(server, "SELECT pg_current_wal_lsn()")
        wait_until(
            lambda: position_of(slot_row(server, slot)["confirmed_flush_lsn"]) >= position_of(end),
            what="all of it to be confirmed",
        )
    finally:
        assert receiver.interrupt() == 0
    wait_until(lambda: slot_row(server, slot)["active"] == "f", what="the slot to be free")
    again = Receiver(server, slot, tmp_path / "again", database=feed.name)
    try:
        numbers(feed, 7, 7)
        again.wait(1)
        assert [entry["sequence-id"] for entry in again.entries()] == [7], (
            "what was confirmed is not sent again"
        )
    finally:
        again.kill()


def position_of(text: str | None) -> int:
    high, _, low = str(text).partition("/")
    return int(high, 16) << 32 | int(low, 16)


def test_one_command_makes_a_slot_and_follows_it(
    server: ServerProcess, feed: Feed, slot: str, tmp_path: Path
) -> None:
    receiver = Receiver(server, slot, tmp_path / "out", "--create-slot", "-P", "headrace", database=feed.name)
    try:
        wait_until(
            lambda: (
                query(server, f"SELECT active FROM pg_replication_slots WHERE slot_name = '{slot}'")
                == [("t",)]
            ),
            what="the slot to be in use",
        )
        numbers(feed, 1, 2)
        receiver.wait(2)
        assert [entry["sequence-id"] for entry in receiver.entries()] == [1, 2]
    finally:
        receiver.kill()


def test_a_slot_of_one_feed_carries_no_other(
    server: ServerProcess, feed: Feed, slot: str, tmp_path: Path
) -> None:
    create_slot(server, slot, database=feed.name)
    other = registered(server, f"{feed.name}-other")
    receiver = Receiver(server, slot, tmp_path / "out", database="headrace")
    try:
        numbers(other, 1, 2)
        numbers(feed, 1, 1)
        receiver.wait(1)
        assert [(entry["feed"], entry["sequence-id"]) for entry in receiver.entries()] == [(feed.name, 1)]
    finally:
        receiver.kill()


@contextmanager
def writing(feed: Feed) -> Iterator[list[int]]:
    """Append without a pause, also while the server is restarted; gives the numbers that were acknowledged."""
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            offset = number
            entries = [
                {
                    "agent-id": feed.agent,
                    "changes": {"uuid": str(n), "number": n},
                    "expected-offset": n + 1,
                    "tx": f"t{offset}",
                    "tx-last": n == offset + 4,
                }
                for n in range(offset, offset + 5)
            ]
            # Each transaction is torn over two appends.
            try:
                for part in (entries[:2], entries[2:]):
                    answer = httpx.post(
                        f"{feed.server.url}{feed.path}/entries",
                        json={"entries": part},
                        timeout=30,
                        trust_env=False,
                        verify=NO_TLS,
                    )
                    assert answer.status_code == 200, answer.text
            except httpx.HTTPError:
                stop.wait(0.05)  # the server is being restarted; the same again
                continue
            number += 5
            acknowledged.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield acknowledged
    finally:
        stop.set()
        writer.join()


def wait_for_more(acknowledged: list[int]) -> None:
    """Wait until something was appended that began after this call: nobody has it yet."""
    count = len(acknowledged)
    wait_until(lambda: len(acknowledged) > count + 1, what="more to be appended")


def check_whole(runs: list[Receiver], last: int) -> None:
    """Each run is without a hole, begins at most where the one before ended, and together they have all up to ``last``."""
    ends = 0
    for run in runs:
        ids = [entry["sequence-id"] for entry in run.entries()]
        if ids:
            assert ids == list(range(ids[0], ids[0] + len(ids))), "a run has a hole"
            assert ids[0] <= ends + 1, "something was skipped between two runs"
            ends = max(ends, ids[-1])
    assert ends >= last


def test_killed_and_resumed_under_load_it_loses_nothing(own: ServerProcess, tmp_path: Path) -> None:
    feed = registered(own, "load")
    create_slot(own, "s", database="load")
    runs: list[Receiver] = []
    with writing(feed) as acknowledged:
        for number in range(KILLS):
            runs.append(Receiver(own, "s", tmp_path / f"{number}", database="load"))
            runs[-1].wait(100)
            runs[-1].kill()
            wait_until(lambda: slot_row(own, "s")["active"] == "f", what="the slot to be free")
        wait_for_more(acknowledged)
    runs.append(Receiver(own, "s", tmp_path / "last", database="load"))
    wait_until(
        lambda: any(entry["sequence-id"] == acknowledged[-1] for entry in runs[-1].entries()),
        what="the last entry",
    )
    assert runs[-1].interrupt() == 0
    check_whole(runs, acknowledged[-1])


def test_a_killed_server_goes_on_where_the_slot_was(own: ServerProcess, tmp_path: Path) -> None:
    feed = registered(own, "load")
    create_slot(own, "s", database="load")
    runs: list[Receiver] = []
    with writing(feed) as acknowledged:
        for number in range(2):
            runs.append(Receiver(own, "s", tmp_path / f"{number}", database="load"))
            runs[-1].wait(100)
            own.restart()
            runs[-1].process.wait()
        wait_for_more(acknowledged)
    runs.append(Receiver(own, "s", tmp_path / "last", database="load"))
    wait_until(
        lambda: any(entry["sequence-id"] == acknowledged[-1] for entry in runs[-1].entries()),
        what="the last entry",
    )
    wait_until(
        lambda: slot_row(own, "s")["confirmed_flush_lsn"] == slot_row(own, "s")["restart_lsn"],
        what="nothing to be held behind the confirmed position",
    )
    assert runs[-1].interrupt() == 0
    check_whole(runs, acknowledged[-1])
