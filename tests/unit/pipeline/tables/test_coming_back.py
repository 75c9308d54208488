"""Tables that come back are whole, or are not shown: what a resume or rebuild does where the way is not free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from headrace.capture.control import ddl_entry, schema_entry
from headrace.errors import Unavailable
from headrace.pipeline.tables import batches, captured, carrying, catching_up
from headrace.pipeline.tables.batches import newest_tables
from headrace.pipeline.tables.beginning import stopped_tables
from headrace.pipeline.tables.captured import Batch
from headrace.pipeline.tables.catching_up import CatchingUp, names_of
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.requests import leave_request, waiting_requests
from headrace.pipeline.tables.simple.plan import Control, Run, plan
from headrace.pipeline.tables.simple.state import TableState, stopped
from headrace.pipeline.tables.states import CapturedTable, Reached, Request, Start, StopNote
from headrace.simple.message import Ddl, MessageType
from headrace.wire.schema_documents import SchemaPlace
from tests.unit.pipeline.tables.simple.history import INT, schema_of

NAME = ("shop", "t")
S1 = schema_of({"id": INT})
S2 = schema_of({"id": INT, "a": INT}, version=2)
ALTER = Ddl(MessageType.ALTER, "ALTER TABLE t ADD COLUMN a INT", 1, 1, S2, None)
CONTROLS = [
    Control(60, "ddl", NAME, ddl_entry(ALTER, "shop", "t").value, 0),
    Control(61, "schema", NAME, schema_entry(S2, 1).value, 0),
]
RUNS = [Run(NAME, 20, 50), Run(NAME, 70, 90)]
SPARK: Any = SimpleNamespace(
    conf=SimpleNamespace(get=lambda *a: None, set=lambda *a: None, unset=lambda *a: None)
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path, "f", "i")
    found.keep(reached=Reached(100, ""))
    yield found
    found.close()


def first_schema() -> TableState:
    """The table behind its first schema and rows."""
    controls = [Control(1, "schema", NAME, schema_entry(S1, 1).value, 0)]
    return plan([], controls, [Run(NAME, 2, 9)], feed="f").tables[0]


def halt(ledger: Ledger) -> None:
    """Stop the table behind entry 10."""
    base = first_schema()
    note = StopNote(after=10, state=base, code="value-unfit", reason="odd", hint="", at="now")
    table = CapturedTable(
        identity=1, table=NAME, path="shop.t", state=stopped(base, "odd"), place=10, stopped=note
    )
    ledger.keep(tables=[table])


class Delta:
    """A table's folder as far as its versions go; merges above entry ``fails`` fail."""

    def __init__(self, patch: pytest.MonkeyPatch, version: int | None) -> None:
        self.version = version
        self.merged: list[tuple[int, int]] = []
        self.fails: int | None = None
        for module in (batches, captured, catching_up):
            patch.setattr(module, "newest_version", self._of)
        patch.setattr(carrying, "merge_rows", self._merge)
        patch.setattr(carrying, "make", lambda *a: self._commit())
        patch.setattr(carrying, "evolve", lambda *a: self._commit())
        patch.setattr(carrying, "check", lambda *a: None)
        patch.setattr(CatchingUp, "_batch", self._batch)

    def _of(self, path: Path) -> int | None:
        return self.version if path.name == "shop.t" else None

    def _commit(self) -> None:
        self.version = 0 if self.version is None else self.version + 1

    def _merge(self, spark: object, path: Path, entries: object, step: Any) -> None:
        if self.fails is not None and step.last > self.fails:
            raise Unavailable("the server is away")
        self._commit()
        self.merged.append((step.first, step.last))

    def _batch(self, spark: object, table: object, after: int, last: int) -> tuple[Any, Batch]:
        entries: Any = SimpleNamespace(sparkSession=SPARK, unpersist=lambda: None)
        controls = [one for one in CONTROLS if after < one.sequence_id <= last]
        runs = [one for one in RUNS if after < one.first <= last]
        return entries, Batch(entries, controls, runs, after, last)


def shown(ledger: Ledger) -> list[tuple[int, object]]:
    """The versions that are published next, and the places that they are said to show."""
    return [(one.version, one.stopped_after) for one in newest_tables(ledger)]


