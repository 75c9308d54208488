"""From a MariaDB under sysbench and DDL to Delta tables and to Kafka at once, while every process on the way is killed.

The database, its capture, the server, the broker and both Spark jobs, Java and workers included, get a SIGKILL each in a
soak, else one job and two of the others, and go on. Then the load ends, both jobs come to its end, and
``headrace pipeline audit`` must find the database, the feed and the tables equal. A consumer that knows ``headrace.simple``
alone must hold what the database holds, column by column, from the eight partitions of the topic: by JSON or by Avro, as the
seed has it, and by both in a soak, where all lasts longer. One table is altered before each kill in a way that can be
followed: its Delta table must have all of it before anything is copied anew.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.pipeline.tables.ledger import read_tables_file
from headrace.pipeline.tables.states import StopNote
from headrace.simple.values import Encoding
from tests import forks, sysbench
from tests.kafka import Broker
from tests.mariadb import CAPTURE_OPTIONS, Database, Server
from tests.scale import scaled, sized
from tests.scenarios.captured_load import Load
from tests.scenarios.captured_process import CaptureProcess
from tests.scenarios.followed_table import CHANGES, FollowedTable
from tests.scenarios.history import seeded
from tests.scenarios.kafka_process import (
    KafkaJob,
    captured,
    check_rebuilt,
    last_watermark_ms,
    last_watermark_sent,
    messages_in,
)
from tests.scenarios.spark_process import MASTER, STEP_S_MAX, SparkProcess, pipeline
from tests.scenarios.test_capture import say
from tests.servers import ServerProcess, serving

GROWTH_MAX = sized(60, soak=400)
"""After so many entries, at most, the next process is killed."""

BURST_S = 2
ALTERED = {f"shop.{name}" for name in ("every", "account", "tag", "place", "third")}
"""Tables whose columns the load alters: ``place`` and ``tag`` change names by way of ``third``. No others may stop.

That most of them go on is not asked for: :mod:`tests.scenarios.followed_table` has a table that must.
"""

STATEMENT_STOPS = {
    "value-unfit": ("may have changed when it became", "it became NOT NULL where it was NULL"),
    "table-stopped": ("what old rows have in it is not told",),
}
"""Code of a stop that a statement of the load causes -> what its reason says."""

RATE = sized(1, soak=4)
"""Transactions of sysbench in a second."""

SYSBENCH = (
    *sized(("--tables=1", "--table-size=60"), soak=("--tables=2", "--table-size=300")),
    "--rand-type=uniform",
)


class Sysbench(threading.Thread):
    """sysbench in bursts; one that loses its server is followed by the next."""

    def __init__(self, database: Database) -> None:
        super().__init__(name="sysbench")
        self._database = database
        self._end = threading.Event()
        self.bursts = self.broken = 0

    def prepare(self) -> None:
        """Make its tables."""
        sysbench.run(self._database, "oltp_write_only", *SYSBENCH, "prepare")

    def run(self) -> None:
        words = ("oltp_write_only", *SYSBENCH, "--threads=2", f"--rate={RATE}", f"--time={BURST_S}", "run")
        while not self._end.wait(0.2):
            done = subprocess.run(
                sysbench.command(self._database, *words),
                capture_output=True,
                timeout=BURST_S + sysbench.END_S_MAX,
                check=False,
            )
            self.bursts += 1
            self.broken += done.returncode != 0 or b"FATAL" in done.stdout + done.stderr

    def stop(self) -> None:
        """End it; waits for the burst under way."""
        self._end.set()
        if self.ident is not None:
            self.join()


class TablesJob(SparkProcess):
    """``headrace pipeline tables``."""

    def __init__(self, folder: Path, server: ServerProcess) -> None:
        self.to = folder / "tables"
        words = ["tables", "--json", "--feed", CaptureProcess.feed, "--server", server.url]
        words += ["--to", str(self.to), *MASTER]
        log = self.to / "_headrace" / "spark.log"
        super().__init__(folder, words, running=("--max-entries", "5000"), spark_log=log)

    def published(self) -> dict[str, Any]:
        """What ``published.json`` says; empty while there is none."""
        path = self.to / "_headrace" / "published.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def place(self) -> int:
        """The sequence id that is published, 0 before the first."""
        return int(self.published().get("sequence-id", 0))

    def stopped(self) -> dict[str, StopNote]:
        """The tables that are stopped, by name, and why."""
        known = read_tables_file(self.to)
        tables = (known.tables or ()) if known is not None else ()
        return {".".join(one.table): one.stopped for one in tables if one.stopped is not None}

    def check_stops(self) -> None:
        """Only what the load alters may be stopped, and only since old rows can't be told behind one of its statements."""
        for name, note in self.stopped().items():
            assert name in ALTERED, (name, note)
            assert any(said in note.reason for said in STATEMENT_STOPS.get(note.code, ())), (name, note)


