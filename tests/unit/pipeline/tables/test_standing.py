"""How tables stand, told without a server, and which tables can't be begun in the middle of a feed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from headrace.cli.pipeline_status import lines_of
from headrace.errors import NothingPublished, StaleTable, TableNotPublished
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables.batches import newest_tables
from headrace.pipeline.tables.beginning import stopped_tables
from headrace.pipeline.tables.ledger import Ledger, PublishedFile, PublishedTable
from headrace.pipeline.tables.reader import published_table
from headrace.pipeline.tables.requests import leave_request
from headrace.pipeline.tables.schemas import table_name
from headrace.pipeline.tables.simple.state import TableState
from headrace.pipeline.tables.standing import read_standing
from headrace.pipeline.tables.states import CapturedTable, Refusal, Request, Start, StopNote
from headrace.wire.schema_documents import SchemaPlace

NOWHERE = Endpoint("http://127.0.0.1:1", retry_s=0.0)
STATE = TableState(identity=2, name=("shop", "t"), made=True)
NOTE = StopNote(
    after=3, state=STATE, code="value-unfit", reason="it is odd", hint="Mend it.", at="now", commit_ts=5
)
MOMENT = PublishedFile(
    feed="shop",
    incarnation="i",
    sequence_id=9,
    lsn="0687f0b7e9dc0000.0000000001.0000000009",
    published_at="2026-11-21T03:37:56.335Z",
    tables=[PublishedTable(["shop", "t"], "shop.t", 4, 3), PublishedTable(["shop", "u"], "shop.u", 2)],
    commit_ts=77,
)


def test_what_is_stopped_is_told_with_reason_and_next_command(tmp_path: Path) -> None:
    with pytest.raises(NothingPublished):
        read_standing(tmp_path, NOWHERE)
    ledger = Ledger(tmp_path, "shop", "i")
    table = CapturedTable(identity=2, table=("shop", "t"), path="shop.t", state=STATE, place=3, stopped=NOTE)
    ledger.update(table)
    copying = TableState(identity=5, name=("shop", "new"), made=True, copying=True)
    ledger.update(CapturedTable(identity=5, table=("shop", "new"), path="shop.new", state=copying, place=9))
    for path in ("shop.t", "shop.new"):
        (tmp_path / path / "_delta_log").mkdir(parents=True)
        (tmp_path / path / "_delta_log" / f"{4:020}.json").touch()
    assert newest_tables(ledger) == [PublishedTable(["shop", "t"], "shop.t", 4, 3)]
    ledger.publish(MOMENT)
    ledger.close()
    standing = read_standing(tmp_path, NOWHERE)
    assert not standing.in_order
    assert (standing.commit_ts, standing.lag_entries, standing.head_sequence_id) == (77, None, None)
    assert standing.server_error
    new, stopped, running = standing.tables
    assert (new.state, new.version) == ("copying", None)
    assert (stopped.state, stopped.sequence_id, stopped.version, stopped.commit_ts) == ("stopped", 3, 4, 5)
    assert (running.state, running.sequence_id, running.version) == ("running", 9, 2)
    shown = "\n".join(lines_of(standing))
    assert "shop.t: STOPPED after sequence id 3 (value-unfit): it is odd" in shown
    assert f"then: headrace pipeline tables resume shop.t --to {tmp_path}" in shown
    again = Ledger(tmp_path, "shop", "i")
    note = msgspec.structs.replace(NOTE, code="table-stopped")
    again.update(msgspec.structs.replace(table, stopped=note))
    again.close()
    assert read_standing(tmp_path, NOWHERE).tables[1].next == "headrace capture copy shop.t"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (("shop", "big orders"), "value-unfit"),
        (("shop", "a.b"), "value-unfit"),
        (("sh.op", "it's $HOME; #1"), "value-unfit"),
        (("-shop", "t"), "value-unfit"),
        (("[shop", "t"), "value-unfit"),
        (("shop", "big; orders.x"), "table-stopped"),
    ],
)
def test_the_next_command_names_the_table_to_a_shell(
    tmp_path: Path, name: tuple[str, str], code: str
) -> None:
    to = tmp_path / "my tables"
    ledger = Ledger(to, "shop", "i")
    note = msgspec.structs.replace(NOTE, code=code)
    ledger.update(CapturedTable(identity=2, table=name, path="x", state=STATE, place=3, stopped=note))
    ledger.publish(msgspec.structs.replace(MOMENT, tables=[]))
    ledger.close()
    command = read_standing(to, NOWHERE).tables[0].next
    assert command is not None
    words = subprocess.check_output(["sh", "-c", f"headrace() {{ printf '%s\\0' \"$@\"; }}; {command}"])
    *verb, last = words.decode().split("\0")[:-1]
    if code == "table-stopped":
        assert (verb, tuple(last.split(".", 1))) == (["capture", "copy"], name)
    else:
        *verb, named, option = verb
        assert (verb, option, last) == (["pipeline", "tables", "resume"], "--to", str(to))
        assert table_name(named) == name
        assert not named.startswith("-")


def test_what_was_asked_and_refused_is_told(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "shop", "i")
    refused = Refusal(
        request="rebuild", code="query-failed", reason="no room", hint="Make room.", at="yesterday"
    )
    notes = {"stopped": NOTE} | {
        code.removeprefix("table-"): msgspec.structs.replace(NOTE, code=code, state=None)
        for code in ("table-unseen", "table-forgotten")
    }
    for place, (state, note) in enumerate(notes.items()):
        name = ("shop", state)
        ledger.update(
            CapturedTable(
                identity=place, table=name, path=f"shop.{state}", state=STATE, stopped=note, refused=refused
            )
        )
    ledger.publish(msgspec.structs.replace(MOMENT, tables=[]))
    ledger.keep(start=Start(source="middle", after=3, oldest=4, at="now"))
    ledger.close()
    leave_request(tmp_path, Request(("shop", "stopped")))
    (tmp_path / "_headrace" / "requests" / "odd.json").write_text("{")
    standing = read_standing(tmp_path, NOWHERE)
    assert {one.state: one.request for one in standing.tables} == {
        "forgotten": None, "stopped": "resume", "unseen": None,
    }  # fmt: skip
    assert (tmp_path / "_headrace" / "requests" / "odd.json").exists()  # who looks on moves nothing
    assert standing.start is not None
    assert standing.start.source == "middle"
    shown = "\n".join(lines_of(standing))
    assert "rebuild was refused at yesterday (query-failed): no room" in shown
    assert "a request waits for the job: resume" in shown
    assert "shop.forgotten: let go" in shown
    assert "shop.unseen: not there" in shown
    answered = msgspec.structs.replace(standing, server_error=None)
    assert not answered.in_order
    for state, in_order in (("stopped", False), ("unseen", False), ("forgotten", True)):
        alone = [one for one in answered.tables if one.state == state]
        assert msgspec.structs.replace(answered, tables=alone).in_order == in_order


def test_stopped_tables_are_read_by_who_accepts_that() -> None:
    with pytest.raises(StaleTable, match="after sequence id 3; the moment is 9"):
        published_table(MOMENT, ("shop", "t"))
    assert published_table(MOMENT, ("shop", "t"), stopped=True).version == 4
    with pytest.raises(
        TableNotPublished, match=r"no table shop\.v is published; there are: shop\.t, shop\.u"
    ):
        published_table(MOMENT, ("shop", "v"))


def test_tables_whose_start_may_be_gone_are_stopped_with_nothing_in_them() -> None:
    places = [
        SchemaPlace(database="shop", table=name, version=1, sequence_id=number, lsn="0.1.1")
        for name, number in (("b", 7), ("a", 3))
    ]
    found = stopped_tables([(place, None) for place in places], 5, "now")
    assert [(one.identity, one.table, one.path, one.place) for one in found] == [
        (3, ("shop", "a"), "shop.a", 4),
        (7, ("shop", "b"), "shop.b", 4),
    ]
    for one in found:
        assert one.state is not None
        assert one.state.stopped
        assert not one.state.made
        assert one.stopped is not None
        assert one.stopped.after == 4
