"""What ``/metrics`` says of a capture is so: it is behind while its entries wait for the server, and not once they don't."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.capture.commands import Capture
from tests.integration.capture.test_run_command import running
from tests.mariadb import Database
from tests.proxy import Proxy
from tests.samples import exposed
from tests.servers import ServerProcess, serving
from tests.stuck import WITHIN
from tests.waiting import wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path / "server", grpc=True) as running_server:
        yield running_server


def test_the_lag_grows_while_the_server_is_not_reached_and_ends_with_that(
    tmp_path: Path, database: Database, server: ServerProcess
) -> None:
    began = time.time()
    database.sql("CREATE TABLE users (id INT PRIMARY KEY)")
    database.sql("INSERT INTO users VALUES (1)")
    capture = Capture(tmp_path, database, server, 'stalled-after = "2s"')
    who = {"kind": "capture", "name": f"capture@{capture.feed}"}

    def lag() -> float | None:
        return exposed(server.http.get("/metrics").text).get("headrace_capture_lag_seconds", **who)

    with Proxy("127.0.0.1", int(server.grpc_address.rpartition(":")[2])) as proxy:
        config = capture.config.read_text().replace(server.grpc_address, f"127.0.0.1:{proxy.port}")
        capture.config.write_text(config)
        with running(capture, server) as run:
            run.wait_for_rows(1, "the snapshot")
            database.sql("INSERT INTO users VALUES (2)")
            run.wait_for_rows(2, "a row from the binlog")
            wait_until(lambda: lag() == 0, WITHIN, what="a capture that is not behind")
            proxy.freeze()
            database.sql("INSERT INTO users VALUES (3)")
            wait_until(lambda: (lag() or 0) > 2, WITHIN, what="a lag of seconds")
            assert (lag() or 0) <= time.time() - began + 1, "the source tells whole seconds"
            proxy.thaw()
            run.wait_for_rows(3, "the row that waited")
            wait_until(lambda: lag() == 0, WITHIN, what="the lag to be over")
