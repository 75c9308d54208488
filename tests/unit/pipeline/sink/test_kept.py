"""What a query keeps of its appends beside its checkpoint, and what two tasks with rows for one feed are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.errors import BatchSplit, CheckpointUnfit, FormatTooNew
from headrace.pipeline.checkpoint_folder import Folder
from headrace.pipeline.sink import kept
from headrace.pipeline.sink.kept import Appends
from headrace.pipeline.sink.position import LastAppend


def append(batch: int, first: int = 1, rows: int = 2) -> LastAppend:
    return LastAppend(batch=batch, first_sequence_id=first, rows=rows)


def appends(query: str = "q", agent: str = "job", **feeds: LastAppend) -> Appends:
    return Appends(query=query, agent_id=agent, feeds=feeds)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "metadata").write_text("{}")
    found = kept.folder_of(str(tmp_path), "")
    assert found is not None
    return found


def test_each_feed_keeps_its_newest_append(folder: Folder) -> None:
    assert kept.read(folder) is None
    kept.write(folder, appends(a=append(1), b=append(1)))
    kept.write(folder, appends(b=append(2, 3), c=append(2)))
    found = kept.read(folder)
    assert found == appends(a=append(1), b=append(2, 3), c=append(2))
    assert kept.known_to(found, "q", "job") == {"a": append(1), "b": append(2, 3), "c": append(2)}


@pytest.mark.parametrize("other", [("newer", "job"), ("q", "another")])
def test_what_another_query_or_agent_kept_says_nothing(folder: Folder, other: tuple[str, str]) -> None:
    kept.write(folder, appends(a=append(9)))
    assert kept.known_to(kept.read(folder), *other) == {}
    kept.write(folder, appends(*other, b=append(1)))
    assert kept.read(folder) == appends(*other, b=append(1))


def test_only_a_checkpoint_of_this_disk_is_taken_unasked(tmp_path: Path) -> None:
    assert kept.folder_of("", "") is None
    assert kept.folder_of("s3a://bucket/x", "") is None
    assert (
        kept.folder_of(str(tmp_path), "") is None
    )  # Spark has not made it: it is one of another file system
    asked = kept.folder_of("s3a://bucket/x", f"file://{tmp_path}/own")
    kept.write(asked, appends(a=append(1)))
    assert kept.read(kept.folder_of("", str(tmp_path / "own"))) == appends(a=append(1))
    kept.write(None, appends(a=append(1)))


def test_a_store_that_does_not_answer_is_not_one_without_a_file() -> None:
    with pytest.raises(CheckpointUnfit, match="webhdfs"):
        kept.read(kept.folder_of("", "webhdfs://127.0.0.1:1/x"))


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"readable-from": 9}, FormatTooNew),
        ({"feeds": {"a": {}}}, CheckpointUnfit),
        ({"query": 7}, CheckpointUnfit),
    ],
    ids=["newer", "no batch", "no query"],
)
def test_a_file_that_is_damaged_is_not_passed_over(
    folder: Folder, tmp_path: Path, change: dict[str, object], kind: type[Exception]
) -> None:
    document = json.loads(kept.encode(appends(a=append(1))))
    (tmp_path / kept.NAME).write_text(json.dumps(document | {"new": 1}))
    assert kept.read(folder) == appends(a=append(1))
    (tmp_path / kept.NAME).write_text(json.dumps(document | change))
    with pytest.raises(kind, match=kept.NAME):
        kept.read(folder)


def test_two_tasks_with_rows_for_one_feed_are_a_split_batch() -> None:
    """Also if they had equal rows, so that each found its own in the feed when the batch ran again."""
    assert kept.joined([{"a": append(4)}, {}, {"b": append(4)}]) == {"a": append(4), "b": append(4)}
    with pytest.raises(BatchSplit, match=r"the feed a, entries 1 to 2: two tasks of batch 4"):
        kept.joined([{"a": append(4)}, {"b": append(4), "a": append(4)}])
