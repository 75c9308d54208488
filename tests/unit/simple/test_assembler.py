"""The assembler, told by transcripts: ``tests/scenarios/simple``."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.errors import SimpleBacklogFull, SimpleSchemaMissing
from headrace.simple.assembler import Assembler, Bounds
from headrace.simple.cache import SchemaCache
from headrace.simple.delivery import Checkpoint, Progress, SchemaNeeded, Statement, Transaction
from headrace.simple.message import Ddl, MessageType, Watermark
from tests.simple_tables import insert, table
from tests.simple_transcripts import check

FOLDER = Path(__file__).parents[2] / "scenarios" / "simple"
T = table("shop.t", "id", key=("id",))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    check(path)


def test_a_transcript_can_fail(tmp_path: Path) -> None:
    path = tmp_path / "wrong.txt"
    path.write_text("partitions 1\n> 0 watermark 5\n< progress 6 from 2\n")
    with pytest.raises(AssertionError, match=r"wrong\.txt:3: progress 5 from 2"):
        check(path)


def test_a_statement_is_not_executed_again_after_a_restart_behind_it() -> None:
    first, second = (Ddl(MessageType.RENAME, sql, 5, 1, T) for sql in ("one", "two"))
    before = Assembler(1)
    done = [one for message in (first, second, Watermark(5, 1)) for one in before.take(0, message, size=1)]
    assert [type(one) for one in done] == [Progress, Statement, Progress, Statement, Progress]
    between = done[2]
    assert isinstance(between, Progress)
    stored = msgspec.json.decode(msgspec.json.encode(between.checkpoint), type=Checkpoint)
    after = Assembler(1, stored)
    again = [one for message in (first, second, Watermark(5, 1)) for one in after.take(0, message, size=1)]
    assert [one.message.sql for one in again if isinstance(one, Statement)] == ["two"]


def test_schemas_that_were_kept_need_not_come_again() -> None:
    cache = SchemaCache()
    cache.add(T)
    machine = Assembler(1, cache=cache)
    assert machine.take(0, insert(T, 3, id="1"), size=1) == []
    (transaction, _) = machine.take(0, Watermark(3, 1), size=1)
    assert isinstance(transaction, Transaction)
    assert transaction.rows[0].schema == T


def test_without_positions_there_is_none_to_resume_at() -> None:
    (progress,) = Assembler(2).take(0, Watermark(3, 1), size=1) + Assembler(1).take(
        0, Watermark(3, 1), size=1
    )
    assert progress == Progress(Checkpoint(3), (None,))


def test_a_needed_schema_is_named_by_its_key() -> None:
    (needed,) = Assembler(1).take(0, insert(T, 3, id="1"), size=1)
    assert isinstance(needed, SchemaNeeded)
    assert needed.key == ("shop", "t", 1)


def test_what_waits_too_long_is_named_in_members_too() -> None:
    machine = Assembler(2, bounds=Bounds(rows_max=1))
    machine.take(0, insert(T, 3, id="1"), size=1)
    with pytest.raises(SimpleSchemaMissing) as missing:
        machine.take(0, insert(T, 3, id="2"), size=1)
    assert missing.value.members == {"database": "shop", "table": "t", "version": 1}
    machine.supply(T)
    machine.take(0, Watermark(2, 1), size=1)
    with pytest.raises(SimpleBacklogFull) as full:
        machine.take(0, insert(T, 3, id="2"), size=1)
    assert full.value.members == {"partition": 1, "commit-ts": 0}
    assert machine.rows == 1


@pytest.mark.parametrize("partition", [-1, 2])
def test_a_partition_that_the_topic_does_not_have_is_named(partition: int) -> None:
    with pytest.raises(IndexError, match=rf"no partition {partition}: the topic has 2"):
        Assembler(2).take(partition, Watermark(5, 1), size=1)


def test_a_topic_has_a_partition() -> None:
    with pytest.raises(ValueError, match="at least, not 0"):
        Assembler(0)
