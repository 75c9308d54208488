"""A job that dies in the middle of anything: readers see a moment of the feed, whole and unmixed; the next job goes on.

The process dies between any two steps; in a soak more often, with more between two deaths, and by SIGKILL, its Java too.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipeline.source.feed import FORMAT as FEED_FORMAT
from headrace.pipeline.source.feed import register
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.captured import CapturedTables
from headrace.pipeline.tables.job import run_tables
from headrace.pipeline.tables.ledger import Ledger, read_published
from headrace.pipeline.tables.reader import FORMAT, iter_rows
from headrace.pipeline.tables.requests import leave_request
from headrace.pipeline.tables.simple.state import stopped
from headrace.pipeline.tables.states import Request, StopNote
from tests.integration.pipeline.tables.told_story import DATABASE, Shown, Story
from tests.scale import SEED, sized
from tests.scenarios.spark_process import MASTER, SparkProcess
from tests.servers import Feed

TABLES = sized(2, soak=3)
ROUNDS = sized(1, soak=40)
HAPPENINGS = sized(3, soak=6)
"""How much happens in a round: a batch of its own."""
LIFE_MAX, FIRST_LIFE_MAX = 40, 12
"""How much may happen before a death. The first lives end before the first batch does."""

FILES_MAX = 160
"""How many files a job may have made or taken away, its record of how far it is with them, before it is killed."""
TOLD_BEFORE = 10
TOLD_MAX = 160
"""How much goes on while a job runs: each batch of its backlog costs seconds."""
KILLS = 40


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


def entries(spark: SparkSession, feed: Feed, first: int, last: int) -> DataFrame:
    """A range of the feed."""
    options = {"endpoint": feed.server.url, "feeds": feed.name, "start": str(first), "end": str(last)}
    return spark.read.format(FEED_FORMAT).options(**options).load()


def is_a_moment(to: Path, story: Story) -> bool:
    """Whether the published tables are those of their moment, row by row."""
    moment = read_published(to)
    if moment is None:
        return True
    found: Shown = {one.table[1]: [] for one in moment.tables}
    for table, row in iter_rows(str(to)):
        found[table[1]].append(row)
    found = {name: sorted(rows, key=lambda row: int(row["id"])) for name, rows in found.items()}
    return found == story.moments[moment.sequence_id]


def test_readers_see_whole_moments_whenever_the_job_is_killed(
    spark: SparkSession, feed: Feed, tmp_path: Path
) -> None:
    register(spark)
    chance = random.Random(SEED)
    story = Story(feed, chance, tables=TABLES)
    bounds = [story.head]
    for _ in range(ROUNDS):
        story.go_on(HAPPENINGS)
        bounds.append(story.head)
    incarnation = feed.server.http.get(feed.path).json()["incarnation"]
    kills = done = 0
    while done < len(bounds):
        left = chance.randrange(1, LIFE_MAX if kills > 2 else FIRST_LIFE_MAX)
        life = Life(left, sudden=kills % 3 != 2)
        ledger = MortalLedger(tmp_path, feed.name, incarnation)
        ledger.life = life
        batches = Batches(ledger, lambda one: None)
        batches._captured = MortalTables(ledger, life)  # the one place where a test gets in between
        try:
            # After a death the batch runs again, as Spark would have it, or a stream begins behind what is merged.
            reached = ledger.reached.sequence_id if ledger.reached is not None else 0
            again = chance.random() < 0.5
            first = (bounds[done - 1] if done else 0) + 1 if again else reached + 1
            if first <= bounds[done]:
                batches(entries(spark, feed, first, bounds[done]), done)
            done += 1
        except Killed:
            kills += 1
        finally:
            ledger.close()
        assert is_a_moment(tmp_path, story), f"seed {SEED}, kill {kills}"
    assert kills >= 2
    moment = read_published(tmp_path)
    assert moment is not None
    assert moment.sequence_id == story.head


class Job:
    """``headrace pipeline tables`` over a story's feed."""

    def __init__(self, folder: Path, feed: Feed, story: Story, chance: random.Random) -> None:
        self.folder = folder
        self.to = folder / "tables"
        self.feed = feed
        self.story = story
        self.chance = chance
        self.log: list[str] = []
        self.halted: set[str] = set()

    def process(self, *sizes: int) -> SparkProcess:
        """The job as a process, with batches of one of these sizes."""
        size = self.chance.choice(sizes)
        self.log.append(f"batches of {size}")
        words = ["tables", "--feed", self.feed.name, "--to", str(self.to), "--server", self.feed.server.url]
        words += ["--max-entries", str(size), "--json", *MASTER]
        return SparkProcess(self.folder, words, spark_log=self.to / "_headrace" / "spark.log")

    def run_until_killed(self) -> None:
        """Start it, let the story go on, and kill it when it has written so many files."""
        process = self.process(15, 40, 120, 1_000)
        before, more = self.files(), self.chance.randrange(1, FILES_MAX)
        told = 0

        def has_written() -> bool:
            nonlocal told
            if len(self.files() ^ before) >= more:
                return True
            if told < TOLD_MAX:
                self.story.go_on()
                told += 1
                return False
            moment = read_published(self.to)
            return moment is not None and moment.sequence_id == self.story.head

        process.start()
        try:
            process.wait(has_written, what="the job to write files")
            process.kill()
        finally:
            process.end()
        self.log.append(f"killed after {more} files, at {self.story.head}")

    def files(self) -> set[str]:
        """What there is below the tables' folder."""
        return {str(path) for path in self.to.rglob("*")} if self.to.exists() else set()

    def ask(self) -> None:
        """Leave a request, or stop a table as if something had not fitted and ask for it to be resumed."""
        names = self.story.names()
        kind = self.chance.choice(["", "rebuild", "resume"])
        name = self.chance.choice(names)
        if kind == "rebuild":
            leave_request(self.to, Request((DATABASE, name), rebuild=True))
            self.log.append(f"rebuild {name}")
        elif kind == "resume" and self._halt(name):
            leave_request(self.to, Request((DATABASE, name)))
            self.halted.add(name)
            self.log.append(f"resume {name}")

    def _halt(self, name: str) -> bool:
        incarnation = self.feed.server.http.get(self.feed.path).json()["incarnation"]
        ledger = Ledger(self.to, self.feed.name, incarnation)
        try:
            reached = ledger.reached
            found = next((one for one in ledger.tables if one.table == (DATABASE, name)), None)
            # Between two batches alone a table has exactly the rows that the note says.
            if found is None or found.state is None or found.stopped or reached is None:
                return False
            if ledger.begun != reached.sequence_id:
                return False
            after = reached.sequence_id
            note = StopNote(
                after=after, state=found.state, code="value-unfit", reason="odd", hint="Mend it.", at="now"
            )
            state = stopped(found.state, "odd")
            ledger.update(msgspec.structs.replace(found, state=state, place=after, stopped=note))
            return True
        finally:
            ledger.close()


