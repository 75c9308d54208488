"""The drill: random moments of an archive are what its own fold of the log says, and a value that is not is named."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.archive.moments.catalogue import Archive
from headrace.archive.rights.holds import holders
from headrace.cli.app import main
from headrace.cli.wal_drill import lines_of
from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import TargetUnreachable
from headrace.pipeline.drill import job, spill
from headrace.pipeline.drill.job import Comparison, Difference, compared, drill, newest_restorable
from headrace.pipeline.drill.reading import Source, source_of
from headrace.pipeline.restore.outcome import Outcome
from headrace.simple import json_codec
from headrace.simple.message import Ddl, MessageType
from headrace.simple.schema import TableSchema
from tests.integration.pipeline.restore.history import ORDERS, VM, History, delete, put, small_history
from tests.integration.pipeline.restore.restoring import keys_in, restored
from tests.unit.pipeline.restore.test_clearing import schema

pytestmark = pytest.mark.usefixtures("several_tasks")


def test_random_moments_are_equal(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[tuple[str, Lsn]] = set()

    def watched(source: Source, outcome: Outcome, folder: Path) -> Comparison:
        held.update((one.who, one.lsn_from) for one in holders(source.archive.folder).held)
        return compared(source, outcome, folder)

    monkeypatch.setattr(job, "compared", watched)
    history, archive, scratch = small_history(), tmp_path / "wal", tmp_path / "scratch"
    history.write(archive, 3, 6, 9)
    scratch.mkdir()
    before = sorted(archive.iterdir())
    started = time.time()
    reports = [drill(spark, str(archive), seed=seed, scratch=str(scratch)) for seed in (1, 2)]
    for report in reports:
        assert report.equal, report
        assert report.whole_lsn == report.target_lsn
        other = msgspec.structs.replace(report, whole_lsn="0", equal=False)
        assert lines_of(other)[1] == "  restored to ANOTHER ENTRY than the last whole one, lsn=0"
        assert (report.keys, report.left_out) == (len(history.at(Lsn.parse(report.target_lsn))), [])
        assert report.newest_lsn == str(history.appends[-1].lsns[-1])
        document = msgspec.to_builtins(report)
        logged = history.appends[-1].lsns[-1].committed_at_ms
        assert document["newest-time-ms"] == logged
        assert started <= logged / 1000 + document["recovery-point-seconds"] <= time.time() + 0.001
        rate = document["restore-bytes"] / 1e6 / document["restore-seconds"]
        assert document["restore-mb-per-second"] == round(rate, 1)
        assert document["restore-bytes"] > 0
        told = lines_of(report)
        assert f"recovery time {document['restore-seconds']:.1f} s" in told[1]
        assert f"{document['recovery-point-seconds']:,.0f} s ago" in told[2]
    # A seed's moment is the same again, whenever and wherever it is asked for.
    asked = [history.appends[0].lsns[1], history.appends[9].lsns[0]]
    assert [one.asked_lsn for one in reports] == [str(one) for one in asked]
    assert list(scratch.iterdir()) == []
    # No prune takes anything away while the log is folded.
    assert {(who.partition(",")[0], start) for who, start in held} == {("drill", ZERO)}
    assert sorted(archive.iterdir()) == before
    assert lines_of(reports[0])[0].endswith("equal")


def statement(kind: MessageType, table: str, after: TableSchema) -> Change:
    """A control entry of a captured feed."""
    told = json_codec.encode(Ddl(kind, f"{kind} …", 1, 1, after))
    return Change(told, key=b"\0ddl", control="ddl", table=("shop", table))


def test_statements_of_a_captured_feed(spark: SparkSession, tmp_path: Path) -> None:
    history, archive = History(), tmp_path / "wal"
    t, u, w = (("shop", name) for name in "tuw")
    history.append(VM, put("kept", 1), ts=1)
    history.append(ORDERS, statement(MessageType.CREATE, "t", schema("t")), put("t1", 1, table=t), ts=2)
    history.append(ORDERS, statement(MessageType.RENAME, "t", schema("u")), put("u1", 1, table=u), ts=3)
    history.append(ORDERS, put("w1", 1, table=w), put("w2", 1, table=w), ts=4)
    history.append(ORDERS, statement(MessageType.ERASE, "u", schema("u")), put("w3", 1, table=w), ts=5)
    history.append(ORDERS, statement(MessageType.TRUNCATE, "w", schema("w")), put("w2", 2, table=w), ts=6)
    history.write(archive, 2, 4)
    # While the renamed table stands, the log itself shows that its keys are no exact state. Once it is gone they are.
    last, out = history.appends[5].lsns[-1], tmp_path / "out"
    outcome = restored(spark, archive, out, last, allow_incomplete=True)
    assert set(keys_in(out)) == {(VM, b"kept"), (ORDERS, b"w2")}
    source = source_of(Archive.read(str(archive)), last)
    assert compared(source, outcome, tmp_path) == (2, 0, [])
    # The seed's moment is before it is gone.
    report = drill(spark, str(archive), seed=10, scratch=str(tmp_path))
    assert (report.asked_lsn, report.left_out) == (str(history.appends[3].lsns[-1]), [ORDERS])
    assert (report.equal, report.feeds, report.keys) == (True, 1, 1)
    assert f"left out: {ORDERS}, whose keys do not tell its rows apart" in lines_of(report)


def test_an_archive_that_a_prune_took(tmp_path: Path) -> None:
    history = small_history()
    history.write(tmp_path, 3, 6, 9)
    for path in sorted(tmp_path.iterdir())[:2]:
        path.unlink()
    with pytest.raises(TargetUnreachable, match="has nothing left to rebuild"):
        source_of(Archive.read(str(tmp_path)), history.appends[-1].lsns[-1])


def test_what_differs_is_named(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history, archive, out = small_history(), tmp_path / "wal", tmp_path / "out"
    history.write(archive, 3, 6, 9)
    last = history.appends[-1].lsns[-1]
    outcome = restored(spark, archive, out, last)
    source = source_of(Archive.read(str(archive)), last)

    def found_in(outcome: Outcome) -> Comparison:
        """What is found, whether the log is folded in one part or in several."""
        with monkeypatch.context() as patched:
            patched.setattr(spill, "PART_BYTES", 200)
            in_parts = compared(source, outcome, tmp_path)
        in_one = compared(source, outcome, tmp_path)
        assert (in_parts.keys, in_parts.differing) == (in_one.keys, in_one.differing)
        assert by_name(in_parts.differences) == by_name(in_one.differences)
        return in_one

    assert found_in(outcome) == (len(history.at(last)), 0, [])
    # A feed that the restore lost is a difference, however the restore calls it: its keys tell its rows apart.
    lost = msgspec.structs.replace(outcome, feeds=[one for one in outcome.feeds if one.feed != VM])
    shutil.copytree(out, tmp_path / "lost", ignore=shutil.ignore_patterns("feed=vmapi*"))
    lost = msgspec.structs.replace(lost, out=str(tmp_path / "lost"))
    missing = found_in(lost).differences
    assert {(one.feed, one.restored, one.log) for one in missing} == {(VM, False, True)}
    assert len(missing) == sum(name[0] == VM for name in history.at(last))
    for path in (out / "feed=vmapi%3A%3Avm").glob("*.parquet"):
        table = pq.read_table(path)
        if b"tx" in table.column("key").to_pylist():
            rows = table.to_pylist()
            changed = [row | {"value": b"1"} if row["key"] == b"tx" else row for row in rows]
            pq.write_table(
                table.from_pylist([*changed, rows[0] | {"key": b"more"}], schema=table.schema), path
            )
    found = found_in(outcome)
    assert (found.keys, found.differing) == (len(history.at(last)), 2)
    assert by_name(found.differences) == [
        Difference(feed=VM, key="more", restored=True, log=False),
        Difference(feed=VM, key="tx", restored=True, log=True),
    ]


def by_name(found: Sequence[Difference]) -> list[Difference]:
    return sorted(found, key=lambda one: (one.feed, one.key))


def test_an_archive_without_a_window(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty, behind = tmp_path / "empty", tmp_path / "behind"
    empty.mkdir()
    assert main(["wal", "drill", "--wal-dir", str(empty)]) != 0
    assert "holds no KWAL segment" in capsys.readouterr().err
    small_history().write(behind, 3)
    min(behind.glob("*.bin")).unlink()
    with pytest.raises(TargetUnreachable, match="has no moment that can be restored") as refused:
        drill(spark, str(behind), seed=1, scratch=str(tmp_path))
    assert refused.value.exit_code == 4


def test_the_recovery_point_is_what_can_be_restored(tmp_path: Path) -> None:
    history = small_history()
    history.write(tmp_path, 3, 6, 9)
    assert newest_restorable(Archive.read(str(tmp_path))) == history.appends[-1].lsns[-1]
    sorted(tmp_path.glob("*.bin"))[2].unlink()
    assert newest_restorable(Archive.read(str(tmp_path))) == history.appends[5].lsns[-1]


@pytest.mark.usefixtures("shared_spark")
def test_a_drill_that_compared_nothing_did_not_go_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "wal"
    history = History()
    history.append(VM, put("a", 1), delete("a"), ts=1)
    history.write(archive)
    assert main(["wal", "drill", "--wal-dir", str(archive), "--scratch", str(tmp_path)]) == 1
    # Nobody watches, and yet it is told: cron mails it.
    first, recovery_time, recovery_point = capsys.readouterr().out.splitlines()
    assert first.endswith(": 0 keys of 1 feeds, NOTHING COMPARED")
    assert re.fullmatch(r"recovery time \d+\.\d s for \d+\.\d MB, [\d.]+ MB/s", recovery_time)
    last = history.appends[-1].lsns[-1]
    assert re.fullmatch(rf"recovery point: .* -?[\d,]+ s ago, at lsn={re.escape(str(last))}", recovery_point)
