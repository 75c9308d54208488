"""PostgreSQL goes away and comes back, under a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.integration.store_postgres.shared import opened
from tests.postgres import Cluster
from tests.servers import Feed, changes, code_of, serving
from tests.waiting import wait_until


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_store_away_is_503_with_retry_after_and_back_without_a_restart(
    tmp_path: Path, how: Literal["stop", "kill"]
) -> None:
    with Cluster() as cluster:
        dsn = cluster.create_database("log")
        with serving(tmp_path, args=["--store", dsn]) as server:
            feed = Feed(server, "f")
            assert feed.register().status_code == 200
            assert feed.listener().status_code == 200
            for number in range(1, 4):
                assert feed.post({"changes": changes(number), "expected-offset": number}).status_code == 200
            for round_ in range(2):
                getattr(cluster, how)()
                for number in (
                    4 + round_,
                    3,
                ):  # new, and a retry of what is stored: they can't be told apart now
                    refused = feed.post({"changes": changes(number), "expected-offset": number})
                    assert (refused.status_code, code_of(refused)) == (503, "store-unavailable")
                    assert int(refused.headers["Retry-After"]) >= 1
                    assert (refused.json()["side-effects"], refused.json()["retryable"]) == ("possible", True)
                read = feed.read(1)
                assert (read.status_code, code_of(read)) == (503, "store-unavailable")
                assert int(read.headers["Retry-After"]) >= 1
                assert server.http.get("/healthz").status_code == 200
                wait_until(lambda: "PostgreSQL is away" in server.http.get("/readyz").text)
                assert (
                    "(store-unavailable), see /runbook/store-unavailable" in server.http.get("/readyz").text
                )
                cluster.start()
                wait_until(lambda: server.http.get("/readyz").status_code == 200)
                answer = feed.post({"changes": changes(4 + round_), "expected-offset": 4 + round_}).json()
                assert (answer["first-sequence-id"], answer.get("duplicate", False)) == (4 + round_, False)
            held: list[dict[str, Any]] = feed.entries()
            assert [entry["changes"]["number"] for entry in held] == [1, 2, 3, 4, 5]
        with opened(dsn) as bench:
            assert list(bench.values("f")) == [1, 2, 3, 4, 5]