class Scene:
    """All processes from the database to both ends, and the load."""

    def __init__(self, folder: Path, chance: random.Random, running: ExitStack) -> None:
        self.chance = chance
        self.mariadb = running.enter_context(Server(*CAPTURE_OPTIONS))
        self.server = running.enter_context(serving(folder / "server", grpc=True))
        self.broker = running.enter_context(Broker())
        pause = sized(400, soak=60)
        self.load = Load(
            self.mariadb, chance.getrandbits(32), write_pause=pause, alter_pause=sized(120, soak=60)
        )
        self.followed = FollowedTable(self.load.database)
        self.sysbench = Sysbench(self.load.database)
        self.capture = captured(folder, self.load, self.mariadb, self.server, running)
        self.tables = TablesJob(folder, self.server)
        self.folder = folder
        self.encodings = chance.sample(list(Encoding), sized(1, soak=len(Encoding)))
        self.kafka = KafkaJob(folder, self.server, self.broker, self.encodings[0])
        for end in (self.kafka.end, self.tables.end, self.capture.kill, self.load.stop, self.sysbench.stop):
            running.callback(end)

    def start(self) -> None:
        """Begin with tables that have rows, which are copied while they are changed."""
        self.load.make_tables()
        self.followed.make()
        self.sysbench.prepare()
        self.load.start()
        self.sysbench.start()
        self.capture.start()
        self.capture.wait(lambda: self.capture.head() > 0, what="the feed")
        self.tables.start()
        self.kafka.start()
        self.tables.wait(lambda: self.followed.is_published(self.tables.to), what="a table that is followed")

    def victims(self) -> list[Callable[[], None]]:
        """What is killed, in a random order: in a soak each one as often as the scale says, else one job and two others.

        A job that is started again takes as much of the processor as all that the others do.
        """
        jobs = [self.kill_tables, self.kill_kafka_job]
        others = [self.kill_database, self.kill_server, self.kill_capture, self.kill_broker]
        once = [*self.chance.sample(jobs, sized(1, soak=2)), *self.chance.sample(others, sized(2, soak=4))]
        return [one for _ in range(scaled(1)) for one in self.chance.sample(once, len(once))]

    def kill_database(self) -> None:
        self.grow()
        self.mariadb.restart()

    def kill_server(self) -> None:
        self.grow()
        self.server.restart()

    def kill_capture(self) -> None:
        self.grow()
        self.capture.kill()
        self.capture.start()

    def kill_tables(self) -> None:
        before = self.tables.place()
        self.tables.wait(lambda: self.tables.place() > before, what=f"more than entry {before} in the tables")
        self.tables.kill()
        self.tables.start()

    def kill_kafka_job(self) -> None:
        self.wait_for_messages()
        self.kafka.kill()
        self.kafka.start()

    def kill_broker(self) -> None:
        self.wait_for_messages()
        self.broker.kill()
        self.broker.start()

    def grow(self) -> None:
        """Wait until the feed has grown."""
        self.capture.progress(self.chance, GROWTH_MAX)

    def wait_for_messages(self) -> None:
        """Wait until the topic has grown."""
        wanted = messages_in(self.broker, self.kafka.topic) + 1
        self.kafka.wait(
            lambda: messages_in(self.broker, self.kafka.topic) >= wanted, what=f"{wanted} messages"
        )

    def wait_for_load(self) -> None:
        """Wait until it has written and altered something."""
        load = self.load
        self.capture.wait(
            lambda: load.transactions > 0 < load.statements, what="the load to do all that it does"
        )

    def settle(self) -> None:
        """End the load, bring back the tables that a statement has stopped, and let both jobs come to the end."""
        self.load.stop()
        self.sysbench.stop()
        self.drain()
        self.tables.check_stops()
        self.followed.check(self.tables.to)
        stopped = sorted(self.tables.stopped())
        if stopped:
            for name in stopped:
                self.capture.command("copy", name)
            self.tables.wait(lambda: not self.tables.stopped(), what=f"{stopped} to be copied")
            self.drain()
        say(f"{len(stopped)} tables were stopped and copied anew: {stopped}")
        assert self.capture.stop() == 0, self.capture.errors()[-4000:]
        head = self.capture.head()
        self.tables.wait(lambda: self.tables.place() == head, what=f"entry {head} in the tables")
        for job in (self.tables, self.kafka):
            assert job.stop() == 0, job.errors()
        assert self.tables.place() == head

    def drain(self) -> None:
        """Wait until a WATERMARK that covers all until now has come through everything."""
        ((end_ms,),) = self.mariadb.sql("SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS INT)")
        self.capture.wait(
            lambda: last_watermark_ms(self.server, self.capture) >= end_ms, what="a WATERMARK in the feed"
        )
        self.tables.wait(
            lambda: self.tables.published().get("commit-ts", 0) >> 18 >= end_ms, what="it in the tables"
        )
        self.kafka.wait(
            lambda: last_watermark_sent(self.broker, self.kafka) >= end_ms, what="it in the topic"
        )

    def topics(self) -> dict[Encoding, str]:
        """The topic of each encoding; the whole feed is sent once more for a second one, with nothing killed."""
        topics = {self.kafka.encoding: self.kafka.topic}
        for encoding in self.encodings[1:]:
            job = KafkaJob(self.folder, self.server, self.broker, encoding)
            job.finish()
            topics[encoding] = job.topic
        return topics

    def audit(self) -> dict[str, Any]:
        """Compare the database, the feed and the tables; returns what the command says, which must be that all is equal."""
        words = ["audit", "--to", str(self.tables.to), "--server", self.server.url, "--json", *MASTER]
        words += ["--source", str(self.capture.config)]
        done = forks.run(
            pipeline(*words),
            env=self.capture.environment,
            capture_output=True,
            text=True,
            timeout=STEP_S_MAX,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-4000:]
        said: dict[str, Any] = json.loads(done.stdout)
        return said


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with ExitStack() as running:
        yield Scene(tmp_path, seeded(), running)


