"""Batches are merged into Delta tables: what is read for it, and what becomes of one that was cut and comes again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from headrace.pipeline.tables import carrying
from headrace.pipeline.tables.captured import CapturedTables, read_batch, read_runs
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.simple.plan import Run
from headrace.pipeline.tables.simple.state import resumed
from headrace.pipeline.tables.simple.steps import Evolve
from tests.integration.pipeline.tables.delta_tables import DeltaTables
from tests.scale import sized
from tests.unit.pipeline.tables.simple.history import DATE, INT, MOMENT, UNSIGNED, WORD, schema_of


@pytest.fixture
def tables(spark: SparkSession, tmp_path: Path) -> Iterator[DeltaTables]:
    """The tables of an empty feed."""
    made = DeltaTables(spark, tmp_path / "tables")
    yield made
    made.ledger.close()


class Killed(BaseException):
    """The process is gone."""


class Dying(CapturedTables):
    """Tables whose process dies when a change of columns is done in Delta and not yet noted."""

    def _evolve(self, spark: SparkSession, path: Path, work: Any, step: Any) -> None:
        note = work.note

        def noted(**changes: Any) -> None:
            if "place" in changes and changes.get("begun", work) is None:
                raise Killed
            note(**changes)

        work.note = noted
        super()._evolve(spark, path, work, step)


class DyingSession:
    """A session that dies before its statement ``left``."""

    def __init__(self, spark: SparkSession, left: int) -> None:
        self._spark = spark
        self._left = left

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def sql(self, statement: str) -> Any:
        self._left -= 1
        if not self._left:
            raise Killed
        return self._spark.sql(statement)


def test_rows_are_found_between_thousands_of_statements(spark: SparkSession) -> None:
    rows = [(place, None, ["shop", "t" if place % 8 else "u"]) for place in range(2, 12_000, 4)]
    frame = spark.createDataFrame(rows, "sequence_id BIGINT, control STRING, table ARRAY<STRING>")
    runs = read_runs(frame, range(4, 12_004, 4))
    assert len(runs) == 3000
    assert runs[:2] == [Run(("shop", "t"), 2, 2), Run(("shop", "t"), 6, 6)]
    assert runs[-1].first == runs[-1].last == 11_998
    assert read_runs(frame, ()) == [Run(("shop", "t"), 2, 11_998)]


def test_files_of_other_keys_are_not_read(tables: DeltaTables) -> None:
    schema = schema_of({"k": WORD, "id": UNSIGNED, "a": INT}, key=("k", "id"))
    feed = tables.feed
    feed.schema(schema)
    for number in range(1, 10):
        feed.row(schema, {"k": "x", "id": number, "a": 0})
    tables.take()
    low = {path: path.read_bytes() for path in tables.folder().glob("*.parquet")}
    for number in range(100, 109):
        feed.row(schema, {"k": "x", "id": number, "a": 0})
    tables.take()
    for path in low:
        path.write_bytes(b"this is no Parquet")
        (tables.folder() / f".{path.name}.crc").unlink()
    feed.row(schema, {"k": "x", "id": 103, "a": 1}, {"k": "x", "id": 103, "a": 0})
    feed.row(schema, None, {"k": "x", "id": 104, "a": 0})
    feed.row(schema, {"k": "x", "id": 2**63, "a": 9})
    tables.take()
    for path, data in low.items():
        path.write_bytes(data)
    wanted = dict.fromkeys([*range(1, 10), *range(100, 109)], 0) | {103: 1, 2**63: 9}
    del wanted[104]
    assert {int(row["id"]): row["a"] for row in tables.rows()} == wanted


def test_columns_changed_anew_at_the_place_of_the_last_merge(tables: DeltaTables) -> None:
    was, now = schema_of({"id": INT, "a": INT}), schema_of({"id": INT, "a": WORD}, version=2)
    tables.feed.schema(was)
    tables.feed.row(was, {"id": 1, "a": 5})
    tables.feed.schema(now)
    tables.take()  # the merge of this batch stands for the entry 3
    tables.feed.row(now, {"id": 2, "a": "six"})
    with pytest.raises(Killed):
        tables.take(tables=Dying(tables.ledger))
    (begun,) = [one.begun for one in tables.ledger.tables]
    assert begun is not None
    assert begun.place == 3
    anew = tables.version()
    assert tables.rows() == [{"id": 1, "a": "5"}]
    tables.take()
    assert tables.version() == anew + 1  # the rows; the columns were done
    assert tables.rows() == [{"id": 1, "a": "5"}, {"id": 2, "a": "six"}]


def test_a_table_that_stopped_at_the_beginning_of_a_batch_goes_on_there(tables: DeltaTables) -> None:
    was, now = schema_of({"id": INT, "a": WORD}), schema_of({"id": INT, "a": INT}, version=2)
    tables.feed.schema(was)
    tables.feed.row(was, {"id": 1, "a": "no number"})
    tables.feed.row(was, {"id": 2, "a": "6"})
    tables.feed.schema(now)
    tables.take()
    tables.feed.row(now, {"id": 3, "a": 7})
    tables.take()
    (table,) = tables.ledger.tables
    note = table.stopped
    assert note is not None
    assert note.state is not None
    assert note.after == 4
    tables.spark.sql(f"DELETE FROM delta.`{tables.folder()}` WHERE id = 1")
    again = replace(table, state=resumed(note.state), stopped=None)
    batch = read_batch(tables.entries(5, 5), 4, 5)
    outcome = CapturedTables(tables.ledger).apply(batch, [again], tables.ledger.update)
    assert [one.stopped for one in outcome.tables] == [None]
    assert tables.rows() == [{"id": 2, "a": 6}, {"id": 3, "a": 7}]


def evolution(tables: DeltaTables, spark: Any) -> Evolve:
    """Begin a change of columns that takes several commits, and die before the last one."""
    was = schema_of({"id": INT, "a": INT, "b": INT})
    now = schema_of({"id": INT, "b": INT, "a": INT, "c": INT}, version=2)
    tables.feed.schema(was)
    tables.feed.row(was, {"id": 1, "a": 5, "b": 6})
    tables.take()
    tables.feed.alter("RENAME COLUMN a TO b, RENAME COLUMN b TO a, ADD COLUMN c INT", now)
    found: list[Evolve] = []
    with pytest.MonkeyPatch.context() as patch:

        def evolve(session: SparkSession, path: Path, step: Evolve, since: int) -> None:
            found.append(step)
            evolved(DyingSession(session, 4), path, step, since)  # type: ignore[arg-type]  # it is one to those who ask

        evolved = carrying.evolve
        patch.setattr(carrying, "evolve", evolve)
        with pytest.raises(Killed):
            tables.take()
    return found[0]


DATED = schema_of({"id": INT, "a": INT, "day": DATE})
TIMED = schema_of({"id": INT, "a": WORD, "day": MOMENT}, version=2)
"""Delta takes a time without a zone into a table only once that was said to it."""


def test_rows_are_written_anew_with_times_that_the_table_did_not_have(
    tables: DeltaTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies before Delta is told of such times, then before the rows are written."""
    tables.feed.schema(DATED)
    tables.feed.row(DATED, {"id": 1, "a": 5, "day": date(2026, 2, 28)})
    tables.take()
    tables.feed.alter("MODIFY a VARCHAR(20), MODIFY day DATETIME", TIMED)
    evolved = carrying.evolve

    def no_statement(session: SparkSession, path: Path, step: Evolve, since: int) -> None:
        assert not step.in_place
        evolved(DyingSession(session, 1), path, step, since)  # type: ignore[arg-type]  # it is one to those who ask

    def no_rows(*given: Any) -> None:
        raise Killed

    for name, deadly in (("evolve", no_statement), ("_write_anew", no_rows)):
        with monkeypatch.context() as patch:
            patch.setattr(carrying, name, deadly)
            with pytest.raises(Killed):
                tables.take()
        assert tables.rows() == [{"id": 1, "a": 5, "day": date(2026, 2, 28)}], name
    for _ in range(2):
        tables.take()
        assert tables.stopped() == []
        assert tables.rows() == [{"id": 1, "a": "5", "day": datetime.fromisoformat("2026-02-28T00:00:00")}]


