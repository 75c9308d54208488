"""A job that dies between any two steps leaves the moment before; the next one comes to what the source has.

A soak takes more batches, and so more kills.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.source.feed import FORMAT
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.captured import CapturedTables
from headrace.pipeline.tables.job import read_tables
from headrace.pipeline.tables.ledger import Ledger, read_published
from tests.integration.pipeline.tables.captured_source import CapturedSource
from tests.scale import SEED, sized

TOTAL = 1000
ROUNDS = sized(1, soak=40)
LIFE_MAX, FIRST_LIFE_MAX = 40, 12
"""How much may happen before a kill. The first lives end before the first batch does."""


class Killed(BaseException):
    """The process is gone."""


class Life:
    """How many more things happen before the process is killed."""

    def __init__(self, left: int, *, sudden: bool) -> None:
        self.left = left
        self.sudden = sudden

    def tick(self) -> None:
        """One thing happens."""
        self.left -= 1
        if self.left == 0:
            raise Killed


class MortalLedger(Ledger):
    """A ledger whose process may die before and after each write."""

    life = Life(0, sudden=False)

    def _write(self, name: str, file: Any) -> None:
        self.life.tick()
        super()._write(name, file)
        self.life.tick()

    def _append(self, *line: Any) -> None:
        self.life.tick()
        super()._append(*line)
        self.life.tick()


class MortalTables(CapturedTables):
    """Tables whose process may die before and after each step, and between a change of columns and the note of it."""

    def __init__(self, ledger: Ledger, life: Life) -> None:
        super().__init__(ledger)
        self._life = life

    def _try(self, *step: Any) -> None:
        self._life.tick()
        super()._try(*step)
        self._life.tick()

    def _evolve(self, spark: SparkSession, path: Path, work: Any, step: Any) -> None:
        if work.table.begun is None and self._life.sudden:
            self._life.left = 3  # two for the note that it begins, one for the note that it is done
        super()._evolve(spark, path, work, step)


def shown_total(source: CapturedSource) -> int | None:
    """The money in both tables at the published moment; None if nothing is published, or not both tables."""
    if read_published(Path(source.to)) is None:
        return None
    frames = read_tables(source.spark, source.to)
    if len(frames) < 2:
        return None
    sums = [frame.selectExpr("coalesce(sum(v), 0) AS v").collect()[0]["v"] for frame in frames.values()]
    return sum(int(one) for one in sums)


def entries(source: CapturedSource, first: int, last: int) -> DataFrame:
    """A range of the feed."""
    options = {"endpoint": source.server.url, "feeds": source.feed, "start": str(first), "end": str(last)}
    return source.spark.read.format(FORMAT).options(**options).load()


def test_readers_see_whole_moments_whenever_the_job_is_killed(captured: CapturedSource) -> None:
    rng = random.Random(SEED)
    captured.sql(
        "CREATE TABLE a (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE b (id INT PRIMARY KEY, v INT, n0 CHAR(1))",
        f"INSERT INTO a VALUES (1, {TOTAL}), (2, 0)",
    )
    captured.settle()
    bounds = [captured.head()]
    for number in range(ROUNDS):
        with captured.database.connect() as connection, connection.cursor() as cursor:
            for _ in range(4):
                moved = rng.randrange(1, 50)
                cursor.execute("BEGIN")
                cursor.execute(f"UPDATE a SET v = v - {moved} WHERE id = 1")
                cursor.execute(
                    f"INSERT INTO b (id, v) VALUES ({rng.randrange(9)}, {moved}) "
                    f"ON DUPLICATE KEY UPDATE v = v + {moved}"
                )
                cursor.execute("COMMIT")
        captured.sql(
            f"ALTER TABLE b ADD COLUMN c{number} INT NOT NULL DEFAULT {number}, RENAME COLUMN v TO w"
        )
        captured.sql(
            "ALTER TABLE b RENAME COLUMN w TO v",
            "UPDATE b SET v = v + 1",
            "UPDATE a SET v = v - (SELECT count(*) FROM b) WHERE id = 1",
            # Two commits in place: done twice, the second one would fail.
            f"ALTER TABLE b RENAME COLUMN n{number} TO n{number + 1}, ADD COLUMN d{number} INT",
            f"UPDATE b SET n{number + 1} = '{number}' LIMIT 2",
        )
        captured.settle()
        bounds.append(captured.head())
    incarnation = captured.server.http.get(f"/feeds/{captured.feed}").json()["incarnation"]
    kills = 0
    done = 0
    while done < len(bounds):
        left = rng.randrange(1, LIFE_MAX if kills > 2 else FIRST_LIFE_MAX)
        life = Life(left, sudden=kills % 3 != 2)
        ledger = MortalLedger(Path(captured.to), captured.feed, incarnation)
        ledger.life = life
        batches = Batches(ledger, lambda one: None)
        batches._captured = MortalTables(ledger, life)  # the one place where a test gets in between
        try:
            # After a kill the batch runs again, as Spark would have it, or a stream begins behind what is merged.
            reached = ledger.reached.sequence_id if ledger.reached is not None else 0
            again = rng.random() < 0.5
            first = (bounds[done - 1] if done else 0) + 1 if again else reached + 1
            if first <= bounds[done]:
                batches(entries(captured, first, bounds[done]), done)
            done += 1
        except Killed:
            kills += 1
        finally:
            ledger.close()
        total = shown_total(captured)
        assert total in {None, TOTAL}, f"seed {SEED}, kill {kills}"
    assert kills >= 2
    assert captured.differences() == []
