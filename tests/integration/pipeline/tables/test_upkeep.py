"""Files of a table are put together and old ones removed, and readers of any moment of the last day see what they saw."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.pipeline.tables.batches import publish_again
from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.ledger import Ledger, newest_version, read_published
from headrace.pipeline.tables.snapshot_files import snapshot_at
from headrace.pipeline.tables.states import LeftFolder
from headrace.pipeline.tables.upkeep import Terms, Upkeep
from tests.integration.pipeline.conftest import Run
from tests.integration.pipeline.source_tables import ID, SourceTables

DAY_S = 86_400


def aged(path: Path, days: int) -> Path:
    """A file that was written so many days ago, in no version of its table."""
    path.write_bytes(b"")
    os.utime(path, (time.time() - days * DAY_S,) * 2)
    return path


def test_files_are_put_together_and_what_moments_need_stays(
    spark: SparkSession, source: SourceTables, to: str, run: Run
) -> None:
    source.schema("t", ID)
    for number in range(6):
        source.put("t", {"id": number})
        source.commit()
    run(entries_max=2)
    folder = Path(to) / "main.t"
    incarnation = source.feed.server.http.get(source.feed.path).json()["incarnation"]
    before, version = read_tables(spark, to)["main", "t"], newest_version(folder)
    assert version is not None
    assert len(snapshot_at(folder, version).files) > 1
    ledger = Ledger(Path(to), source.feed.name, incarnation)
    upkeep = Upkeep(ledger, Terms(commits_between=1, files_max=1, clean_every_s=0.0))
    assert upkeep.work(spark)
    publish_again(ledger)
    moment = read_published(Path(to))
    assert moment is not None
    assert moment.tables[0].version > version
    assert len(snapshot_at(folder, moment.tables[0].version).files) == 1
    assert {row["id"] for row in read_tables(spark, to)["main", "t"].collect()} == set(range(6))

    # Nothing is removed before a day of publishes is known; then what no moment of that day needs.
    young, old = aged(folder / "young.parquet", 2), aged(folder / "old.parquet", 4)
    gone = Path(to) / "main.gone"
    gone.mkdir()
    days = {
        name: (datetime.now(UTC) - timedelta(days=count)).isoformat() for name, count in (("3", 3), ("5", 5))
    }
    ledger.keep(left=[LeftFolder("main.gone", days["5"])])
    assert not upkeep.work(spark)
    assert old.exists()
    assert gone.exists()
    ledger.keep(publishes=[days["3"]])
    made = newest_version(folder)
    assert not upkeep.work(spark)
    assert (young.exists(), old.exists(), gone.exists()) == (True, False, False)
    assert newest_version(folder) == made
    assert before.count() == 6

    # After a week without the job, what left the tables during that week may still be seen.
    kept = aged(folder / "kept.parquet", 8)
    ledger.keep(publishes=[(datetime.now(UTC) - timedelta(days=9)).isoformat()])
    assert not upkeep.work(spark)
    assert kept.exists()
    ledger.close()
