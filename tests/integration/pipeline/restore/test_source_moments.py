"""Moments as a source tells them, through whole restores of a Simple feed and a plain one: both are cut at one LSN."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.cli.wal_options import MomentOptions
from headrace.pipeline.restore.job import Kind, Request, planned, restore
from headrace.pipeline.tables.reader import iter_rows
from tests.integration.pipeline.restore.history import ORDERS, VM
from tests.integration.pipeline.restore.restoring import keys_in
from tests.integration.pipeline.restore.simple_history import SOURCE_MS, SimpleHistory, small_shop


@pytest.fixture(scope="module")
def shop() -> SimpleHistory:
    return small_shop()


@pytest.fixture
def archive(shop: SimpleHistory, tmp_path: Path) -> Path:
    shop.write(tmp_path / "wal", 5, 9)
    return tmp_path / "wal"


def source_time(ms: int) -> str:
    """A source's time as the option takes it, with the offset of another zone."""
    at = datetime.fromtimestamp(SOURCE_MS // 1000, UTC) + timedelta(milliseconds=ms, hours=2)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}+02:00"


def request_of(archive: Path, out: Path, moment: MomentOptions, kind: Kind = Kind.KV) -> Request:
    return Request(str(archive), moment.asked(), str(out), kind)


def test_to_a_source_time(spark: SparkSession, shop: SimpleHistory, archive: Path, tmp_path: Path) -> None:
    # The fourth row is of second 3. All up to the fifth one's append is in time, the plain feed's row before it too.
    requests = {
        rows: request_of(archive, tmp_path / "at", MomentOptions(to_source_time=source_time(ms)))
        for ms, rows in ((2999, 3), (3999, 4))
    }
    for rows, request in requests.items():
        _, plan = planned(request)
        assert plan.target_lsn == shop.ends[rows - 1]
        assert plan.document()["source-time"].startswith(
            datetime.fromtimestamp(SOURCE_MS / 1000 + rows - 1, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        )
    outcome = restore(spark, requests[4])
    assert (outcome.target_lsn, outcome.plan) == (str(shop.ends[3]), planned(requests[4])[1].document())
    assert keys_in(tmp_path / "at") == shop.at(shop.ends[3])


def test_to_a_commit_ts(spark: SparkSession, shop: SimpleHistory, archive: Path, tmp_path: Path) -> None:
    # Between the commitTs of the third row and the fourth's, which deletes.
    at = MomentOptions(to_commit_ts=shop.commit_times[3] - 1, feed=ORDERS)
    outcome = restore(spark, request_of(archive, tmp_path / "tables", at, Kind.TABLES))
    assert outcome.target_lsn == str(shop.ends[2])
    assert [(one.feed, one.sequence_id) for one in outcome.feeds] == [(ORDERS, 4), (VM, 3)]
    found = {row["id"]: row["word"] for _, row in iter_rows(str(tmp_path / "tables" / "orders"))}
    assert found == shop.rows[2] == {1: "c", 2: "b"}
    behind = MomentOptions(to_commit_ts=shop.commit_times[3], feed=ORDERS)
    assert planned(request_of(archive, tmp_path / "kv", behind))[1].target_lsn == shop.ends[3]