def test_a_table_from_before_the_start_is_not_built_from_the_middle(ledger: Ledger) -> None:
    # The feed had entries 50 on at the start; the newest schema stands at 61, the table's first row nobody knows where.
    place = SchemaPlace(database="shop", table="t", version=2, sequence_id=61, lsn="")
    start = Start(source="middle", after=49, oldest=50, at="now")
    ledger.keep(start=start, tables=stopped_tables([(place, S2)], 50, "now"))
    assert ledger.tables[0].started_from == "middle"
    leave_request(ledger.to, Request(NAME, rebuild=True))
    assert not CatchingUp(ledger, {}, 1000).serve(SPARK)
    (table,) = ledger.tables
    assert table.stopped is not None
    assert table.refused is not None
    assert (table.refused.code, table.refused.request) == ("sequence-not-available", "rebuild")
    assert "headrace capture copy" in table.refused.hint
    assert "--archive" not in table.refused.hint  # it has the rows, but nobody knows from where on
    assert (ledger.left, waiting_requests(ledger.to)) == ([], [])


def test_a_rebuild_waits_for_a_copy_that_is_under_way(ledger: Ledger) -> None:
    state = replace(first_schema(), copying=True)
    ledger.keep(tables=[CapturedTable(identity=1, table=NAME, path="shop.t", state=state, place=10)])
    leave_request(ledger.to, Request(NAME, rebuild=True))
    assert not CatchingUp(ledger, {}, 1000).serve(SPARK)
    assert len(waiting_requests(ledger.to)) == 1
    assert ledger.tables[0].refused is None


@pytest.mark.parametrize(("version", "before"), [(5, [(5, 10)]), (None, [])])
def test_a_resume_that_fails_in_the_middle_shows_nothing_of_it(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, version: int | None, before: list[tuple[int, int]]
) -> None:
    halt(ledger)
    delta = Delta(monkeypatch, version)
    delta.fails = 60
    leave_request(ledger.to, Request(NAME))
    coming_back = CatchingUp(ledger, {}, 1000)
    assert shown(ledger) == before
    for _ in range(2):  # it may fail there more than once
        assert not coming_back.serve(SPARK)
        assert len(waiting_requests(ledger.to)) == 1
        assert delta.merged
        assert shown(ledger) == before
    delta.fails = None
    assert coming_back.serve(SPARK)
    (table,) = ledger.tables
    assert (table.stopped, table.state is not None and table.state.stopped) == (None, "")
    assert [one for one, _ in shown(ledger)] == [delta.version]
    assert delta.merged[-1] == (70, 90)


def test_each_part_of_a_resume_is_shown_once_it_is_whole(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    halt(ledger)
    delta = Delta(monkeypatch, 5)
    leave_request(ledger.to, Request(NAME))
    left = [True, True, False]
    assert not CatchingUp(ledger, {}, 45).serve(SPARK, lambda: left.pop(0))
    # It was told to leave off before the second part: the request waits, and goes on from there.
    assert (delta.merged, shown(ledger)) == ([(20, 50)], [(6, 55)])
    delta.merged = []
    assert CatchingUp(ledger, {}, 45).serve(SPARK)
    assert (delta.merged, waiting_requests(ledger.to)) == ([(70, 90)], [])


def test_a_job_that_is_to_stop_begins_no_request(ledger: Ledger) -> None:
    halt(ledger)
    leave_request(ledger.to, Request(NAME, rebuild=True))
    assert not CatchingUp(ledger, {}, 1000).serve(SPARK, lambda: False)
    assert (len(waiting_requests(ledger.to)), ledger.tables[0].refused, ledger.left) == (1, None, [])


def test_a_table_has_the_names_that_its_statements_give_it() -> None:
    def renamed(place: int, old: str, new: str) -> Control:
        schema = schema_of({"id": INT}, name=("shop", new))
        message = Ddl(MessageType.RENAME, f"RENAME TABLE {old} TO {new}", 1, 1, schema, None)
        return Control(place, "ddl", ("shop", old), ddl_entry(message, "shop", old).value, 0)

    controls = [renamed(1, "x", "y"), *CONTROLS, renamed(62, "t", "u"), renamed(63, "u", "v")]
    unread = Control(64, "ddl", ("shop", "v"), b"{", 0)
    assert names_of(NAME, [*controls, unread]) == {("shop", name) for name in "tuv"}
    assert names_of(NAME, CONTROLS) == {NAME}
