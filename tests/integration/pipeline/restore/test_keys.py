"""Keys and values restored to moments of a small history are what a plain model of it says, or nothing is written."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.archive.moments.target import Asked
from headrace.errors import OutNotEmpty, TargetInsideAppend, TargetUnreachable, Usage
from headrace.pipeline.restore.job import Kind, Request, planned, restore
from headrace.pipeline.restore.out import OUTCOME
from tests.integration.pipeline.restore.history import JUMP_MS, JUMPED, MS, ORDERS, VM, History, small_history
from tests.integration.pipeline.restore.restoring import keys_in, names_in, restored
from tests.kwal import TS
from tests.scale import sized

pytestmark = pytest.mark.usefixtures("several_tasks")

MS_ZERO = TS >> 18


@pytest.fixture(scope="module")
def history() -> History:
    return small_history()


@pytest.fixture
def archive(history: History, tmp_path: Path) -> Path:
    history.write(tmp_path / "wal", 3, 6, 9)
    return tmp_path / "wal"


def test_every_whole_point_is_what_the_model_says(
    spark: SparkSession, history: History, archive: Path, tmp_path: Path
) -> None:
    # 5 and 6 are inside a transaction, below; there are those of the other segments, too. 8 ends its own.
    for number in sized((8,), soak=(0, 3, 4, 8, 10)):
        append = history.appends[number]
        out = tmp_path / f"out-{number}"
        outcome = restored(spark, archive, out, append.lsns[-1])
        assert keys_in(out) == history.at(append.lsns[-1]), number
        assert outcome.target_lsn == str(append.lsns[-1])
        assert msgspec.json.decode((out / OUTCOME).read_bytes()) == msgspec.json.decode(
            msgspec.json.encode(outcome)
        )


def test_times_and_torn_targets(spark: SparkSession, history: History, archive: Path, tmp_path: Path) -> None:
    # All of a millisecond counts, and nothing behind it; between entries, here in the hour that a clock jumped over, and to
    # the end of the millisecond that it stood still in.
    request = Request(str(archive), Asked(to_time_ms=MS_ZERO + JUMP_MS), str(tmp_path / "at"), Kind.KV)
    for ms, last in ((MS_ZERO, 1), (MS_ZERO + JUMP_MS // 2, 7)):
        _, plan = planned(request._replace(asked=Asked(to_time_ms=ms)))
        assert plan.target_lsn == history.appends[last].lsns[-1]
    assert restore(spark, request).target_lsn == str(history.appends[-1].lsns[-1])
    assert keys_in(tmp_path / "at") == history.at(history.appends[-1].lsns[-1])
    # Inside a transaction the target moves back to before its first entry.
    out = tmp_path / "moved"
    outcome = restored(spark, archive, out, history.appends[6].lsns[-1])
    assert outcome.target_lsn == str(history.appends[4].lsns[-1])
    assert keys_in(out) == history.at(history.appends[4].lsns[-1])
    exact = tmp_path / "exact"
    restored(spark, archive, exact, Asked(to_lsn=history.appends[0].lsns[1], exact_entry=True))
    assert keys_in(exact) == history.at(history.appends[0].lsns[1])
    for asked, error in (
        (Asked(to_lsn=history.appends[0].lsns[1]), TargetInsideAppend),
        (Asked(to_time_ms=MS_ZERO - 1), TargetUnreachable),
        (
            Asked(to_lsn=history.appends[-1].lsns[-1]._replace(global_ts=TS + JUMPED + 9 * MS)),
            TargetUnreachable,
        ),
    ):
        with pytest.raises(error):
            restored(spark, archive, tmp_path / "refused", asked)
        assert names_in(tmp_path / "refused") == []


def test_some_feeds_and_what_is_wrong_with_the_request(
    spark: SparkSession, history: History, archive: Path, tmp_path: Path
) -> None:
    last = history.appends[-1].lsns[-1]
    out = tmp_path / "orders"
    outcome = restored(spark, archive, out, last, feeds=(ORDERS,))
    assert keys_in(out) == {name: row for name, row in history.at(last).items() if name[0] == ORDERS}
    (feed,) = outcome.feeds
    assert (feed.feed, feed.sequence_id, feed.lsn, feed.rows) == (ORDERS, 8, str(last), 3)
    with pytest.raises(Usage, match="has no feed nobody"):
        restored(spark, archive, tmp_path / "none", last, feeds=(VM, "nobody"))
    with pytest.raises(OutNotEmpty, match="orders is not empty"):
        restored(spark, archive, out, last)
    assert not (tmp_path / "none").exists()
    assert keys_in(out)
