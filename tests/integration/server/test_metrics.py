"""What ``GET /metrics`` of a running server says is what happened: as many appends, syncs, requests, polls, bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest

from headrace.publisher.outbox import Outbox
from headrace.runtime.metric import Kind
from headrace.server.metrics.exposition import SUBJECTS
from headrace.server.metrics.page import AGENT_METRICS
from headrace.wire.generated import log_pb2, wal_pb2
from tests.agents import AgentProcess
from tests.ports import free_port
from tests.reports import report
from tests.samples import Exposed, exposed
from tests.scenarios.watched import WatchedProxy
from tests.servers import Feed, ServerProcess, changes, serving
from tests.unit.publisher.outboxes import application
from tests.waiting import wait_until

ENTRIES = "/feeds/{change-feed-id}/entries"
POLL = "/feeds/{change-feed-id}/poll"
WITHIN = 90.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running:
        yield running
    assert "Traceback" not in running.errors()


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    made = Feed(server, "shop")
    assert made.register().status_code == 200
    return made


def metrics(server: ServerProcess) -> Exposed:
    return exposed(server.http.get("/metrics").text)


def test_a_server_exposes_what_is_declared_and_nothing_else(server: ServerProcess, feed: Feed) -> None:
    feed.post({"changes": changes(1)})
    found = metrics(server)
    declared = [metric for subject in SUBJECTS for metric in subject.metrics]
    assert len({one.name for one in declared}) == len(declared)
    assert found.kinds == {one.name: str(one.kind) for one in declared}
    for one in declared:
        name = f"{one.name}_count" if one.kind is Kind.HISTOGRAM else one.name
        for labels in found.labels_of(name):
            assert set(labels) == set(one.labels), one.name
        assert one.labels or found.get(name) is not None, f"{one.name} has no value"


def test_appends_are_counted_as_they_were(server: ServerProcess, feed: Feed) -> None:
    """9 appends of 1 entry, one of 30, a repeated one, a refused one; one registration. Each was a group of its own."""
    for number in range(1, 10):
        assert feed.post({"changes": changes(number), "expected-offset": number}).status_code == 200
    assert feed.post(*({"changes": changes(number)} for number in range(10, 40))).status_code == 200
    assert feed.post({"changes": changes(9), "expected-offset": 9}).json()["duplicate"]
    assert feed.post({"changes": changes(1), "expected-offset": 70}).status_code == 409
    found = metrics(server)
    told = {
        one["outcome"]: found.of("headrace_appends_total", **one)
        for one in found.labels_of("headrace_appends_total")
    }
    assert told == {"appended": 10, "duplicate": 1, "refused": 1, "control": 1}
    assert found.of("headrace_append_entries_sum") == 39
    assert found.of("headrace_append_entries_count") == 10
    assert found.of("headrace_append_entries_bucket", le="20.0") == 9
    assert found.of("headrace_append_entries_bucket", le="50.0") == 10
    assert found.of("headrace_append_latency_seconds_count") == 13
    assert found.of("headrace_append_latency_seconds_bucket", le="+Inf") == 13
    assert (
        found.of("headrace_append_group_requests_count")
        == found.of("headrace_append_group_requests_sum")
        == 13
    )
    assert found.of("headrace_journal_put_seconds_count") == 13
    assert found.of("headrace_fsync_seconds_count") == 11, "what is refused or repeated writes nothing"
    assert 0 < found.of("headrace_fsync_seconds_sum") <= found.of("headrace_journal_put_seconds_sum")
    assert found.of("headrace_journal_put_seconds_sum") <= found.of("headrace_append_latency_seconds_sum")
    assert found.of("headrace_append_group_busy_seconds") == 0
    wait_until(lambda: metrics(server).of("headrace_append_queue_requests") == 0, what="an empty queue")
    assert found.of("headrace_feed_entries_total", feed="shop") == 39
    assert found.of("headrace_feed_retained_entries", feed="shop") == 39
    assert found.of("headrace_refusals_total", face="http", code="offset-mismatch") == 1
    assert found.of("headrace_http_requests_total", method="POST", route=ENTRIES, status="200") == 11
    assert found.of("headrace_http_requests_total", method="POST", route=ENTRIES, status="409") == 1
    assert found.of("headrace_http_request_seconds_count", method="POST", route=ENTRIES) == 12
    journal = sum(path.stat().st_size for path in (server.data_dir / "journal").iterdir())
    assert (
        0
        < found.of("headrace_journal_written_bytes_total")
        <= journal
        == found.of("headrace_retention_bytes")
    )


def test_a_restart_begins_counters_anew_but_not_those_of_the_log(server: ServerProcess, feed: Feed) -> None:
    feed.post({"changes": changes(1)}, {"changes": changes(2)})
    before = metrics(server)
    server.restart()
    found = metrics(server)
    assert found.of("headrace_append_entries_count") == 0
    assert found.of("headrace_feed_entries_total", feed="shop") == 2
    name = "headrace_journal_written_bytes_total"
    assert found.of(name) == before.of(name)
    assert found.of("process_start_time_seconds") > before.of("process_start_time_seconds")


def test_polls_and_event_streams_are_counted_while_they_are_open(server: ServerProcess, feed: Feed) -> None:
    feed.listener()
    polls = [threading.Thread(target=feed.poll, kwargs={"timeout_ms": 60_000}) for _ in range(3)]
    for poll in polls:
        poll.start()
    address = f"{server.url}{feed.path}/stream?listener-id=listener-1&after-sequence-id=0"
    with httpx.stream("GET", address, timeout=60, trust_env=False) as stream:
        assert stream.status_code == 200
        wait_until(lambda: metrics(server).of("headrace_long_polls_open") == 3, what="three polls")
        assert metrics(server).of("headrace_event_streams_open") == 1
        assert (
            metrics(server).get("headrace_http_requests_total", method="GET", route=POLL, status="200")
            is None
        )
        feed.post({"changes": changes(1)})
        for poll in polls:
            poll.join(WITHIN)
        assert metrics(server).of("headrace_long_polls_open") == 0
    wait_until(lambda: metrics(server).of("headrace_event_streams_open") == 0, what="the stream to be over")
    assert metrics(server).of("headrace_http_requests_total", method="GET", route=POLL, status="200") == 3


def test_what_is_no_route_and_no_method_is_one_series(server: ServerProcess) -> None:
    for number in range(5):
        server.http.get(f"/nothing/{number}")
        server.http.request("PROPFIND", f"/nothing/{number}")
    found = metrics(server)
    assert found.of("headrace_http_requests_total", method="GET", route="other", status="404") == 5
    assert found.of("headrace_http_requests_total", method="other", route="other", status="404") == 5
    assert found.of("headrace_refusals_total", face="http", code="not-found") == 10


def test_streams_over_all_feeds_tell_their_bytes_queue_and_lag(server: ServerProcess, feed: Feed) -> None:
    """One subscriber has read all, byte for byte; another reads nothing, so that what was read for it waits."""
    value = "." * 50_000
    for _ in range(200):
        assert feed.post({"changes": {"uuid": "o", "text": value}}).status_code == 200
    assert metrics(server).of("kdb_wal_bytes_sent_total") == 0
    large = ("grpc.max_receive_message_length", 8 << 20)
    narrow = ("grpc.http2.bdp_probe", 0)  # or the client's own window may grow until it holds everything
    with (
        grpc.insecure_channel(server.grpc_address, [large]) as channel,
        grpc.insecure_channel(server.grpc_address, [large, narrow]) as unread,
    ):
        subscribe = channel.unary_stream("/kdb.wal.v1.WalStream/Subscribe")
        reads = subscribe(b"", metadata=[("subscriber-id", "reads")])
        received, entries = 0, 0
        while entries < 200:
            data = next(reads)
            received += len(data)
            entries += len(wal_pb2.WalResponse.FromString(data).batch.entries)
        wait_until(
            lambda: metrics(server).of("kdb_wal_bytes_sent_total") == received, what="all bytes to be counted"
        )
        stands = unread.unary_stream("/kdb.wal.v1.WalStream/Subscribe")(
            b"", metadata=[("subscriber-id", "stands")]
        )
        name = "anonymous/stands"
        wait_until(
            lambda: (metrics(server).get("kdb_wal_queue_depth", subscriber_id=name) or 0) > 0,
            what="a queue that fills",
        )
        found = metrics(server)
        assert found.of("headrace_wal_streams_open") == 2
        assert found.of("kdb_wal_queue_depth", subscriber_id="anonymous/reads") == 0
        assert found.of("kdb_wal_queue_depth", subscriber_id=name) <= 200
        assert found.of("kdb_wal_subscriber_lag_lsn", subscriber_id=name) == 200
        assert found.of("kdb_wal_retention_index_bytes") > 0
        reads.cancel()
        stands.cancel()
    wait_until(lambda: metrics(server).of("headrace_wal_streams_open") == 0, what="the streams to be over")
    wait_until(
        lambda: metrics(server).get("headrace_grpc_calls_total", method="Subscribe", status="CANCELLED") == 2,
        what="the calls to be counted",
    )


def test_calls_over_grpc_are_counted_with_their_refusals(server: ServerProcess, feed: Feed) -> None:
    with grpc.insecure_channel(server.grpc_address) as channel:
        tail = channel.unary_unary("/headrace.log.v1.LogAppend/Tail")
        assert (
            log_pb2.TailResponse.FromString(tail(log_pb2.TailRequest(feed="shop").SerializeToString())).end
            is not None
        )
        refused = tail(log_pb2.TailRequest(feed="absent").SerializeToString())
        assert log_pb2.TailResponse.FromString(refused).HasField("refusal")
        with pytest.raises(grpc.RpcError):
            tail(b"\xff\xff")
    found = metrics(server)
    assert found.of("headrace_grpc_calls_total", method="Tail", status="OK") == 2
    assert found.of("headrace_grpc_calls_total", method="Tail", status="INVALID_ARGUMENT") == 1
    assert found.of("headrace_grpc_call_seconds_count", method="Tail") == 3
    assert found.of("headrace_refusals_total", face="grpc", code="feed-not-found") == 1
    assert found.of("headrace_refusals_total", face="grpc", code="invalid-request") == 1


def test_a_quarantine_and_its_alarm_are_counted_until_the_release(server: ServerProcess, feed: Feed) -> None:
    assert feed.post({"changes": changes(1), "sequence-id": 1}).status_code == 200
    assert metrics(server).of("headrace_quarantined_publishers", feed="shop") == 0
    assert feed.post({"changes": changes(1), "sequence-id": 1}).status_code == 409
    found = metrics(server)
    assert found.of("headrace_quarantined_publishers", feed="shop") == 1
    assert found.of("headrace_alarms", code="duplicate-entry") == 1
    assert server.http.post("/publishers/agent-1/release").status_code == 200
    found = metrics(server)
    assert found.of("headrace_quarantined_publishers", feed="shop") == 0
    assert found.of("headrace_alarms", code="duplicate-entry") == 0


def test_reports_are_shown_with_their_facts(server: ServerProcess) -> None:
    sent = report(waiting=7, reachable=False, oldest_waiting_at="2026-01-01T00:00:00Z")
    sent["facts"] = {"headrace_capture_lag_seconds": 12.5, "of-a-later-version": 1}
    assert server.http.put("/reports/capture/c1", json=sent).status_code == 200
    found = metrics(server)
    who = {"kind": "capture", "name": "c1"}
    work = {**who, "work": "relay shop", "feed": "shop"}
    assert found.of("headrace_process_up", **who) == 1
    assert found.of("headrace_process_ending", **who) == 0
    assert found.of("headrace_process_report_age_seconds", **who) < 60
    assert found.of("headrace_process_waiting", **work) == 7
    assert found.of("headrace_process_source_reachable", **work) == 0
    assert found.of("headrace_process_stuck", **work) == 0
    assert found.of("headrace_process_oldest_waiting_seconds", **work) > 0
    assert found.of("headrace_capture_lag_seconds", **who) == 12.5
    assert "of-a-later-version" not in server.http.get("/metrics").text
    assert server.http.put("/reports/capture/c1", json=report(state="ending")).status_code == 200
    assert metrics(server).of("headrace_process_ending", **who) == 1


def test_a_time_that_is_none_harms_no_scrape(server: ServerProcess) -> None:
    assert (
        server.http.put("/reports/capture/c1", json=report(waiting=1, oldest_waiting_at="soon")).status_code
        == 200
    )
    assert metrics(server).labels_of("headrace_process_oldest_waiting_seconds") == []


def test_a_real_agent_shows_its_backlog_and_its_age(server: ServerProcess, tmp_path: Path) -> None:
    """Three rows go; then a proxy keeps the appends of two more back, and lets reports through."""
    path, port, feed = tmp_path / "app.db", free_port(), Feed(server, "shop")
    with application(path) as app:
        Outbox.create(app)
    add(path, 1, 2, 3)
    who = {"kind": "agent", "name": "agent-1"}
    work = {**who, "work": "relay shop", "feed": "shop"}

    def told(name: str) -> float | None:
        return metrics(server).get(f"headrace_process_{name}", **work)

    with WatchedProxy(int(server.address.rpartition(":")[2])) as proxy:
        url, settings = f"http://127.0.0.1:{proxy.port}", {"health": f"127.0.0.1:{port}"}
        with AgentProcess(tmp_path / "agent", url, f"sqlite:///{path}", "shop", **settings) as agent:
            wait_until(
                lambda: metrics(server).get("headrace_feed_entries_total", feed="shop") == 3,
                WITHIN,
                what="three rows",
            )
            wait_until(lambda: told("waiting") == 0, WITHIN, what="an idle agent")
            assert metrics(server).of("headrace_process_up", **who) == 1
            assert told("source_reachable") == 1
            assert told("oldest_waiting_seconds") is None
            own = exposed(httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text)
            assert own.kinds == {one.name: str(one.kind) for one in AGENT_METRICS}
            assert own.of("headrace_process_ready") == 1
            assert own.of("headrace_work_stuck", work="relay shop", feed="shop") == 0
            release = proxy.hold(f"POST {feed.path}/entries", answers=False)
            began = time.time()
            add(path, 4, 5)
            wait_until(lambda: told("waiting") == 2, WITHIN, what="two rows to wait")
            age = told("oldest_waiting_seconds")
            assert age is not None
            assert 0 <= age <= time.time() - began + 1
            wait_until(lambda: (told("oldest_waiting_seconds") or 0) > age, WITHIN, what="the age to grow")
            release()
            wait_until(lambda: told("waiting") == 0, WITHIN, what="an agent that is idle again")
            assert metrics(server).of("headrace_feed_entries_total", feed="shop") == 5
            assert agent.stop() == 0
    wait_until(
        lambda: metrics(server).of("headrace_process_ending", **who) == 1, WITHIN, what="its last word"
    )


def add(path: Path, *numbers: int) -> None:
    with application(path) as app:
        app.execute("BEGIN")
        for number in numbers:
            Outbox.add(app, "shop", {"n": number}, str(number))
        app.execute("COMMIT")