def shown(spark: SparkSession, to: Path) -> tuple[int, Shown, dict[int, Shown]]:
    """What readers see: the moment's sequence id, each table's rows, and those of stopped tables by their own places."""
    moment = read_published(to)
    if moment is None:
        return 0, {}, {}
    found: Shown = {}
    halted: dict[int, Shown] = {}
    for one in moment.tables:
        into = found
        if isinstance(one.stopped_after, int):
            into = halted.setdefault(one.stopped_after, {})
        options = {"path": str(to), "table": ".".join(one.table)}
        rows = spark.read.format(FORMAT).options(**options).load().collect()
        plain = [
            {name: row[name] for name in row.asDict() if not name.startswith("_headrace")} for row in rows
        ]
        into[one.table[1]] = sorted(plain, key=lambda row: int(row["id"]))
    return moment.sequence_id, found, halted


@pytest.mark.timeout(12_000)
@pytest.mark.soak(sibling="test_readers_see_whole_moments_whenever_the_job_is_killed")
def test_readers_see_moments_of_the_feed_alone(spark: SparkSession, feed: Feed, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    story = Story(feed, chance)
    story.go_on(TOLD_BEFORE)
    job = Job(tmp_path, feed, story, chance)
    for _ in range(KILLS):
        job.run_until_killed()
        place, found, halted = shown(spark, job.to)
        told = f"seed {SEED}: {job.log}; published {place}"
        if place:
            wanted = story.moments[place]
            assert found == {name: rows for name, rows in wanted.items() if name in found}, told
            for after, tables in halted.items():
                # A resume may have got to a place within a transaction, and a table may have another name since.
                there = story.moments.get(after, {})
                assert tables == {name: there.get(name, rows) for name, rows in tables.items()}, told
            # A table that was stopped here is not among them until it is resumed.
            assert len(wanted) - len(found) <= len(job.halted), told
            job.ask()
    entries_max, url = chance.choice([60, 1_000]), feed.server.url
    last = run_tables(spark, feed=feed.name, to=str(job.to), server=url, once=True, entries_max=entries_max)
    place, found, _ = shown(spark, job.to)
    assert (last.stopped, place) == ([], story.head), f"seed {SEED}: {job.log}"
    assert found == story.moments[place], f"seed {SEED}: {job.log}"
