"""What ``/metrics`` says of a backup is so: how old the oldest entry is that is not archived, and what can be restored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from tests.integration.backup.agents import archived, backing_up, backup, post, registered
from tests.samples import Exposed, exposed
from tests.servers import Feed, ServerProcess, serving
from tests.stuck import WITHIN
from tests.waiting import wait_until

OFTEN = ("--stalled-after", "1s")
"""Has it report every second."""

WHO = {"kind": "backup", "name": "backup"}
LAG = "headrace_backup_lag_seconds"
BEGIN, END = "headrace_backup_window_begin_timestamp_seconds", "headrace_backup_window_end_timestamp_seconds"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running


def metrics(server: ServerProcess) -> Exposed:
    return exposed(server.http.get("/metrics").text)


def committed_s(feed: Feed, sequence_id: int) -> float:
    """When an entry was committed, in seconds since 1970."""
    (entry,) = feed.entries(sequence_id, sequence_id)
    return Lsn.parse(entry["lsn"]).committed_at_ms / 1000


def test_the_lag_is_the_age_of_the_oldest_entry_that_is_not_archived(
    server: ServerProcess, tmp_path: Path
) -> None:
    (feed,) = registered(server, "shop::orders")
    archive = tmp_path / "archive"
    with backing_up(server, archive, "--segment-time", "1h", *OFTEN, folder=tmp_path / "agent") as agent:
        wait_until(lambda: metrics(server).get(LAG, **WHO) == 0, WITHIN, what="a report of nothing to do")
        post(feed, 1, 10)
        wait_until(lambda: (metrics(server).get(LAG, **WHO) or 0) > 0, WITHIN, what="a lag")
        post(feed, 11, 10)
        first = metrics(server).of(LAG, **WHO)
        wait_until(lambda: metrics(server).of(LAG, **WHO) > first, WITHIN, what="a later report")
        found, now = metrics(server), time.time()
        reported_s = now - found.of("headrace_process_report_age_seconds", **WHO)
        assert found.of(LAG, **WHO) == pytest.approx(reported_s - committed_s(feed, 1), abs=3)
        assert server.http.post("/streams/rotate").status_code == 200
        agent.until(lambda: archived(archive) == 20, "the segment")
        wait_until(lambda: metrics(server).of(LAG, **WHO) == 0, WITHIN, what="the lag to be over")
        agent.stop()


def test_the_window_begins_and_ends_with_what_can_be_restored(server: ServerProcess, tmp_path: Path) -> None:
    (feed,) = registered(server, "shop::orders")
    archive = tmp_path / "archive"
    post(feed, 1, 10)
    backup(server, archive)
    with backing_up(server, archive, "--segment-time", "100ms", *OFTEN, folder=tmp_path / "agent") as agent:
        wait_until(
            lambda: metrics(server).get(END, **WHO) == committed_s(feed, 10),
            WITHIN,
            what="the window at the start",
        )
        assert metrics(server).of(BEGIN, **WHO) == committed_s(feed, 1)
        post(feed, 11, 10)
        agent.until(lambda: archived(archive) == 20, "the next segment")
        wait_until(lambda: metrics(server).of(END, **WHO) == committed_s(feed, 20), WITHIN, what="it to grow")
        assert metrics(server).of(BEGIN, **WHO) == committed_s(feed, 1)
        agent.stop()
