"""Whatever is cut and sent again: no partition gets an event behind a WATERMARK that covers it, nor before its schema."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipeline.kafka.announcing import Announcer, Now
from headrace.pipeline.kafka.steps import Control, Rows, Step, plan_steps, send_steps
from headrace.simple.bootstrap import BootstrapSettings
from headrace.simple.message import Ddl, MessageType
from headrace.simple.schema import TableSchema
from tests.scale import scaled, sized
from tests.simple_tables import table

TABLES = ("a", "b")
TOPICS = {"a": "one", "b": "two"}


class Entry(NamedTuple):
    """An entry of a feed: a row, a statement or a WATERMARK. ``commit_ts`` grows along the feed."""

    sequence_id: int
    kind: str
    table: str
    version: int
    commit_ts: int
    partition: int


class Cut(Exception):
    """The job was killed."""


class Sent(NamedTuple):
    """A message in a partition."""

    kind: str
    entry: Entry | None
    schema: tuple[str, int] | None = None


def a_feed(rng: random.Random, length: int, partitions: int) -> list[Entry]:
    found: list[Entry] = []
    versions = dict.fromkeys(TABLES, 0)
    commit_ts = 1
    kind = ""
    for place in range(1, length + 1):
        before, kind = kind, rng.choices(["row", "ddl", "watermark"], [8, 1, 2])[0]
        name = rng.choice(TABLES)
        if not (kind == before == "row" and rng.random() < 0.4):
            commit_ts += 1  # else it is a row of the same transaction
        if kind == "ddl" or rng.random() < 0.1:  # a schema may change without a statement, too
            versions[name] = place
        found.append(Entry(place, kind, name, versions[name], commit_ts, rng.randrange(partitions)))
    return found


class Topics:
    """Two topics; a job that may be killed while it sends, and what each partition has at the end."""

    def __init__(self, rng: random.Random, feed: Sequence[Entry], partitions: int, cuts: int) -> None:
        self.rng, self.feed, self.partitions, self.cuts = rng, feed, partitions, cuts
        self.logs: dict[tuple[str, int], list[Sent]] = defaultdict(list)
        self.order: list[tuple[tuple[str, int], Sent]] = []
        self.batch: Sequence[Entry] = ()
        self.begin()

    def begin(self) -> None:
        """Start the job: it knows nothing of before."""
        self.announcer = Announcer(
            BootstrapSettings(), lambda _, name: TOPICS[name], lambda _: self.partitions
        )
        self.ms = 0

    def schema(self, name: str, version: int) -> TableSchema:
        return table(f"shop.{name}", "id", version=version, table_id=TABLES.index(name), key=("id",))

    def send(self, places: Sequence[tuple[str, int]], sent: Sent) -> None:
        """To several partitions, in any order; killed in between, some have it."""
        shuffled = list(places)
        self.rng.shuffle(shuffled)
        for place in shuffled:
            self.may_be_cut()
            self.put(place, sent)

    def put(self, place: tuple[str, int], sent: Sent) -> None:
        self.logs[place].append(sent)
        self.order.append((place, sent))

    def may_be_cut(self) -> None:
        if self.cuts and self.rng.random() < 0.03:
            self.cuts -= 1
            raise Cut

    def every(self, topic: str) -> list[tuple[str, int]]:
        return [(topic, partition) for partition in range(self.partitions)]

    def announce(self, rows: Sequence[Rows]) -> None:
        self.ms += 1_000
        due = self.announcer.before_rows(
            rows, lambda one: self.schema(one.table, one.version), Now(self.ms, self.ms)
        )
        for one in due:
            schema = one.message.table_schema
            places = [(one.topic, partition) for partition in one.partitions]
            self.send(places, Sent("bootstrap", None, (schema.table, schema.version)))

    def write(self, step: Step) -> None:
        """One writer for each partition, all at once."""
        lanes: dict[tuple[str, int], list[Entry]] = defaultdict(list)
        for one in self.batch:
            inside = one.sequence_id > step.after and (step.below is None or one.sequence_id < step.below)
            if one.kind == "row" and inside:
                lanes[TOPICS[one.table], one.partition].append(one)
        while lanes:
            self.may_be_cut()
            place = self.rng.choice(sorted(lanes))
            self.put(place, Sent("row", lanes[place].pop(0)))
            if not lanes[place]:
                del lanes[place]

    def watermark(self, entry: Control) -> None:
        found = self.feed_entry(entry)
        self.send(
            [place for topic in set(TOPICS.values()) for place in self.every(topic)], Sent("watermark", found)
        )

    def statement(self, entry: Control) -> None:
        found = self.feed_entry(entry)
        schema = self.schema(found.table, found.version)
        self.send(self.every(TOPICS[found.table]), Sent("ddl", found, (found.table, found.version)))
        message = Ddl(MessageType.ALTER, "sql", found.commit_ts, 1, schema)
        self.announcer.statement(message, TOPICS[found.table], Now(self.ms, self.ms))

    def feed_entry(self, control: Control) -> Entry:
        return next(one for one in self.feed if one.sequence_id == control.sequence_id)

    def run(self, size: int) -> None:
        """Send the whole feed in batches; a batch that was cut is sent again by the next job."""
        start = 0
        while start < len(self.feed):
            self.batch = self.feed[start : start + size]
            try:
                send_steps(steps_of(self.batch), self)
            except Cut:
                self.begin()
                continue
            start += size


def steps_of(batch: Sequence[Entry]) -> list[Step]:
    """The plan of a batch, counted as the job's survey counts it."""
    statements = [Control(one.sequence_id, b"") for one in batch if one.kind == "ddl"]
    rows: dict[tuple[int, str, int], list[int]] = defaultdict(list)
    marks: dict[int, Control] = {}
    for one in batch:
        step = sum(statement.sequence_id < one.sequence_id for statement in statements)
        if one.kind == "row":
            rows[step, one.table, one.version].append(one.sequence_id)
        elif one.kind == "watermark":
            marks[step] = Control(one.sequence_id, b"")
    found = [
        Rows(step, "shop", name, version, min(places), len(places))
        for (step, name, version), places in rows.items()
    ]
    return plan_steps(statements, found, marks.items())


