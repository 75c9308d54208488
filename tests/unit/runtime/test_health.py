"""Health over real sockets: it answers whatever the rest of the process does."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest
from structlog.testing import capture_logs

from headrace import __version__
from headrace.client.tls import NO_TLS
from headrace.errors import ConfigInvalid, PortInUse
from headrace.runtime.health import REQUESTS_MAX, HealthAddress, HealthServer, parse_health
from headrace.runtime.progress import Progress
from headrace.runtime.runbook import runbook_page
from headrace.testing.clock import ManualClock
from tests.waiting import wait_until

HERE = HealthAddress("127.0.0.1", 0)


def get(server: HealthServer, path: str) -> httpx.Response:
    return httpx.get(f"http://{server.address}{path}", timeout=30, trust_env=False, verify=NO_TLS)


def test_ready_while_it_moves_and_not_once_it_is_stuck() -> None:
    clock = ManualClock()
    progress = Progress(clock=clock)
    with HealthServer(HERE, progress, lambda: b"one 1\n") as server:
        work = progress.work("relay shop")
        assert get(server, "/readyz").json() == {"status": "ok", "version": __version__, "reasons": []}
        work.set_waiting(2)
        clock.seconds += 60
        answer = get(server, "/readyz")
        assert answer.status_code == 503
        assert answer.json()["status"] == "not-ready"
        (reason,) = answer.json()["reasons"]
        assert "relay shop" in reason
        assert reason.endswith(" (stalled), see /runbook/stalled")
        assert get(server, "/runbook/stalled").text == runbook_page("stalled")
        assert get(server, "/healthz").status_code == 200, "it is alive all the same"
        assert get(server, "/metrics").content == b"one 1\n"
        assert get(server, "/elsewhere").status_code == 404
        assert httpx.head(f"http://{server.address}/readyz", trust_env=False).content == b""


def test_it_answers_while_the_event_loop_hangs() -> None:
    found: list[int] = []
    with HealthServer(HERE, Progress()) as server, ThreadPoolExecutor(1) as pool:
        loop = asyncio.new_event_loop()
        loop.call_soon(lambda: found.append(pool.submit(get, server, "/healthz").result(30).status_code))
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    assert found == [200]


def test_clients_that_say_nothing_keep_nobody_out_for_long() -> None:
    with HealthServer(HERE, Progress()) as server, ExitStack() as stack:
        for _ in range(REQUESTS_MAX):
            stack.enter_context(socket.create_connection(server.address))

        def answers() -> bool:
            try:
                return get(server, "/healthz").status_code == 200
            except httpx.TransportError:
                return False

        wait_until(answers, what="the silent ones to be cut")


def test_a_client_that_goes_away_is_not_logged_and_a_fault_of_ours_is() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def metrics() -> bytes:
        asked.set()
        assert go_on.wait(30)
        return b"one 1\n"

    def nobody_is_answered() -> bool:
        return not any("process_request_thread" in thread.name for thread in threading.enumerate())

    with capture_logs() as logged, HealthServer(HERE, Progress(), metrics) as server:
        with socket.create_connection(server.address) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset by close
            client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert asked.wait(30)
        go_on.set()
        wait_until(nobody_is_answered, what="the answer to a client that has gone")
    assert [line["event"] for line in logged] == ["health is served"]

    def fails() -> bytes:
        raise ZeroDivisionError

    with capture_logs() as logged, HealthServer(HERE, Progress(), fails) as server:
        with pytest.raises(httpx.TransportError):
            get(server, "/metrics")
        wait_until(nobody_is_answered, what="the request to be over")
        assert get(server, "/healthz").status_code == 200
    (line,) = (line for line in logged if line["log_level"] == "error")
    assert line["event"] == "a request for health could not be answered"
    assert isinstance(line["exc_info"], ZeroDivisionError)


def test_an_address_that_is_taken_or_is_none() -> None:
    with HealthServer(HERE, Progress()) as server, pytest.raises(PortInUse):
        HealthServer(server.address, Progress())
    HealthServer(server.address, Progress()).close()
    with pytest.raises(ConfigInvalid):
        HealthServer(HealthAddress("192.0.2.1", 0), Progress())


@pytest.mark.parametrize("text", ["", "8475", ":8475", "host:", "host:70000", "::1:8475", "host:x"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ConfigInvalid):
        parse_health(text)


def test_addresses_are_shown_as_they_are_written() -> None:
    assert [str(parse_health(text)) for text in ("0.0.0.0:8475", "[::1]:0")] == ["0.0.0.0:8475", "[::1]:0"]
