"""What can't be exact isn't there: damage, a cut in the middle, keys that do not open; and nothing is left of a failure."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from pathlib import Path

import pyarrow as pa
import pyrage
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from headrace.archive.files.encryption import encrypt
from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.archive.moments.catalogue import Archive
from headrace.cli.app import main
from headrace.entries.entry import Change
from headrace.errors import (
    ArchiveFull,
    IdentityNeeded,
    OutNotEmpty,
    RestoreInexact,
    SegmentCorrupt,
    SegmentGap,
    StoreUnavailable,
    Usage,
)
from headrace.pipeline.drill.job import drill
from headrace.pipeline.restore import keys
from headrace.pipeline.restore.keys import folder_name
from headrace.pipeline.restore.out import OUTCOME, check_out
from headrace.wire.kwal_manifest import decode_manifest, encode_manifest
from tests import forks
from tests.fault.volumes import small_volume
from tests.integration.pipeline.restore.history import ORDERS, REGIONS, VM, History, put, small_history
from tests.integration.pipeline.restore.restoring import keys_in, names_in, restored
from tests.kwal import INCARNATION, manifest_of, sealed, write
from tests.waiting import wait_until


def test_nothing_is_written_of_a_damaged_archive(spark: SparkSession, tmp_path: Path) -> None:
    history = small_history()
    archive, out = tmp_path / "wal", tmp_path / "out"
    history.write(archive, 4, 8)
    last = history.appends[-1].lsns[-1]
    damaged = sorted(archive.glob("*.bin"))[1]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 4
    damaged.write_bytes(bytes(data))
    out.mkdir()
    for kind in ("kv", "tables"):
        with pytest.raises(SegmentCorrupt, match=damaged.name):
            restored(spark, archive, out, last, kind=kind)
        assert names_in(out) == []
    # What is before the damage does not need it.
    restored(spark, archive, out, history.appends[3].lsns[-1])
    assert keys_in(out) == history.at(history.appends[3].lsns[-1])


def test_where_a_restore_may_write(tmp_path: Path) -> None:
    check_out(tmp_path / "new" / "folder")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Usage):
        check_out(tmp_path / "file")
    with pytest.raises(OutNotEmpty, match="it holds file"):
        check_out(tmp_path)
    with pytest.raises(ArchiveFull, match="has room for"):
        check_out(tmp_path / "new", 1 << 62)
    (tmp_path / "cut" / "_restoring-1").mkdir(parents=True)
    with pytest.raises(OutNotEmpty, match="cut short"):
        check_out(tmp_path / "cut")


def test_an_encrypted_archive_needs_its_identity(spark: SparkSession, tmp_path: Path) -> None:
    history, archive = small_history(), tmp_path / "wal"
    history.write(archive, 5)
    key = pyrage.x25519.Identity.generate()
    identity = tmp_path / "identity.txt"
    identity.write_text(f"# a comment\n{key}\n")
    for path in sorted(archive.glob("*.bin")):
        manifest = decode_manifest(path.with_suffix(".manifest.json").read_bytes(), "a manifest")
        found = encrypt([path.read_bytes()], [str(key.to_public())])
        path.with_name(f"{path.name}.age").write_bytes(b"".join(found.pieces))
        path.with_suffix(".manifest.json").write_bytes(encode_manifest(manifest.with_encryption(found.told)))
        path.unlink()
    last, out = history.appends[-1].lsns[-1], tmp_path / "out"
    with pytest.raises(IdentityNeeded):
        restored(spark, archive, out, last)
    assert names_in(out) == []
    restored(spark, archive, out, last, identity=str(identity))
    assert keys_in(out) == history.at(last)


def test_only_the_newest_history_of_a_feed_is_restored(spark: SparkSession, tmp_path: Path) -> None:
    history, archive = History(), tmp_path / "wal"
    history.append(VM, put("old", 1), put("both", 1), ts=1)
    again = History()
    again.append(VM, put("both", 2), put("new", 2), ts=2)
    segments = [sealed([one.stamped for one in made.appends]) for made in (history, again)]
    first = manifest_of(segments[0])
    second = manifest_of(segments[1], before=segments[0], incarnations={REGIONS[VM]: "second"})
    write(archive, segments[0], first)
    write(archive, segments[1], second)
    last = again.appends[-1].lsns[-1]
    for kind in ("kv", "tables"):
        outcome = restored(spark, archive, tmp_path / kind, last, kind=kind)
        (feed,) = outcome.feeds
        assert (feed.incarnation, feed.older) == ("second", [INCARNATION])
        assert any("older histories" in warning for warning in outcome.warnings)
    assert keys_in(tmp_path / "kv") == again.at(last)
    before = restored(spark, archive, tmp_path / "before", history.appends[-1].lsns[-1])
    assert before.feeds[0].incarnation == INCARNATION
    assert keys_in(tmp_path / "before") == history.at(last)


def test_a_restore_that_is_killed_leaves_no_outcome(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, archive, out = History(), tmp_path / "wal", tmp_path / "out"
    appends = 12
    for number in range(1, 1 + appends):
        history.append(VM, *[put(f"k{number}-{one}", one) for one in range(200)], ts=number)
    history.write(archive, *range(1, appends))
    last = history.appends[-1].lsns[-1]
    command = [
        *forks.HEADRACE,
        "wal",
        "restore",
        "--wal-dir",
        str(archive),
        "--json",
    ]
    command += ["--to-lsn", str(last), "--master", "local[1]", "--max-entries", "200"]
    running = forks.start([*command, "--out", str(out)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(
            lambda: list(out.glob("_restoring-*/*/entries/_delta_log/*1.json")), 200, what="a batch or two"
        )
    finally:
        running.send_signal(signal.SIGKILL)
        running.communicate()
    assert not (out / OUTCOME).exists()
    assert [name for name in names_in(out) if not name.startswith("_restoring-")] == []
    assert main([*command[3:], "--out", str(out)]) == 3  # before Spark is started
    assert json.loads(capsys.readouterr().out)["code"] == "out-not-empty"
    # Another folder takes it.
    outcome = restored(spark, archive, tmp_path / "again", last)
    assert outcome.feeds[0].rows == len(history.at(last))
    assert (tmp_path / "again" / OUTCOME).exists()


def test_another_count_of_the_log_takes_a_restore_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, archive, out = small_history(), tmp_path / "wal", tmp_path / "out"
    history.write(archive, 4)
    last = history.appends[-1].lsns[-1]
    monkeypatch.setattr(keys, "live_keys", lambda work, feeds: dict.fromkeys(REGIONS, 5))
    with pytest.raises(RestoreInexact, match="orders: 3 keys were restored, and the log has 5"):
        restored(spark, archive, out, last)
    assert not out.exists()


def test_another_value_on_the_disk_takes_a_restore_away(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys and their count are right, and one value is not what Spark was given to write."""
    history, archive, out = small_history(), tmp_path / "wal", tmp_path / "out"
    history.write(archive, 4)
    placed = keys._placed

    def changed(into: Path) -> None:
        placed(into)
        path = next(into.glob(f"{folder_name(ORDERS)}/*.parquet"))
        rows = parquet.ParquetFile(path).read()
        values = [b"another", *rows["value"].to_pylist()[1:]]
        at = rows.schema.get_field_index("value")
        parquet.write_table(rows.set_column(at, "value", pa.array(values, pa.binary())), path)
        path.with_name(f".{path.name}.crc").unlink()

    monkeypatch.setattr(keys, "_placed", changed)
    with pytest.raises(
        RestoreInexact, match=r"(\d+) keys were written, and what is read back of them, \1, is not"
    ):
        restored(spark, archive, out, history.appends[-1].lsns[-1])
    assert not out.exists()


