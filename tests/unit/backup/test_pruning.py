"""A prune of real files: what goes, in which order, and what the command says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from headrace.archive.files.folder import Folder
from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.planning import plan
from headrace.archive.moments.pruning import Terms
from headrace.archive.moments.target import Asked
from headrace.archive.rights.holds import hold, pruning
from headrace.backup.deposits import Deposits
from headrace.backup.process import prune_now
from headrace.backup.pruning import LEFTOVER_MS, look, prune_once
from headrace.backup.verifying.archive_check import verify
from headrace.cli.app import main
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import ArchiveOwned, ArchiveUnavailable, PruneRefused, SegmentCorrupt, TargetUnreachable
from headrace.wire.base_manifest import MANIFEST, base_folder
from tests import archive_model
from tests.archive_model import Append, History, write_archive
from tests.archive_model import write_base as write_archive_base
from tests.base_files import write_whole_base
from tests.kwal import TS, sealed, write
from tests.prune_model import DAY_MS

BEGIN_MS = TS >> 18
NOW_MS = BEGIN_MS + 11 * DAY_MS
TERMS = Terms(3, 1)


class Daily:
    """Twelve segments, one a day, with bases of days 2, 5 and 9."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = str(folder)
        self.history = History([Append(7, day * DAY_MS) for day in range(12)])
        self.segments = self.history.segments(range(1, 12))
        write_archive(folder, self.segments)
        self.bases = [
            write_whole_base(folder, self.segments[: day + 1], self.history.entries[day].lsn)
            for day in (2, 5, 9)
        ]

    def standing(self) -> set[str]:
        """All files there."""
        return {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()}

    def files(self, *days: int) -> set[str]:
        """The files of these days' segments."""
        names = [self.segments[day].name for day in days]
        return {str(name) for name in names} | {name.manifest for name in names}


@pytest.fixture
def daily(tmp_path: Path) -> Daily:
    return Daily(tmp_path / "wal")


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Daily:
    """The same, years ago by this machine's clock, which the command goes by."""
    monkeypatch.setattr(archive_model, "TS", 1_700_000_000_000 << 18)
    return Daily(tmp_path / "wal")


def windows(folder: Path) -> list[tuple[str, str]]:
    return [(str(one.first), str(one.last)) for one in Archive.read(str(folder)).chain.windows()]


def test_what_is_not_confirmed_changes_nothing(daily: Daily) -> None:
    before = daily.standing()
    done = prune_once(daily.url, TERMS, confirm=False, now_ms=NOW_MS)
    assert daily.standing() == before
    assert not done.confirmed
    assert [one.file for one in done.plan.segments_going] == [
        str(daily.segments[day].name) for day in range(5)
    ]
    assert [one.path for one in done.plan.bases_going] == [daily.bases[0].name]


def test_what_is_no_longer_needed_goes(daily: Daily) -> None:
    before = daily.standing()
    told: list[tuple[int, int]] = []
    done = prune_once(
        daily.url, TERMS, confirm=True, now_ms=NOW_MS, progress=lambda *counts: told.append(counts)
    )
    gone = before - daily.standing()
    first = {one for one in before if one.startswith(daily.bases[0].name)}
    assert gone == daily.files(*range(5)) | first
    assert not daily.bases[0].exists()
    assert done.bytes_going > 0
    assert told[-1] == (13, 13)
    assert verify(daily.url).findings == []
    last = str(daily.segments[-1].name.last)
    assert windows(daily.folder) == [(daily.bases[1].name.removeprefix("kdb-base-"), last)]
    again = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert (again.plan.segments_going, again.plan.bases_going, again.bytes_going) == ([], [], 0)


def test_every_moment_of_the_retention_comes_to_the_same_entry(daily: Daily) -> None:
    moments = [NOW_MS - TERMS.retention_days * DAY_MS + hours * 3_600_000 for hours in range(0, 72, 7)]

    def targets() -> list[Lsn]:
        archive = Archive.read(daily.url)
        return [plan(archive, Asked(to_time_ms=round(moment))).target_lsn for moment in moments]

    before = targets()
    prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert targets() == before
    assert len(set(before)) == 3
    with pytest.raises(TargetUnreachable):
        plan(Archive.read(daily.url), Asked(to_lsn=daily.history.entries[4].lsn))


