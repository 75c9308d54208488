"""What the ledger keeps of captured tables, where their folders are, and what operators ask for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.errors import InvalidRequest
from headrace.pipeline.tables.holding import listener_of, place_of
from headrace.pipeline.tables.ledger import (
    FOLDER_BYTES_MAX,
    Ledger,
    PublishedFile,
    folder_of,
    free_folder,
    read_tables_file,
)
from headrace.pipeline.tables.requests import forget_request, leave_request, waiting_requests
from headrace.pipeline.tables.schemas import table_name
from headrace.pipeline.tables.simple.state import TableState
from headrace.pipeline.tables.states import Begun, CapturedTable, LeftFolder, Reached, Request, StopNote

STATE = TableState(identity=3, name=("shop", "t"), made=True)
NOTE = StopNote(after=5, state=STATE, code="value-unfit", reason="r", hint="h", at="2026-01-01T00:00:00Z")
TABLE = CapturedTable(
    identity=3, table=("shop", "t"), path="shop.t", state=STATE, place=7, stopped=NOTE, begun=Begun(6, 1)
)
PUBLISHED = PublishedFile(
    feed="f", incarnation="i", sequence_id=9, lsn="0.1.9", published_at="2026-01-01T00:00:00.000Z", tables=[]
)


def test_captured_tables_are_found_again_and_older_programs_refuse_them(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "f", "i")
    assert (ledger.reached, ledger.tables, ledger.left, ledger.publishes) == (None, [], [], [])
    ledger.update(TABLE)
    ledger.keep(reached=Reached(8, "0.1.8"), left=[LeftFolder("x", "2026-01-01T00:00:00.000Z")])
    ledger.close()
    again = Ledger(tmp_path, "f", "i")
    assert (again.tables, again.reached) == ([TABLE], Reached(8, "0.1.8"))
    assert [one.path for one in again.left] == ["x"]
    again.close()
    document = json.loads((tmp_path / "_headrace" / "tables.json").read_text())
    assert document["readable-from"] == 3


def test_retention_is_held_at_the_first_stop(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "f", "i")
    assert place_of(ledger) is None
    ledger.publish(PUBLISHED)
    place = place_of(ledger)
    assert place is not None
    assert (place.sequence_id, place.lsn) == (9, "0.1.9")
    ledger.update(TABLE)
    place = place_of(ledger)
    assert place is not None
    assert (place.sequence_id, place.lsn) == (5, "")
    later = replace(TABLE, identity=TABLE.identity + 1, stopped=replace(NOTE, after=7))
    ledger.keep(tables=[TABLE, later])
    place = place_of(ledger)
    assert place is not None
    assert place.sequence_id == 5, "the first of two stops counts"
    ledger.keep(tables=[TABLE])
    for code in ("sequence-not-available", "table-forgotten", "table-unseen"):
        ledger.update(
            replace(TABLE, stopped=replace(NOTE, code=code))
        )  # only a copy helps: nothing is to be kept for it
        place = place_of(ledger)
        assert place is not None
        assert place.sequence_id == 9
    ledger.close()


def test_two_folders_hold_retention_under_two_names(tmp_path: Path) -> None:
    path = tmp_path / "tables"
    ledger = Ledger(path, "f", "i")
    first = listener_of(ledger)
    ledger.close()
    again = Ledger(path, "f", "i")
    assert listener_of(again) == first
    again.close()
    shutil.move(path, tmp_path / "elsewhere")
    other = Ledger(path, "f", "i")  # another machine has this path, too
    assert listener_of(other) != first
    other.close()


def test_a_folder_is_one_tables_for_ever() -> None:
    name = ("shop", "t")
    taken = {folder_of(name)}
    second = free_folder(name, 17, taken)
    assert second == "shop.t~v17"
    assert free_folder(name, 17, taken | {second}) == "shop.t~v17-2"
    long = ("d" * 300, "t")
    assert len(free_folder(long, 17, {folder_of(long)})) <= FOLDER_BYTES_MAX
    assert free_folder(("shop", "u"), 17, taken) == "shop.u"


def test_requests_wait_for_the_job(tmp_path: Path) -> None:
    assert read_tables_file(tmp_path) is None
    for rebuild in (False, True):
        leave_request(tmp_path, Request(("shop", "t"), rebuild))
    assert waiting_requests(tmp_path) == [Request(("shop", "t"), rebuild=True)]
    forget_request(tmp_path, Request(("shop", "t"), rebuild=False))  # another one took its place meanwhile
    assert [one.word for one in waiting_requests(tmp_path)] == ["rebuild"]
    forget_request(tmp_path, waiting_requests(tmp_path)[0])
    assert waiting_requests(tmp_path) == []


def test_a_request_that_nobody_can_read_is_moved_aside(tmp_path: Path) -> None:
    leave_request(tmp_path, Request(("shop", "t"), forget=True))
    folder = tmp_path / "_headrace" / "requests"
    (folder / "x.json").write_bytes(b"\xff{")
    assert [one.word for one in waiting_requests(tmp_path)] == ["forget"]
    assert (folder / "x.json").exists()
    assert [one.word for one in waiting_requests(tmp_path, aside=True)] == ["forget"]
    assert [path.name for path in folder.glob("x*")] == ["x.json.unreadable"]


def test_tables_are_named_by_words_or_parts() -> None:
    assert table_name("shop.a.b") == ("shop", "a.b")
    assert table_name('["a.b","c"]') == ("a.b", "c")
    assert table_name("") == ()
    with pytest.raises(InvalidRequest, match="names no table"):
        table_name('["a", 1]')