@pytest.mark.timeout(1800)
def test_the_database_the_feed_the_tables_and_the_topic_are_equal(scene: Scene) -> None:
    began = time.monotonic()
    scene.start()
    victims = scene.victims()
    changes = -(-len(CHANGES) // len(victims))
    for kill in victims:
        for _ in range(changes):
            scene.followed.change()
        kill()
        say(f"{kill.__name__} behind entry {scene.capture.head()}, {time.monotonic() - began:.0f} s")
    scene.grow()
    scene.wait_for_load()
    scene.settle()
    say(f"settled, {time.monotonic() - began:.0f} s")
    load, bursts = scene.load, scene.sysbench
    say(f"{load.transactions} transactions, {load.statements} statements, {load.refused} refused")
    say(f"{bursts.bursts} bursts of sysbench, {bursts.broken} broken; {scene.capture.head()} entries")
    assert load.transactions > 0
    assert load.statements > 0
    assert bursts.bursts > bursts.broken
    found = scene.audit()
    assert found["equal"], found
    assert found["source"]["sequence-id"] <= found["sequence-id"], found
    assert all(one["source"]["equal"] for one in found["tables"]), found
    rows = {".".join(one["table"]): one["feed"]["rows"] for one in found["tables"]}
    assert rows["shop.sbtest1"] > 0, rows
    assert rows["shop.account"] > 0, rows
    say(f"equal: {rows}, {time.monotonic() - began:.0f} s")
    with ExitStack() as running:
        check_rebuilt(scene.mariadb, scene.broker, scene.topics(), running)
    say(f"{time.monotonic() - began:.0f} s")
