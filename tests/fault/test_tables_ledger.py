"""The ledger's journal: each change is durable by itself, whatever write fails, and a state written anew holds them all."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.errors import LedgerCorrupt
from headrace.pipeline.tables import ledger as ledger_module
from headrace.pipeline.tables.files import Change, changes_in, line_of, read_state
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema
from headrace.pipeline.tables.simple.state import TableState
from headrace.pipeline.tables.states import CapturedTable, LeftFolder, Reached, Start, StopNote
from headrace.testing.disk import Fault, FaultyDisk, PowerLossDisk, Step

PLACED = PlacedSchema(3, TableSchema("main", "t", 1, (Column("id", "int64", nullable=False),), ("id",)))
START = Start(source="feed", after=0, oldest=1, at="2026-01-01T00:00:00Z")
NOTE = StopNote(after=5, state=None, code="value-unfit", reason="r", hint="h", at="2026-01-01T00:00:00Z")


def table(identity: int, place: int = 0) -> CapturedTable:
    state = TableState(identity=identity, name=("shop", f"t{identity}"), made=True)
    return CapturedTable(
        identity=identity, table=state.name, path=f"shop.t{identity}", state=state, place=place
    )


def steps(ledger: Ledger) -> list[str]:
    """Change a ledger in every way; returns what it says before and after each."""
    seen = [told(ledger)]
    changes: tuple[Callable[[], None], ...] = (
        lambda: ledger.keep(start=START),
        lambda: ledger.keep(merged=Reached(5, "0.1.5")),
        lambda: ledger.begin(10, [PLACED]),
        lambda: ledger.update(table(1, 4)),
        lambda: ledger.keep(reached=Reached(10, "0.1.10", 77), tables=[table(1, 10), table(2, 10)]),
        lambda: ledger.keep(publishes=["a"], cleaned={"x": "1", "y": "2"}),
        lambda: ledger.update(replace(table(2, 12), stopped=NOTE)),
        lambda: ledger.keep(
            reached=Reached(20, "0.1.20"),
            tables=[replace(table(2, 12), stopped=NOTE)],
            left=[LeftFolder("shop.t1", "z")],
        ),
        lambda: ledger.keep(cleaned={"y": "2"}, seen={"x": 40, "y": 7}),
        lambda: ledger.keep(seen={"x": 81}),
    )
    for change in changes:
        change()
        seen.append(told(ledger))
    return seen


def told(ledger: Ledger) -> str:
    """All that a ledger knows."""
    found = (ledger.start, ledger.begun, ledger.schemas.placed, ledger.tables, ledger.reached, ledger.merged)
    return repr((*found, ledger.left, ledger.publishes, ledger.cleaned, ledger.seen))


def test_every_change_is_found_again_with_a_journal_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "journal", "f", "i")
    seen = steps(ledger)
    assert len(set(seen)) == len(seen)
    ledger.close()
    monkeypatch.setattr(ledger_module, "JOURNAL_BYTES_MAX", 0)
    whole = Ledger(tmp_path / "whole", "f", "i")
    assert steps(whole) == seen
    whole.close()
    for name in ("journal", "whole"):
        again = Ledger(tmp_path / name, "f", "i")
        assert told(again) == seen[-1]
        again.close()


def test_a_batch_writes_what_changed_not_what_there_is(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "f", "i")
    ledger.keep(reached=Reached(1, "0.1.1"), tables=[table(number, 1) for number in range(1, 301)])
    state = tmp_path / "_headrace" / "tables.json"
    before = state.read_bytes()
    (journal,) = (tmp_path / "_headrace").glob("*.journal")
    size = journal.stat().st_size
    tables = ledger.tables
    ledger.begin(9, [])
    ledger.keep(reached=Reached(9, "0.1.9"), tables=[*tables[:-1], replace(tables[-1], path="moved")])
    assert state.read_bytes() == before
    assert journal.stat().st_size - size < 1000
    ledger.close()
    found = read_state(tmp_path / "_headrace")
    assert found is not None
    assert found.tables == [*tables[:-1], replace(tables[-1], path="moved")]


@pytest.mark.parametrize("step", [Step.OPEN, Step.WRITE, Step.SYNC, Step.RENAME, Step.SYNC_FOLDER])
@pytest.mark.parametrize("size", [0, 1 << 20])
def test_a_disk_that_fails_leaves_a_ledger_that_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: Step, size: int
) -> None:
    monkeypatch.setattr(ledger_module, "JOURNAL_BYTES_MAX", size)
    clean = Ledger(tmp_path / "clean", "f", "i", instance="x")
    seen = steps(clean)
    clean.close()
    for number in range(30):
        folder = tmp_path / str(number)
        Ledger(folder, "f", "i", instance="x").close()
        disk = FaultyDisk(Fault(step, errno.ENOSPC, after=number + 1, written=7))
        ledger = Ledger(folder, "f", "i", disk=disk)
        failed = False
        try:
            steps(ledger)
        except OSError:
            failed = True
        remembered = told(ledger)
        assert remembered in seen
        ledger.close()
        again = Ledger(folder, "f", "i")
        # What failed may have become durable all the same; what came before it has.
        assert told(again) in seen[seen.index(remembered) :]
        again.update(replace(table(2, 30), stopped=NOTE))
        again.close()
        if not failed:
            return
    raise AssertionError("the disk failed thirty times")


@pytest.mark.parametrize("step", [Step.WRITE, Step.SYNC])
def test_after_a_failure_the_same_ledger_goes_on(tmp_path: Path, step: Step) -> None:
    disk = FaultyDisk()
    ledger = Ledger(tmp_path, "f", "i", disk=disk)
    ledger.begin(1, [])
    disk.faults.append(Fault(step, errno.ENOSPC, written=20))
    with pytest.raises(OSError, match=r"tables-1\.journal|No space"):
        ledger.begin(2, [PLACED])
    assert (ledger.begun, ledger.schemas.placed) == (1, [])
    ledger.begin(3, [PLACED])
    ledger.close()
    # What a failed sync leaves in the file proves nothing: it is not appended to.
    assert [path.name for path in (tmp_path / "_headrace").glob("*.journal")] == ["tables-2.journal"]
    again = Ledger(tmp_path, "f", "i")
    assert (again.begun, again.schemas.placed) == (3, [PLACED])
    again.close()


@pytest.mark.parametrize("size", [0, 1 << 20])
def test_what_was_kept_outlives_a_power_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(ledger_module, "JOURNAL_BYTES_MAX", size)
    disk = PowerLossDisk()
    ledger = Ledger(tmp_path / "there", "f", "i", disk=disk)
    seen = steps(ledger)
    disk.lose_power(tmp_path / "there", tmp_path / "left")
    ledger.close()
    again = Ledger(tmp_path / "left", "f", "i")
    assert told(again) == seen[-1]
    again.close()


def test_a_torn_line_is_passed_over_and_a_damaged_one_is_named() -> None:
    lines = [line_of(Change(begun=number)) for number in (1, 2, 3)]
    assert [one.begun for one in changes_in(b"".join(lines), "j")] == [1, 2, 3]
    assert [one.begun for one in changes_in(b"".join(lines)[:-5], "j")] == [1, 2]
    torn = b"".join(lines[:2]) + bytes(10) + lines[2][10:]
    assert [one.begun for one in changes_in(torn, "j")] == [1, 2]
    with pytest.raises(LedgerCorrupt, match="line 2"):
        changes_in(lines[0] + lines[1].replace(b"2", b"7") + lines[2], "j")


def test_a_ledger_of_an_older_version_is_carried_over(tmp_path: Path) -> None:
    folder = tmp_path / "_headrace"
    folder.mkdir()
    old = {"written-as": 2, "readable-from": 1, "feed": "f", "incarnation": "i", "schemas": [], "begun": 7}
    (folder / "tables.json").write_text(json.dumps(old))
    found = read_state(folder)
    assert found is not None
    assert found.begun == 7
    ledger = Ledger(tmp_path, "f", "i")
    assert (ledger.begun, ledger.merged_to, ledger.start) == (7, 7, None)
    assert json.loads((folder / "tables.json").read_text())["readable-from"] == 3
    ledger.close()