def test_a_crash_at_any_point_leaves_an_archive_without_a_false_gap(daily: Daily, tmp_path: Path) -> None:
    gap = AcceptedGap(after="1.1.1", before="1.1.9", reason="a test", by="ops@host", at_ms=1)
    (daily.folder / gap_file(gap)).write_bytes(encode_gap(gap))
    steps = look(Folder(daily.url), TERMS, NOW_MS).removals()
    order = [file for step in steps for file in step]
    assert len(order) == 14
    for segment in daily.segments[:5]:
        assert order.index(str(segment.name)) + 1 == order.index(segment.name.manifest)
    last = str(daily.segments[-1].name.last)
    anchor = daily.bases[1].name.removeprefix("kdb-base-")
    for count, file in enumerate(order, 1):
        (daily.folder / file).unlink()
        found = verify(daily.url)
        assert found.findings == [], (count, file)
        chain = Archive.read(daily.url).chain
        assert chain.gaps() == [], (count, file)
        assert str(chain.reach(Archive.read(daily.url).bases[-1].lsn)) == last
        assert any(first <= anchor and end == last for first, end in windows(daily.folder)), (count, file)
        if count % 3 == 0:
            copy = tmp_path / f"after-{count}"
            shutil.copytree(daily.folder, copy)
            _make_old(copy)
            prune_once(str(copy), TERMS, confirm=True, now_ms=NOW_MS)
            rest = {str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file()}
            assert rest == daily.standing() - set(order) | {"prune.lock"}


def _make_old(folder: Path) -> None:
    """Let all files look as old as the archive's own time, and those of bases older."""
    for path in folder.rglob("*"):
        age_s = 3 * LEFTOVER_MS / 1000 if path.parent != folder else 0
        os.utime(path, (NOW_MS / 1000 - age_s, NOW_MS / 1000 - age_s))


def test_what_a_base_left_goes_once_it_is_a_day_old(daily: Daily) -> None:
    unfinished = daily.folder / base_folder(daily.segments[8].name.last)
    shutil.copytree(daily.bases[1], unfinished)
    (unfinished / MANIFEST).unlink()
    stray = daily.bases[2] / "bucket=0" / "part-other.parquet"
    stray.write_bytes(b"of a job that died")
    _make_old(daily.folder)
    for path in unfinished.rglob("*"):
        os.utime(path, (NOW_MS / 1000 - 3600, NOW_MS / 1000 - 3600))
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert done.leftovers == [f"{daily.bases[2].name}/bucket=0/{stray.name}"]
    assert not stray.exists()
    assert unfinished.exists(), "it may be in the making"
    _make_old(daily.folder)
    with hold(Folder(daily.url), daily.history.entries[9].lsn):
        assert prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS).leftovers == []
    prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert not unfinished.exists()
    assert verify(daily.url).findings == []


def test_nothing_goes_under_a_hold(daily: Daily) -> None:
    before = daily.standing()
    with hold(Folder(daily.url), ZERO, "restore"):
        held = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
        assert held.refused.startswith("restore, process ")
        assert before <= daily.standing()
    assert not prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS).refused


def test_a_dead_hold_holds_nothing_and_goes(daily: Daily) -> None:
    (daily.folder / "hold-1-ab.json").write_text("{}")  # nobody has it locked
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert done.plan.segments_going
    assert done.leftovers == ["hold-1-ab.json"]
    assert "hold-1-ab.json" not in daily.standing()


def test_two_prunes_at_once(daily: Daily) -> None:
    with pruning(Folder(daily.url)), pytest.raises(ArchiveOwned):
        prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)