def test_a_copy_brings_times_that_the_table_did_not_have(tables: DeltaTables) -> None:
    tables.feed.schema(DATED)
    tables.feed.row(DATED, {"id": 1, "a": 5, "day": date(2026, 2, 28)})
    tables.feed.stopped("a statement that can't be followed")
    tables.take()
    tables.feed.schema(TIMED)
    tables.feed.copy(TIMED)
    at = datetime.fromisoformat("2026-02-28T01:02:03")
    tables.feed.row(TIMED, {"id": 2, "a": "x", "day": at})
    tables.feed.copy(TIMED, ends=True)
    tables.take()
    assert tables.stopped() == []
    assert tables.rows() == [{"id": 2, "a": "x", "day": at}]


def test_a_change_of_columns_that_was_cut_goes_on_unless_somebody_else_changed_columns(
    tables: DeltaTables, spark: SparkSession, tmp_path: Path
) -> None:
    step = evolution(tables, spark)
    assert len(step.renames) == 3  # by way of a name that no column has
    version = tables.version()
    written, altered = (tables.copied(tmp_path / name) for name in ("written", "altered"))

    spark.sql(f"UPDATE delta.`{written.folder()}` SET id = id")  # what others may do to a table's files
    assert written.version() == version + 1
    written.take()
    written.ledger.close()
    assert written.stopped() == []
    assert written.rows() == [{"id": 1, "b": 5, "a": 6, "c": None}]

    spark.sql(f"ALTER TABLE delta.`{altered.folder()}` ADD COLUMNS (mine INT)")
    altered.take()
    altered.ledger.close()
    (reason,) = altered.stopped()
    assert "ADD COLUMNS, came in the middle of a change of its columns" in reason


