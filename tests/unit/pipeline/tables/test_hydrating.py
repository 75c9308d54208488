"""Tables that begin with a snapshot: what is kept of it, and what becomes of a start that fails or is left off."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from headrace.client.snapshot_body import SnapshotRow
from headrace.errors import (
    ConfigInvalid,
    HeadraceError,
    NoSnapshot,
    SequenceNotAvailable,
    SnapshotForbidden,
    SnapshotUnavailable,
    Unavailable,
)
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables import hydrating, job
from headrace.pipeline.tables.files import Change
from headrace.pipeline.tables.hydrating import LeftOff, Taken, begin_with_snapshot
from headrace.pipeline.tables.ledger import Ledger
from headrace.pipeline.tables.schemas import Column, PlacedSchema, TableSchema
from headrace.pipeline.tables.states import Reached, Start

ENDPOINT = Endpoint("http://127.0.0.1:9")
UNREACHED = SequenceNotAvailable("the feed f begins with entry 50 now", hint="Name an archive")
SCHEMAS = [
    PlacedSchema(9, TableSchema("main", name, 1, (Column("id", "int64", nullable=False),), ("id",)))
    for name in "ab"
]
SPARK: Any = None


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    found = Ledger(tmp_path, "f", "i")
    yield found
    found.close()


def fetching(monkeypatch: pytest.MonkeyPatch, result: HeadraceError | Taken) -> None:
    """Let a fetch end so, and the feed be as far as the snapshot."""

    async def taken(self: object, floor: int) -> Taken:
        if isinstance(result, HeadraceError):
            raise result
        return result

    class Server:
        def __init__(self, endpoint: Endpoint) -> None: ...

        def __enter__(self) -> Server:
            return self

        def __exit__(self, *error: object) -> None: ...

        def feed(self, name: str) -> object:
            return SimpleNamespace(head_sequence_id=10, newest_lsn="0.1.10", oldest_sequence_id=11)

    monkeypatch.setattr(hydrating.SnapshotFetching, "taken", taken)
    monkeypatch.setattr(hydrating, "Connection", Server)


def begin(ledger: Ledger, stop: threading.Event | None = None) -> Start:
    return begin_with_snapshot(SPARK, ledger, ENDPOINT, "me", unreached=UNREACHED, stop=stop)


@pytest.mark.parametrize("error", [NoSnapshot("none"), SnapshotForbidden("not that address")])
def test_without_a_snapshot_the_start_is_refused_with_what_helps(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: HeadraceError
) -> None:
    fetching(monkeypatch, error)
    with pytest.raises(SequenceNotAvailable, match=f"entry 50 now.*{error.detail} .{error.code}.") as refused:
        begin(ledger)
    assert refused.value.advice == "Name an archive"


@pytest.mark.parametrize("error", [Unavailable("the server is away"), SnapshotUnavailable("not now")])
def test_a_failure_that_passes_comes_out_as_what_it_is(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, error: HeadraceError
) -> None:
    fetching(monkeypatch, error)
    with pytest.raises(type(error)) as raised:
        begin(ledger)
    assert raised.value.retryable
    assert raised.value.code == error.code


def test_a_second_snapshot_finds_no_table_of_the_first(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching(monkeypatch, Taken(ledger.folder / "snapshot", "s", 10, SCHEMAS, set()))
    there: list[list[str]] = []

    def merge(spark: object, ledger: Ledger, taken: Taken) -> None:
        there.append(sorted(one.parent.name for one in ledger.to.glob("*/_delta_log")))
        for name in ("main.a", "main.b"):
            (ledger.to / name / "_delta_log").mkdir(parents=True)
        if len(there) < 3:
            raise Unavailable("killed")

    monkeypatch.setattr(hydrating, "_merge", merge)
    (ledger.to / "somebody's" / "_delta_log").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(Unavailable):
            begin(ledger)
    begin(ledger)
    assert there == [["somebody's"]] * 3


def test_a_folder_that_is_somebody_else_s_ends_the_start(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching(monkeypatch, Taken(ledger.folder / "snapshot", "s", 10, SCHEMAS, set()))
    monkeypatch.setattr(hydrating, "_merge", lambda *a: pytest.fail("it was merged over"))
    (ledger.to / "main.a" / "_delta_log").mkdir(parents=True)
    for _ in range(2):
        with pytest.raises(ConfigInvalid, match=r"main\.a is there already"):
            begin(ledger)
    assert (ledger.to / "main.a" / "_delta_log").is_dir()


@pytest.mark.parametrize("place", ["elsewhere", "main.a", "nowhere"])
def test_what_can_not_be_removed_ends_the_start(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (ledger.to / "elsewhere").mkdir()
    fetching(monkeypatch, Taken(ledger.folder / "snapshot", "s", 10, SCHEMAS, set()))
    monkeypatch.setattr(hydrating, "_merge", lambda *a: pytest.fail("it was merged over"))
    cut = Start(source="snapshot", after=5, oldest=6, at="now", folders=("main.a", "main.b"))
    ledger.keep(start=cut)
    (ledger.to / "main.a" / "_delta_log").mkdir(parents=True)
    (ledger.to / "main.b").symlink_to(ledger.to / place)
    with pytest.raises(ConfigInvalid, match=r"main\.b.*can't be removed"):
        begin(ledger)
    assert (ledger.to / "main.b").is_symlink()


def test_a_snapshot_is_merged_in_one_change_of_the_ledger(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetching(monkeypatch, Taken(ledger.folder / "snapshot", "s", 10, SCHEMAS, set()))
    monkeypatch.setattr(hydrating, "_merge", lambda *a: None)
    changes: list[Change] = []
    change = Ledger._change

    def seen(whose: Ledger, one: Change) -> None:
        changes.append(one)
        change(whose, one)

    monkeypatch.setattr(Ledger, "_change", seen)
    begin(ledger)
    assert [(bool(one.start), one.begun or 0, bool(one.merged)) for one in changes] == [
        (True, 0, False),
        (False, 10, True),
    ]
    assert ledger.merged == Reached(10, "0.1.10")
    assert ledger.schemas.tables() == [("main", "a"), ("main", "b")]


def test_a_start_that_was_cut_behind_the_merge_is_published_and_gives_its_lease_back(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Start(source="snapshot", after=10, oldest=11, at="now")
    ledger.keep(start=start)
    ledger.begin(10, SCHEMAS, merged=Reached(10, "0.1.10"))
    ended: list[str] = []
    monkeypatch.setattr(job, "end_lease", lambda endpoint, listener, feed: ended.append(feed))
    run: Any = SimpleNamespace(told=lambda: None, stopping=threading.Event())
    job._begin(SPARK, ledger, ENDPOINT, run, archive=False)
    assert ended == ["f"]
    assert ledger.published is not None
    assert ledger.published.sequence_id == 10


def test_a_fetch_is_left_off_when_the_job_is_to_stop(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, ended = threading.Event(), []

    async def taken(self: object, floor: int) -> Taken:
        stop.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        raise AssertionError

    monkeypatch.setattr(hydrating.SnapshotFetching, "taken", taken)
    with pytest.raises(LeftOff):
        begin(ledger, stop)
    assert (ended, ledger.start) == ([True], None)


def test_each_table_of_a_snapshot_has_its_own_files(ledger: Ledger) -> None:
    fetch = hydrating.SnapshotFetching(
        (ledger.feed, ledger.incarnation), ENDPOINT, "me", ledger.folder / "snapshot"
    )
    fetch._begin_anew()
    fetch._described = {("main", "a"), ("main", "b")}
    for part in range(2):
        for name in "ab":
            fetch._take(row(["main", name], f"{name}{part}"), 10)
        fetch._flush()
    fetch._take(row([], "plain"), 10)
    fetch._flush()
    folder = ledger.folder / "snapshot"
    found = {one.name: pq.read_table(one).column("key").to_pylist() for one in sorted(folder.iterdir())}
    assert found == {"main.a": [b"a0", b"a1"], "main.b": [b"b0", b"b1"], "entries": [b"plain"]}
    with pytest.raises(HeadraceError, match="no schema of this table"):
        fetch._take(row(["main", "c"], "1"), 10)


def row(table: list[str], key: str) -> SnapshotRow:
    made: SnapshotRow = cast("Any", SimpleNamespace(table=table, is_control=False, key=key, changes=b"{}"))
    return made