@settings(max_examples=sized(scaled(60), soak=scaled(200)), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    length=st.integers(0, 60),
    partitions=st.integers(1, 3),
    size=st.integers(1, 30),
    cuts=st.integers(0, 6),
)
def test_what_consumers_rely_on(seed: int, length: int, partitions: int, size: int, cuts: int) -> None:
    rng = random.Random(seed)  # repeatable
    topics = Topics(rng, a_feed(rng, length, partitions), partitions, cuts)
    topics.run(size)
    for place, log in topics.logs.items():
        check_partition(place, log, topics.feed)
    check_statements(topics)


def check_partition(place: tuple[str, int], log: Sequence[Sent], feed: Sequence[Entry]) -> None:
    known: set[tuple[str, int]] = set()
    seen: list[Entry] = []
    watermark = 0
    for kind, entry, schema in log:
        if schema is not None:
            known.add(schema)
        if entry is None:
            continue
        if kind == "watermark":
            watermark = max(watermark, entry.commit_ts)
            continue
        if kind == "row":
            assert (entry.table, entry.version) in known, "a row before its schema"
        if entry not in seen:
            assert entry.commit_ts > watermark, (
                "an event at or below a WATERMARK comes behind it for the first time"
            )
            seen.append(entry)
    assert seen == [
        one
        for one in feed
        if TOPICS[one.table] == place[0]
        and (one.kind == "ddl" or (one.kind == "row" and one.partition == place[1]))
    ], "once repeats are removed, a partition has its events in the order of the feed, all of them"


def check_statements(topics: Topics) -> None:
    """A DDL is sent behind all rows before it, on whatever partition; no later row before it is on all partitions."""
    rows_sent: set[Entry] = set()
    told: dict[Entry, set[int]] = defaultdict(set)
    for (_, partition), sent in topics.order:
        entry = sent.entry
        if entry is None:
            continue
        if sent.kind == "ddl":
            before = {one for one in topics.feed if one.kind == "row" and one.sequence_id < entry.sequence_id}
            assert before <= rows_sent
            told[entry].add(partition)
        if sent.kind == "watermark":
            before = {one for one in topics.feed if one.kind == "row" and one.commit_ts <= entry.commit_ts}
            assert before <= rows_sent, "a WATERMARK covers what was not sent"
        if sent.kind == "row":
            earlier = [
                one for one in topics.feed if one.kind == "ddl" and one.sequence_id < entry.sequence_id
            ]
            assert all(len(told[one]) == topics.partitions for one in earlier)
            rows_sent.add(entry)