WAYS: Final[dict[str, list[int]]] = sized({"shorter": [4, 0]}, soak={"shorter": [4, 0], "longer": [0]})
"""Where batches end when a cut one comes again (0: with all there is). What follows the shorter one is a longer one, too."""


def test_a_batch_that_was_cut_comes_again_with_another_end(tables: DeltaTables, tmp_path: Path) -> None:
    """The checkpoint is lost, so nothing says where the batch ended."""
    was, now = (
        schema_of({"id": INT, "a": INT, "b": INT}),
        schema_of({"id": INT, "b": INT, "a": INT}, version=2),
    )
    last = schema_of({"id": INT, "b": INT, "a": INT, "c": INT}, version=3)
    tables.feed.schema(was)
    tables.feed.row(was, {"id": 1, "a": 5, "b": 6})
    tables.take()
    tables.feed.row(was, {"id": 2, "a": 7, "b": 8})
    tables.feed.row(was, {"id": 3, "a": 9, "b": 0})
    tables.feed.alter("RENAME COLUMN a TO b, RENAME COLUMN b TO a", now)  # 5 and 6
    reached = tables.ledger.reached
    taken = len(tables.feed.entries)
    assert taken == 6

    class Unkept(Ledger):
        """A ledger that does not live to see the end of the batch."""

        def keep(self, **members: Any) -> None:
            if "reached" in members:
                raise Killed
            super().keep(**members)

    tables.ledger.close()
    tables.ledger = Unkept(tables.ledger.to, "shop", "incarnation")
    with pytest.raises(Killed):
        tables.take()
    tables.feed.alter("ADD COLUMN c INT", last)
    tables.feed.row(last, {"id": 4, "b": 1, "a": 2, "c": 3})
    whole = len(tables.feed.entries)
    for way, ends in WAYS.items():
        again = tables.copied(tmp_path / way)
        assert again.ledger.reached == reached
        for end in ends:
            again.take(end or whole)
        again.ledger.close()
        assert again.stopped() == [], way
        assert again.rows() == [
            {"id": 1, "b": 5, "a": 6, "c": None},
            {"id": 2, "b": 7, "a": 8, "c": None},
            {"id": 3, "b": 9, "a": 0, "c": None},
            {"id": 4, "b": 1, "a": 2, "c": 3},
        ], way
