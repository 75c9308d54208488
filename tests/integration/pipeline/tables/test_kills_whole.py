"""SIGKILL of the whole job, its Java too, in the middle of anything: readers see a moment of the feed, whole and unmixed.

A soak kills more often, and lets more happen before and between two kills.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from headrace.pipeline.tables.job import run_tables
from headrace.pipeline.tables.ledger import Ledger, read_published
from headrace.pipeline.tables.reader import FORMAT
from headrace.pipeline.tables.requests import leave_request
from headrace.pipeline.tables.simple.state import stopped
from headrace.pipeline.tables.states import Request, StopNote
from tests.integration.pipeline.tables.told_story import DATABASE, Shown, Story
from tests.scale import SEED, SOAK, sized
from tests.scenarios.spark_process import MASTER, SparkProcess
from tests.servers import Feed

FILES_MAX = 160
"""How many files a job may have made or taken away, its record of how far it is with them, before it is killed."""
TOLD_BEFORE = sized(4, soak=10)
HAPPENINGS_MAX = sized(3, soak=160)
"""How much goes on while a job runs: each batch of its backlog costs seconds."""
KILLS = sized(1, soak=40)


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
            if told < HAPPENINGS_MAX:
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


@pytest.mark.timeout(12_000 if SOAK else 600)
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
