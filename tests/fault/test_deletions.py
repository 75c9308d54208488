"""What docs/reference/compatibility.md says may be deleted from a data folder, and what may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import JournalCorrupt, JournalLoss, SequenceNotAvailable
from headrace.log.files.store import FileStore
from headrace.log.history import frames_of_range
from headrace.log.log import Log
from headrace.log.metadata.sqlite import METADATA_NAME
from tests.bench import append
from tests.fault.journals import opened, segments
from tests.stores import fill

ROOT = Path(__file__).parents[2]


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