def test_a_base_whose_files_are_gone_is_no_anchor(daily: Daily) -> None:
    (daily.bases[1] / "bucket=1" / "part-0.parquet").unlink()
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert done.plan.anchor is not None
    assert done.plan.anchor.path == daily.bases[0].name
    assert [one.file for one in done.plan.segments_going] == [
        str(daily.segments[day].name) for day in range(2)
    ]
    assert "part-0.parquet is not there" in done.document()["bases"][1]["problem"]


def flip(folder: Path) -> str:
    """Flip one bit in the middle of a base's file: its size stays. Returns the file."""
    file = min(folder.rglob("*.parquet"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    return str(file.relative_to(folder.parent))


def test_a_base_that_is_damaged_inside_is_no_anchor(daily: Daily) -> None:
    before, file = daily.standing(), flip(daily.bases[1])
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert done.plan.anchor is not None
    assert done.plan.anchor.path == daily.bases[0].name
    assert before - daily.standing() == daily.files(0, 1)
    assert f"{file} is not what was written" in done.document()["bases"][1]["problem"]
    found = verify(daily.url)
    assert {one.file for one in found.findings} == {file}
    flip(daily.bases[0])
    last = prune_once(daily.url, TERMS._replace(retention_days=1), confirm=True, now_ms=NOW_MS)
    assert last.plan.anchor is not None
    assert last.plan.anchor.path == daily.bases[2].name, "it is whole"


def test_nothing_goes_if_all_bases_are_damaged_inside(daily: Daily) -> None:
    before = daily.standing()
    for base in daily.bases:
        flip(base)
    done = prune_once(daily.url, TERMS._replace(retention_days=1), confirm=True, now_ms=NOW_MS)
    assert "no base snapshot can be used" in done.refused
    assert daily.standing() == before | {"prune.lock"}


def test_a_base_of_another_log_is_no_anchor(
    daily: Daily, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(archive_model, "INCARNATION", "11111111-1111-4111-8111-111111111111")
    for base in daily.bases:
        shutil.rmtree(base)
    write_archive_base(daily.folder, daily.history.entries[:6])
    before = daily.standing()
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert daily.standing() == before | {"prune.lock"}
    assert "no base snapshot can be used" in done.refused
    assert "it is of another log" in done.document()["bases"][0]["problem"]


def test_a_damaged_manifest_that_is_needed_keeps_everything(daily: Daily) -> None:
    (daily.folder / daily.segments[1].name.manifest).write_bytes(b"{}")
    assert not prune_once(daily.url, TERMS, confirm=False, now_ms=NOW_MS).refused
    (daily.folder / daily.segments[7].name.manifest).write_bytes(b"{}")
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert "something is missing that nobody has accepted" in done.refused
    (daily.folder / "kdb-gap-1.1.1-1.1.9.json").write_bytes(b"{}")
    with pytest.raises(SegmentCorrupt, match="no record of an accepted gap"):
        prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)


def test_an_accepted_gap_that_lies_below_goes_with_it(daily: Daily) -> None:
    for day in (1, 7):
        (daily.folder / str(daily.segments[day].name)).unlink()
        (daily.folder / daily.segments[day].name.manifest).unlink()
    records = []
    for day in (1, 7):
        ends = daily.segments[day - 1].name.last, daily.segments[day + 1].name.first
        gap = AcceptedGap(after=str(ends[0]), before=str(ends[1]), reason="lost", by="ops@host", at_ms=1)
        (daily.folder / gap_file(gap)).write_bytes(encode_gap(gap))
        records.append(gap_file(gap))
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert not done.refused
    assert records[0] not in daily.standing()
    assert records[1] in daily.standing()
    assert verify(daily.url).findings == []


def test_a_segment_behind_the_anchor_that_has_another_size_keeps_everything(daily: Daily) -> None:
    (daily.folder / str(daily.segments[7].name)).write_bytes(b"")
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert "something is missing that nobody has accepted" in done.refused


# -- the agent and the command -----------------------------------------------------------------------------------------


def test_the_agent_warns_if_nothing_may_go(old: Daily) -> None:
    for base in old.bases:
        flip(base)
    with Deposits.open(old.url) as deposits, capture_logs() as logs:
        prune_now(old.url, TERMS._replace(retention_days=1), deposits)
    told = {(one["log_level"], one["event"]) for one in logs}
    assert ("warning", "nothing is pruned") in told
    assert {one["path"] for one in logs if one["event"] == "a base snapshot can't be used"} == {
        base.name for base in old.bases
    }


def test_the_command(old: Daily, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["wal", "prune", "--wal-dir", old.url, "--retention-days", "3"]
    before = old.standing()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert f"would remove {old.bases[0].name}/\n" in out
    assert "segments: 3 needed, 1 newest-segment, 5 older-than-retention, 3 too-young" in out
    assert "Give --confirm" in out
    assert old.standing() == before
    assert main([*words, "--confirm", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["confirmed"] is True
    assert document["anchor"] == old.bases[1].name
    assert sum(one["goes"] for one in document["segments"]) == 5
    assert len(old.standing()) < len(before)


def test_the_command_refuses(old: Daily, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for base in old.bases:
        shutil.rmtree(base)
    words = ["wal", "prune", "--wal-dir", old.url, "--confirm"]
    assert main([*words, "--json"]) == PruneRefused.exit_code == 3
    told = json.loads(capsys.readouterr().out)
    assert told["code"] == "prune-refused"
    assert "no base snapshot can be used" in told["refused"]
    assert "no base snapshot can be used" in told["detail"]
    assert {one["fate"]: one["goes"] for one in told["segments"]}["needed"] is False
    assert told["anchor"] is None
    assert main([*words[:-1], "--json"]) == 3, "what is not confirmed"
    assert {**json.loads(capsys.readouterr().out), "confirmed": True} == told
    assert main(words) == 3
    said = capsys.readouterr()
    assert "segments: 4 needed, 1 newest-segment, 7 too-young\n" in said.out
    assert "bases: none\n" in said.out
    assert "remove" not in said.out
    assert "code: prune-refused" in said.err
    assert main([*words, "--retention-days", "30"]) == 0
    assert main([*words, "--retention-days", "nan"]) == 2
    assert main(["wal", "prune", "--wal-dir", str(tmp_path / "nowhere")]) == ArchiveUnavailable.exit_code == 4


def test_a_refused_prune_names_nothing_that_it_removed(
    old: Daily, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dead one's hold stays, too, and is not told as gone."""
    (old.folder / "hold-1-dead.json").write_bytes(b"{}")
    (old.folder / old.segments[7].name.manifest).write_bytes(b"{}")
    words = ["wal", "prune", "--wal-dir", old.url, "--retention-days", "3", "--confirm", "--json"]
    before = old.standing() | {"prune.lock"}
    assert main(words) == 3
    told = json.loads(capsys.readouterr().out)
    assert "something is missing that nobody has accepted" in told["refused"]
    assert {one["fate"] for one in told["segments"]} >= {"blocked", "needed"}
    assert (told["leftovers"], told["bytes"]) == ([], 0)
    assert old.standing() == before


def test_a_spare_segment_goes_before_what_it_overlaps(daily: Daily) -> None:
    """Readers could not tell any more that it is spare once the others are gone."""
    late = [sealed(daily.history.appends[first : first + 2]) for first in (4, 9)]
    for one in late:
        write(daily.folder, one, None)
    looked = look(Folder(daily.url), TERMS, NOW_MS)
    removed = [file for step in looked.removals() for file in step]
    assert removed.index(str(late[0].name)) < removed.index(str(daily.segments[0].name))
    done = prune_once(daily.url, TERMS, confirm=True, now_ms=NOW_MS)
    assert done.leftovers == [str(late[0].name)]
    assert not (daily.folder / str(late[0].name)).exists()
    assert (daily.folder / str(late[1].name)).exists()
    assert [one.name for one in Folder(daily.url).segments()] == [one.name for one in daily.segments[5:]]