def test_a_full_volume_is_left_empty(spark: SparkSession, tmp_path: Path) -> None:
    history, archive = History(), tmp_path / "wal"
    values = random.Random(7)
    for number in range(30):
        rows = [Change(values.randbytes(1000), key=b"%d-%d" % (number, one)) for one in range(200)]
        history.append(VM, *rows, ts=number)
    history.write(archive, 15)
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        for kind in ("kv", "tables"):
            with pytest.raises(ArchiveFull, match="has no room for the restore"):
                restored(spark, archive, tmp_path / "volume" / "out", history.appends[-1].lsns[-1], kind=kind)
            assert names_in(tmp_path / "volume") == []
        # There is room for what this drill restores, of half of the log, and not for that and the log.
        with pytest.raises(ArchiveFull, match=r"headrace-drill-.* has no room .*No space left") as full:
            drill(spark, str(archive), seed=1495, scratch=str(tmp_path / "volume"))
        assert "--scratch DIR" in str(full.value.advice)
        assert names_in(tmp_path / "volume") == []


def test_a_volume_that_may_be_too_small_is_told_of_and_not_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The log is larger than the volume, and what it leaves of its keys is not."""
    history, archive = History(), tmp_path / "wal"
    values = random.Random(7)
    for number in range(30):
        rows = [Change(values.randbytes(1000), key=b"%d" % one) for one in range(200)]
        history.append(VM, *rows, ts=number)
    history.write(archive, 15)
    with small_volume(tmp_path / "volume") as mounted:
        assert mounted, "run this test where a volume may be mounted"
        outcome = restored(spark, archive, tmp_path / "volume" / "out", history.appends[-1].lsns[-1])
        assert [one.rows for one in outcome.feeds] == [200]
        (warning,) = (one for one in outcome.warnings if "had room for" in one)
        size = sum(one.stat().st_size for one in archive.glob("*.bin"))
        assert f"base and segments have {size:,}" in warning


def test_a_folder_that_the_disk_does_not_make_is_named(spark: SparkSession, tmp_path: Path) -> None:
    history, archive, last = small_history(), tmp_path / "wal", small_history().appends[-1].lsns[-1]
    history.write(archive, 4)
    with pytest.raises(StoreUnavailable, match=r"^/proc/nobody/out can't be written: ") as refused:
        restored(spark, archive, Path("/proc/nobody/out"), last)
    assert "--out DIR" in str(refused.value.advice)
    with pytest.raises(StoreUnavailable, match=r"^/proc can't be written: ") as refused:
        drill(spark, str(archive), seed=1, scratch="/proc")
    assert "--scratch DIR" in str(refused.value.advice)


def test_over_a_gap_that_was_accepted(spark: SparkSession, tmp_path: Path) -> None:
    history, archive = History(), tmp_path / "wal"
    appends = [
        history.append(VM, put(f"k{number}", number), put("same", number), ts=number) for number in range(3)
    ]
    history.write(archive, 1, 2)
    lost = sorted(archive.glob("kdb-wal-*.bin"))[1]
    lost.unlink()
    lost.with_suffix(".manifest.json").unlink()
    last = appends[-1].lsns[-1]
    with pytest.raises(SegmentGap):
        restored(spark, archive, tmp_path / "refused", last)
    assert not (tmp_path / "refused").exists()
    (gap,) = Archive.read(str(archive)).chain.gaps()
    accepted = AcceptedGap(after=str(gap.after), before=str(gap.before), reason="lost", by="a@b", at_ms=1)
    (archive / gap_file(accepted)).write_bytes(encode_gap(accepted))
    history.appends.pop(1)
    found = [restored(spark, archive, tmp_path / kind, last, kind=kind) for kind in ("kv", "tables")]
    assert [len(outcome.plan["gaps"]) for outcome in found] == [1, 1]
    assert keys_in(tmp_path / "kv") == history.at(last)
    assert [one.rows for one in found[1].feeds[0].tables] == [3]
    # The seed's moment is behind the gap, which the drill's own walk and fold go over, too.
    report = drill(spark, str(archive), seed=5, scratch=str(tmp_path))
    assert (report.equal, report.whole_lsn, report.keys) == (True, str(last), 3)
