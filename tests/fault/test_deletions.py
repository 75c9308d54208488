"""What docs/reference/compatibility.md says may be deleted from a data folder, and what may not."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from headrace.entries.lsn import Lsn
from headrace.errors import (
    DuplicateEntry,
    JournalCorrupt,
    JournalLoss,
    LsnNotAvailable,
    NotRegistered,
    SequenceNotAvailable,
)
from headrace.log.files.store import FileStore
from headrace.log.history import frames_of_range
from headrace.log.log import Log, LogSettings
from headrace.log.metadata.sqlite import METADATA_NAME
from headrace.log.requests import Configure
from headrace.log.retention.consumers import find_consumers
from headrace.log.retention.plan import RetentionSettings
from headrace.server.reading import Known
from headrace.server.service import Service
from headrace.server.streams.subscriptions import Ask, Subscriber, Subscriptions
from headrace.testing.clock import ManualClock
from headrace.wire import documents as doc
from tests.bench import append
from tests.fault.journals import opened, segments
from tests.stores import fill

ROOT = Path(__file__).parents[2]
ONE = Subscriber("anonymous", "one")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    with opened(made) as bench:
        fill(bench, ["a", "b"], 40)
        with pytest.raises(Exception, match="quarantined"):
            bench.append("b", "twice", sequence_ids=(1,))
    with segments(made)[-1].open("ab") as file:
        file.write(b"remains of a crash")
    return made


@pytest.mark.parametrize("name", [METADATA_NAME, "torn-*.bin", "lock"])
async def test_may_be_deleted(folder: Path, name: str) -> None:
    log = Log.open(folder)
    log.metadata.register_listener("l", "a", hold=False, now_ms=1)
    before = log.feeds()
    await log.close()
    deleted = list(folder.glob(name))
    assert deleted
    for path in deleted:
        path.unlink()
    log = Log.open(folder)
    await log.start()
    assert log.feeds() == before
    assert log.tail("b").quarantine is not None, "quarantines stand in the journal"
    assert (await log.append(append("a", "next"))).first_sequence_id == before[0].next_sequence_id
    await log.close()


async def test_what_is_lost_with_the_metadata_and_what_the_journal_brings_back(tmp_path: Path) -> None:
    """What docs/formats/metadata.md says under "If it is deleted"."""
    async with running(tmp_path) as (service, subscriptions, _):
        await service.register_publisher(doc.RegisterPublisher(agent_id="agent-1", change_feed_id="f"))
        lsns = [(await service.log.append(append("f", f"{n}" + "." * 300))).last_lsn for n in range(10)]
        await service.log.configure(Configure("f", key_field="id"))
        with pytest.raises(DuplicateEntry):
            await service.log.append(append("f", "twice", sequence_ids=(1,)))
        await service.register_listener(doc.RegisterListener(listener_id="l", change_feed_id="f", hold=True))
        place = doc.PositionIn(incarnation=service.log.tail("f").incarnation, sequence_id=2)
        await service.put_position("l", "f", place)
        await subscribe(subscriptions, lsns[0])
        await subscriptions.ack(ONE, lsns[1])
        before = service.log.tail("f")
    (tmp_path / METADATA_NAME).unlink()
    async with running(tmp_path) as (service, subscriptions, clock):
        log = service.log
        assert log.tail("f") == before, "feeds, epochs, quarantines, settings, producers' places"
        assert before.quarantine is not None
        assert before.settings.key_field == "id"
        assert (await service.feed("f")).quarantined
        assert (await service.alarms()).alarms == []
        with pytest.raises(NotRegistered):
            await service.poll("f", "l", 2, timeout_ms=0, known=Known(None, None))
        assert find_consumers(log.store, log.metadata, service.retention.terms()) == []
        registered = await service.register_listener(
            doc.RegisterListener(listener_id="l", change_feed_id="f", hold=True)
        )
        assert registered.position is None
        known = Known(before.incarnation, lsns[1])
        assert (await service.poll("f", "l", 2, timeout_ms=0, known=known)).first == 3
        await subscribe(subscriptions, lsns[4])
        (row,) = log.metadata.subscribers()
        assert lsns[3] < Lsn.parse(row.lsn) < lsns[4], "just below what it asked for, not where it was"
        await service.put_position("l", "f", doc.PositionIn(incarnation=before.incarnation, sequence_id=10))
        await service.retention.run_pass()
        pass_hours(clock, 2)
        await service.retention.run_pass()
        assert 2 < log.tail("f").oldest <= 5, "held for the subscriber from its new place on"


async def test_who_is_not_back_before_the_first_pass_is_not_waited_for(tmp_path: Path) -> None:
    async with running(tmp_path) as (service, subscriptions, clock):
        await service.register_publisher(doc.RegisterPublisher(agent_id="agent-1", change_feed_id="f"))
        lsns = [(await service.log.append(append("f", f"{n}" + "." * 300))).last_lsn for n in range(10)]
        await subscribe(subscriptions, lsns[0])
        pass_hours(clock, 2)
        await service.retention.run_pass()
        assert service.log.tail("f").oldest == 1, "it holds"
    (tmp_path / METADATA_NAME).unlink()
    async with running(tmp_path, hours=2) as (service, subscriptions, _):
        await service.retention.run_pass()
        assert service.log.tail("f").oldest > 1
        with pytest.raises(LsnNotAvailable):
            await subscribe(subscriptions, lsns[0])


@asynccontextmanager
async def running(
    folder: Path, *, hours: int = 0
) -> AsyncIterator[tuple[Service, Subscriptions, ManualClock]]:
    """A service whose passes of retention run when a test says so; entries are kept for an hour."""
    clock = ManualClock()
    pass_hours(clock, hours)
    settings = LogSettings(segment_bytes=1000, retention=RetentionSettings(retention_s=3600))
    log = Log.open(folder, clock=clock, settings=settings)
    await log.start()
    subscriptions = Subscriptions(log, clock=clock)
    await subscriptions.start()
    try:
        yield Service(log, clock=clock), subscriptions, clock
    finally:
        await subscriptions.close()
        await log.close()


def pass_hours(clock: ManualClock, hours: int) -> None:
    clock.ms += hours * 3_600_000
    clock.seconds += hours * 3600


async def subscribe(subscriptions: Subscriptions, start: Lsn) -> None:
    async with aclosing(subscriptions.subscribe(ONE, Ask(start=start))) as items:
        await anext(items)


@pytest.mark.parametrize(("name", "kind"), [("mark", JournalCorrupt), (-1, JournalLoss), (1, JournalLoss)])
def test_may_not_be_deleted(folder: Path, name: str | int, kind: type[Exception]) -> None:
    (folder / name if isinstance(name, str) else segments(folder)[name]).unlink()
    with pytest.raises(kind):
        FileStore(folder)


def test_oldest_segment_is_then_as_if_dropped(folder: Path) -> None:
    with opened(folder) as bench:
        wanted, tails = {feed: bench.values(feed) for feed in "ab"}, list(bench.store.tails())
    segments(folder)[0].unlink()
    with opened(folder) as bench:
        for then in tails:
            tail = bench.tail(then.name)
            assert tail.next_sequence_id == then.next_sequence_id
            assert 0 < tail.dropped_sequence_id < tail.head
            kept = {number: value for number, value in wanted[tail.name].items() if number >= tail.oldest}
            assert bench.values(tail.name) == kept
            with pytest.raises(SequenceNotAvailable):
                frames_of_range(bench.store, tail, 1, tail.head, entries_max=9, bytes_max=9)


def test_page_says_the_same() -> None:
    page = (ROOT / "docs" / "reference" / "compatibility.md").read_text(encoding="utf-8")
    for name, may in ((METADATA_NAME, "yes"), ("torn-", "yes"), ("lock", "yes"), ("mark", "**no**")):
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}"))
        assert row.split("|")[2].strip().startswith(may), row
