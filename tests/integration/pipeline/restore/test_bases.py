"""A restore that begins with a base snapshot comes to what one of the whole log does, and says which base it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import BaseCorrupt
from headrace.pipeline.bases.making import create_base
from headrace.pipeline.drill.job import drill
from headrace.pipeline.tables.ledger import read_published
from headrace.pipeline.tables.reader import iter_rows
from tests.integration.pipeline.restore.history import (
    ORDERS,
    REBUILT,
    VM,
    History,
    T,
    delete,
    patch,
    put,
    small_history,
    truncate,
)
from tests.integration.pipeline.restore.restoring import keys_in, names_in, restored
from tests.kwal import INCARNATION

pytestmark = pytest.mark.usefixtures("several_tasks")

AT = 4
"""The append of the small history that the base ends with."""


@pytest.fixture(scope="module")
def history() -> History:
    return small_history()


@pytest.fixture(scope="module")
def based(spark: SparkSession, history: History, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of the small history with a base, made once: tests take copies."""
    archive = tmp_path_factory.mktemp("based") / "wal"
    history.write(archive, 3, 6, 9)
    create_base(spark, str(archive), at=history.appends[AT].lsns[-1], buckets=2)
    return archive


@pytest.fixture
def archive(based: Path, tmp_path: Path) -> Path:
    """A copy of it, to spoil."""
    shutil.copytree(based, tmp_path / "wal")
    return tmp_path / "wal"


def test_keys_with_a_base_below_the_target(
    spark: SparkSession, history: History, archive: Path, tmp_path: Path
) -> None:
    at = history.appends[AT].lsns[-1]
    for number in (AT, 10):
        last, out = history.appends[number].lsns[-1], tmp_path / f"out-{number}"
        outcome = restored(spark, archive, out, last)
        assert outcome.plan["base"]["lsn"] == str(at)
        assert keys_in(out) == history.at(last), number
    # What the segments below the base say is folded too, so the base is checked against them.
    assert drill(spark, str(archive), seed=11).equal
    # Once they are gone, the base alone is what there is of them.
    for file in sorted(archive.glob("kdb-wal-*"))[:2]:
        file.unlink()
    report = drill(spark, str(archive), seed=12)
    assert (report.equal, report.base) == (True, str(at))


def test_a_feed_goes_on_under_a_rebuilt_servers_history(spark: SparkSession, tmp_path: Path) -> None:
    history, archive = History(), tmp_path / "wal"
    history.append(VM, put("a", 1), put("b", 2), put("kept", 3), ts=1)
    history.append(ORDERS, put("o1", 1, table=T), put("x", 9, table=("main", "u")), ts=2)
    history.rebuild()
    history.append(VM, patch("a", '{"m":1}'), delete("b"), put("c", 4), ts=3)
    history.append(ORDERS, truncate(*T), put("o2", 2, table=T), ts=4)
    history.append(VM, patch("kept", '{"m":2}'), ts=5)
    history.write(archive, 2, 4)
    at, last = history.appends[3].lsns[-1], history.appends[-1].lsns[-1]
    for is_based in (False, True):
        if is_based:
            create_base(spark, str(archive), at=at, buckets=2)
        out = tmp_path / f"kv-{is_based}"
        outcome = restored(spark, archive, out, last)
        assert bool(outcome.plan["base"]) == is_based
        assert keys_in(out) == history.at(last)
        assert [(one.incarnation, one.older) for one in outcome.feeds] == [(REBUILT, [])] * 2
    rows = spark.read.parquet(str(tmp_path / "kv-True" / "feed=orders")).collect()
    assert {bytes(row["key"]): row["incarnation"] for row in rows} == {b"x": INCARNATION, b"o2": REBUILT}
    report = drill(spark, str(archive), seed=3)
    assert (report.equal, report.left_out) == (True, []), report
    # The base's three rows of this feed are folded one by one, from pieces that are gone in the end.
    out = tmp_path / "tables"
    (feed,) = restored(spark, archive, out, last, kind="tables", feeds=(VM,), entries_max=1).feeds
    assert (feed.incarnation, feed.older, [one.rows for one in feed.tables]) == (REBUILT, [], [3])
    shown = {row["key"]: row["value"] for _, row in iter_rows(str(out / feed.folder))}
    assert shown == {
        key.decode(): row[0].decode() for (name, key), row in history.at(last).items() if name == VM
    }
    moment = read_published(out / feed.folder)
    assert moment is not None
    assert (moment.sequence_id, moment.incarnation) == (7, REBUILT)
    assert names_in(out) == ["_headrace", feed.folder]


def test_a_damaged_base_writes_nothing(
    spark: SparkSession, history: History, archive: Path, tmp_path: Path
) -> None:
    file = min(archive.glob("kdb-base-*/bucket=*/*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(bytes(data))
    for kind in ("kv", "tables"):
        with pytest.raises(BaseCorrupt, match=file.name):
            restored(spark, archive, tmp_path / "out", history.appends[-1].lsns[-1], kind=kind)
        assert names_in(tmp_path / "out") == []
