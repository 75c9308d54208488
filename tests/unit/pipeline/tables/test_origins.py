"""What tables began with, and that no batch begins beyond what the tables have."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.errors import CheckpointAhead
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.origins import begin_with, check_place, origin_of, with_origins
from headrace.pipeline.tables.simple.state import TableState, stopped
from headrace.pipeline.tables.states import CapturedTable, Reached, Start, StopNote

ARCHIVED = Start(source="archive", after=0, oldest=50, at="now")
STATE = TableState(identity=60, name=("shop", "t"), made=True)
TABLE = CapturedTable(identity=60, table=("shop", "t"), path="shop.t", state=STATE, place=99)
NOTE = StopNote(after=40, state=None, code="table-unseen", reason="r", hint="h", at="now")
UNSEEN = replace(TABLE, state=stopped(STATE, "r"), stopped=NOTE)


def test_a_batch_goes_on_where_the_tables_are(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "f", "i")
    check_place(ledger, 63)  # a feed may begin anywhere
    begin_with(ledger, 63)
    assert ledger.start is not None
    assert (ledger.start.source, ledger.start.after) == ("feed", 62)
    ledger.begin(70, [])
    check_place(ledger, 63)
    with pytest.raises(
        CheckpointAhead, match=r"begins with entry 64 of f, the tables in .* have it up to 62"
    ):
        check_place(ledger, 64)
    ledger.keep(merged=Reached(70, "0.1.70"))
    for first in (1, 63, 71):
        check_place(ledger, first)
        begin_with(ledger, first)
    assert ledger.start.after == 62
    with pytest.raises(CheckpointAhead):
        check_place(ledger, 72)
    ledger.keep(reached=Reached(80, "0.1.80"))
    check_place(ledger, 81)
    with pytest.raises(CheckpointAhead):
        check_place(ledger, 82)
    ledger.close()


def test_what_a_table_began_with_is_told_by_its_first_entry() -> None:
    assert [origin_of(first, ARCHIVED) for first in (1, 49, 50)] == ["archive", "archive", "feed"]
    middle = Start(source="middle", after=49, oldest=50, at="now")
    assert [origin_of(first, middle) for first in (49, 50)] == ["middle", "feed"]
    assert not origin_of(1, None)


def test_tables_say_what_they_began_with() -> None:
    def origin(table: CapturedTable, before: list[CapturedTable], *copied: tuple[str, ...]) -> str:
        (found,) = with_origins([table], before, copied, [], ARCHIVED)
        return found.started_from

    assert origin(TABLE, []) == "feed"
    assert origin(replace(TABLE, identity=7), []) == "archive"
    assert origin(replace(TABLE, started_from="copy"), [replace(TABLE, started_from="copy")]) == "copy"
    assert origin(TABLE, [UNSEEN], ("shop", "t")) == "copy"
    assert origin(replace(TABLE, state=replace(STATE, copying=True)), [UNSEEN]) == "copy"
    assert origin(TABLE, [UNSEEN]) == "feed"  # TRUNCATE: nothing from before is missing


def test_a_table_of_which_nothing_comes_may_be_gone_at_its_source() -> None:
    def note(seen: list[tuple[str, ...]]) -> StopNote:
        (found,) = with_origins([UNSEEN], [UNSEEN], [], seen, ARCHIVED)
        assert found.stopped is not None
        return found.stopped

    quiet, met = note([("shop", "other")]), note([("shop", "t")])
    assert (quiet.code, quiet.counts, quiet.holds) == ("table-unseen", True, False)
    assert (met.code, met.counts, met.holds) == ("sequence-not-available", True, False)
