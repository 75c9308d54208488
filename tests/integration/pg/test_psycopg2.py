"""psycopg2's ``LogicalReplicationConnection``: killed and resumed under load, it loses nothing and skips nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

from tests.integration.pg.test_receiving import wait_for_more, writing
from tests.pg import create_slot, dsn_of, registered, slot_row
from tests.servers import ServerProcess
from tests.waiting import wait_until

CLIENT = Path(__file__).with_name("feedback_client.py")
KILLS = 4


def ids_of(path: Path) -> list[int]:
    return (
        [json.loads(line)["sequence-id"] for line in path.read_bytes().splitlines()] if path.exists() else []
    )


def has_ended_or_has(client: subprocess.Popen[bytes], path: Path, count: int) -> bool:
    return len(ids_of(path)) >= count or client.poll() is not None


def test_killed_and_resumed_under_load_it_loses_nothing(own: ServerProcess, tmp_path: Path) -> None:
    feed = registered(own, "load")
    create_slot(own, "s", database="load")
    runs = [tmp_path / f"{number}" for number in range(KILLS + 1)]
    with writing(feed) as acknowledged:
        for run in runs:
            client = subprocess.Popen([sys.executable, str(CLIENT), dsn_of(own, "load"), "s", str(run)])
            try:
                wait_until(partial(has_ended_or_has, client, run, 50), what="50 lines")
                assert client.poll() is None
            finally:
                client.kill()
                client.wait()
            wait_until(lambda: slot_row(own, "s")["active"] == "f", what="the slot to be free")
        wait_for_more(acknowledged)
    last = tmp_path / "last"
    client = subprocess.Popen([sys.executable, str(CLIENT), dsn_of(own, "load"), "s", str(last)])
    try:
        wait_until(lambda: acknowledged[-1] in ids_of(last), 120, what="the last entry")
    finally:
        client.kill()
        client.wait()
    ends = 0
    for run in [*runs, last]:
        ids = ids_of(run)
        assert ids == list(range(ids[0], ids[0] + len(ids))), "a run has a hole"
        assert ids[0] <= ends + 1, "something was skipped between two runs"
        ends = ids[-1]
    assert ends >= acknowledged[-1]
    assert ids_of(last)[0] > 1, "what was confirmed is not sent again"
