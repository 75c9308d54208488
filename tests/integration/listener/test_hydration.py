"""Out of the retained range: lease, snapshot, then what is newer. Real server, real HTTP publisher, real processes."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import SequenceNotAvailable, Usage
from headrace.listener import (
    Change,
    EntryFilter,
    FileBookmarks,
    Fold,
    HydrationProgress,
    Listener,
    ListenerSettings,
    Shard,
    SnapshotBegin,
    SnapshotEnd,
    SnapshotRows,
    SqliteBookmarks,
)  # fmt: skip
from headrace.listener.parts import SnapshotPart
from tests import forks
from tests.servers import Feed, ServerProcess, changes, serving
from tests.snapshots import Front, SnapshotPublisher, fronting, publishing
from tests.waiting import async_wait_until

_numbers = itertools.count(1)
QUICK = ListenerSettings(drain=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    """20 entries of 20 objects."""
    made = Feed(server, f"vmapi::vm-{next(_numbers)}")
    assert made.register().status_code == 200
    post(made, 1, 20)
    return made


@pytest.fixture
async def publisher(feed: Feed) -> AsyncIterator[SnapshotPublisher]:
    """The state as it was at entry 15: objects 1 to 15."""
    incarnation = feed.server.http.get(feed.path).json()["incarnation"]
    async with publishing(SnapshotPublisher(feed.name, incarnation)) as running:
        running.take("s1", 15, state(15))
        yield running


@pytest.fixture
async def front(feed: Feed, publisher: SnapshotPublisher) -> AsyncIterator[Front]:
    """Entries below 10 are not retained."""
    async with fronting(Front(feed.server.url, publisher, oldest=10)) as running:
        yield running


def post(feed: Feed, first: int, last: int) -> None:
    entries = [{"key": f"k{n}", "changes": changes(n)} for n in range(first, last + 1)]
    assert feed.post(*entries).status_code == 200


def state(last: int) -> list[dict[str, Any]]:
    return [
        {"key": f"k{number}", "changes": changes(number), "table": ["main", "vm"]}
        for number in range(1, last + 1)
    ]


class Consumer:
    """Keeps state as the docs say, and notes all that it is given."""

    def __init__(self) -> None:
        self.fold = Fold()
        self.given: list[Any] = []

    def on_change(self, change: Change) -> None:
        self.fold.change(change)
        self.given.append(change.sequence_id)

    def on_snapshot(self, part: SnapshotPart) -> None:
        self.fold.snapshot(part)
        match part:
            case SnapshotBegin():
                self.given.append(f"begin {part.snapshot_id} {part.sequence_id}")
            case SnapshotRows():
                self.given += [row.key for row in part.rows]
            case SnapshotEnd():
                self.given.append(f"end {part.rows}")


async def run(front: Front, feed: Feed, store: Any, consumer: Consumer, **options: Any) -> None:
    options = {"settings": QUICK, "start": 1, **options}
    async with Listener(
        front.url, feed.name, "l", store, on_snapshot=consumer.on_snapshot, token="secret-token", **options
    ) as listener:
        await listener.run(consumer.on_change)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileBookmarks]:
    with closing(FileBookmarks(tmp_path / "bookmarks")) as opened:
        yield opened


async def test_cut_off_for_longer_than_retention_gets_the_snapshot_then_newer_entries(
    front: Front, feed: Feed, publisher: SnapshotPublisher, store: FileBookmarks
) -> None:
    front.oldest = 1
    consumer = Consumer()
    await run(front, feed, store, consumer)
    assert consumer.given == list(range(1, 21))
    post(feed, 21, 40)
    publisher.take("s2", 35, state(35))
    publisher.pauses, publisher.cuts = 1, [200]
    front.oldest = 30
    consumer.given.clear()
    told: list[HydrationProgress] = []
    await run(front, feed, store, consumer, on_progress=told.append)
    assert consumer.given == ["begin s2 35", *(f"k{n}" for n in range(1, 36)), "end 35", *range(36, 41)]
    assert set(consumer.fold.rows()) == {f"k{number}" for number in range(1, 41)}
    assert [step.state for step in told if step.state != "applying"] == ["being-made", "applied"]
    assert told[0].rows == 5
    assert (told[-1].rows, told[-1].sequence_id) == (35, 35)
    assert told[-1].bytes_done == told[-1].bytes_total
    assert all("at-least=29" in first for first, _ in publisher.requests)
    assert "snapshot-id=s2" in publisher.requests[-1][0]
    assert front.leases[0] == {}
    assert front.leases[1] == {"snapshot-id": "s2", "sequence-id": 35}
    assert front.leases[-1] is None, "given back at the head"
    assert not any("authorization" in headers for _, headers in publisher.requests)


async def test_first_start_from_a_snapshot(front: Front, feed: Feed, store: FileBookmarks) -> None:
    consumer = Consumer()
    await run(front, feed, store, consumer, start="snapshot")
    assert consumer.given == ["begin s1 15", *(f"k{n}" for n in range(1, 16)), "end 15", *range(16, 21)]
    consumer.given.clear()
    await run(front, feed, store, consumer, start="snapshot")
    assert consumer.given == [], "the bookmark wins"


async def test_snapshot_of_a_filtered_listener_has_the_rows_of_the_keys_that_it_asked_for(
    front: Front, feed: Feed, publisher: SnapshotPublisher, store: FileBookmarks
) -> None:
    shard = Shard(1, 2)
    mine = [number for number in range(1, 21) if shard.has(f"k{number}".encode())]
    rows = [number for number in mine if number <= 15]
    publisher.cuts = [200]
    consumer = Consumer()
    wanted = EntryFilter(frozenset({"number"}), None, shard)
    await run(front, feed, store, consumer, start="snapshot", wanted=wanted)
    newer = [number for number in mine if number > 15]
    assert 0 < len(rows) < 15
    assert consumer.given == ["begin s1 15", *(f"k{n}" for n in rows), f"end {len(rows)}", *newer]
    place = store.load("l.1-of-2", feed.name)
    assert place is not None
    assert place.sequence_id == 20
    schema = {"key": "\0schema/main/vm/1", "changes": {}, "control": "schema"}
    publisher.take("s2", 15, [schema, *state(15)])
    one = Consumer()
    wanted = EntryFilter(frozenset({"none of it"}), b"k3")
    await run(front, feed, store, one, start="snapshot", wanted=wanted)
    assert one.given == ["begin s2 15", schema["key"], "k3", "end 1"], "nobody knows what a row changed"


async def test_damaged_snapshot_is_void_and_fetched_anew(
    front: Front, feed: Feed, publisher: SnapshotPublisher, store: FileBookmarks
) -> None:
    good, told = publisher.body, []
    publisher.body = good.replace(b'"number": 15', b'"number": 99')

    def on_wait(error: Exception, seconds: float) -> None:
        told.append(type(error).__name__)
        publisher.body = good

    consumer = Consumer()
    await run(front, feed, store, consumer, start="snapshot", on_wait=on_wait)
    assert told == ["SnapshotBroken"]
    assert consumer.given.count("begin s1 15") == 2
    assert consumer.given.count("end 15") == 1
    assert json.loads(consumer.fold.rows()["k15"]) == changes(15)


async def test_consumer_that_fails_in_a_snapshot_gets_it_again(
    front: Front, feed: Feed, store: FileBookmarks
) -> None:
    class Broken(Consumer):
        def on_snapshot(self, part: SnapshotPart) -> None:
            if isinstance(part, SnapshotEnd):
                raise ZeroDivisionError
            super().on_snapshot(part)

    with pytest.raises(ZeroDivisionError):
        await run(front, feed, store, Broken(), start="snapshot")
    assert store.load("l", feed.name) is None
    consumer = Consumer()
    await run(front, feed, store, consumer, start="snapshot")
    assert "end 15" in consumer.given


async def test_what_comes_meanwhile_is_delivered_after_the_snapshot(
    front: Front, feed: Feed, publisher: SnapshotPublisher, store: FileBookmarks
) -> None:
    front.oldest = 1
    consumer = Consumer()
    await run(front, feed, store, consumer)
    front.oldest = 22
    post(feed, 21, 25)
    publisher.take("s2", 24, state(24))

    class Slow(Consumer):
        def on_snapshot(self, part: SnapshotPart) -> None:
            super().on_snapshot(part)
            if isinstance(part, SnapshotBegin):
                post(feed, 26, 30)

    slow = Slow()
    async with Listener(front.url, feed.name, "l", store, on_snapshot=slow.on_snapshot) as listener:
        batches = listener.batches()
        seen: list[int] = []
        while not seen or seen[-1] < 30:
            batch = await anext(batches)
            seen += [change.sequence_id for change in batch.changes]
            await batch.done()
        coming = asyncio.ensure_future(anext(batches))
        await async_wait_until(lambda: front.leases[-1] is None, what="the lease to be given back")
        coming.cancel()
        await asyncio.wait({coming})
    assert seen == list(range(25, 31))


async def test_without_on_snapshot_it_ends_and_says_why(front: Front, feed: Feed, tmp_path: Path) -> None:
    with closing(SqliteBookmarks(tmp_path / "b.db")) as store:
        front.oldest = 1
        await run(front, feed, store, Consumer())
        front.oldest = 22
        post(feed, 21, 25)
        async with Listener(front.url, feed.name, "l", store) as listener:
            with pytest.raises(SequenceNotAvailable):
                await anext(listener.batches())
        async with Listener(front.url, feed.name, "m", store, start="snapshot") as listener:
            with pytest.raises(Usage):
                await anext(listener.batches())
    assert front.leases == []


def listen(front: Front, feed: Feed, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    place = ["--bookmark", f"file:///{folder}/bookmark", "--server", front.url]
    return forks.run(
        [*forks.HEADRACE, "listen", feed.name, *place, "--once", *words],
        capture_output=True, text=True, timeout=120, check=False, cwd=folder,
    )  # fmt: skip


async def listened(front: Front, feed: Feed, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """In a thread: the front answers in this loop meanwhile."""
    return await asyncio.to_thread(listen, front, feed, folder, *words)


async def test_command_line_prints_the_snapshot_and_its_progress(
    front: Front, feed: Feed, tmp_path: Path
) -> None:
    done = await listened(front, feed, tmp_path, "--from", "snapshot", "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("snapshot", line.get("sequence-id")) for line in lines] == [
        "begin", *["row"] * 15, "end", *range(16, 21)
    ]  # fmt: skip
    assert lines[1] == {"snapshot": "row", **state(1)[0]}
    assert lines[16]["rows"] == 15
    told = [json.loads(line) for line in done.stderr.splitlines() if line.startswith('{"hydration"')]
    assert told[-1]["hydration"] == "applied"
    assert told[-1]["rows"] == 15
    assert (await listened(front, feed, tmp_path)).stdout == ""


@pytest.mark.parametrize("ack", ["exit", "line"])
async def test_command_gets_the_snapshot_on_its_stdin(
    front: Front, feed: Feed, tmp_path: Path, ack: str
) -> None:
    script = tmp_path / "take.py"
    script.write_text(
        "import json, os, sys\n"
        "with open(sys.argv[1], 'a') as out:\n"
        "    for line in sys.stdin:\n"
        "        out.write(line); out.flush()\n"
        "        said = json.loads(line)\n"
        "        if os.environ.get('HEADRACE_ACK') and said.get('snapshot', 'end') == 'end':\n"
        "            print('ok', flush=True)\n"
    )
    command = f"{sys.executable} {script} {tmp_path}/taken"
    done = await listened(front, feed, tmp_path, "--from", "snapshot", "--exec", command, "--ack", ack)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in (tmp_path / "taken").read_text().splitlines()]
    assert [line["snapshot"] for line in lines if "snapshot" in line] == ["begin", *["row"] * 15, "end"]
    assert [line["sequence-id"] for line in lines if "snapshot" not in line] == list(range(16, 21))


async def test_command_line_ends_and_names_the_way_on(front: Front, feed: Feed, tmp_path: Path) -> None:
    front.oldest = 1
    assert (await listened(front, feed, tmp_path)).returncode == 0
    front.oldest = 22
    post(feed, 21, 25)
    ended = await listened(front, feed, tmp_path)
    assert ended.returncode == 4
    assert "code: sequence-not-available" in ended.stderr
    assert "--snapshot needed" in ended.stderr
    front.publisher = None
    helpless = await listened(front, feed, tmp_path, "--snapshot", "needed")
    assert helpless.returncode == 4
    assert "no snapshot helps" in helpless.stderr
