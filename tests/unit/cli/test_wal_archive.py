"""``headrace wal list``, ``plan`` and ``gap ack``: what they print, as text and as JSON, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.archive.files.gaps import gap_file
from headrace.archive.moments.catalogue import Archive
from headrace.cli.app import main
from headrace.cli.wal_options import MomentOptions, time_ms
from headrace.entries.lsn import Lsn
from headrace.errors import Usage
from tests.archive_model import Append, History, write_archive
from tests.kwal import TS

T0 = TS >> 18
HISTORY = History(
    [Append(7, 0), Append(8, 0, (("A", False), ("A", True))), Append(7, 0), Append(8, 5), Append(9, 12)]
)
LSNS = [str(one.lsn) for one in HISTORY.entries]
TIME = "2027-01-15T08:00:00.{:03d}Z"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "wal"
    write_archive(path, HISTORY.segments([1, 2, 3]), lost=[2], bases=[HISTORY.entries[:1]])
    return path


def _json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["wal", *words, "--json"]) == code
    read: dict[str, Any] = json.loads(capsys.readouterr().out)
    return read


def _text(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["wal", *words]) == code
    return capsys.readouterr().out


def test_list_shows_windows_gaps_bases_segments_and_feeds(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = _json(capsys, "list", "--wal-dir", str(folder))
    assert [(one["first-lsn"], one["last-lsn"]) for one in told["windows"]] == [(LSNS[0], LSNS[2])]
    assert [one["after-lsn"] for one in told["gaps"]] == [LSNS[2]]
    assert told["gaps"][0]["acknowledged"] == []
    assert [(one["lsn"], one["rows"], one["usable"]) for one in told["bases"]] == [(LSNS[0], 0, True)]
    assert [(one["first-lsn"], one["entries"], one["encrypted"]) for one in told["segments"]] == [
        (LSNS[0], 1, False),
        (LSNS[1], 2, False),
        (LSNS[4], 2, False),
    ]
    assert [(one["feed"], one["first-sequence-id"], one["last-sequence-id"]) for one in told["feeds"]] == [
        ("shop", 1, 1),
        ("shop::orders", 1, 3),
        ("vmapi::vm", 1, 1),
    ]
    text = _text(capsys, "list", "--wal-dir", str(folder), "--feeds")
    assert f"reachable   {TIME.format(0)} to {TIME.format(0)}, from the beginning of the log" in text
    assert f"above lsn={LSNS[2]}, below" in text
    assert "segments    3, " in text
    assert "feed        shop::orders: sequence ids 1 to 3" in text


def test_many_segments_are_summed_up_unless_all_are_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History([Append(7, at) for at in range(13)])
    write_archive(tmp_path, history.segments(list(range(1, 13))))
    assert "kdb-wal-" not in _text(capsys, "list", "--wal-dir", str(tmp_path))
    assert _text(capsys, "list", "--wal-dir", str(tmp_path), "--all").count("kdb-wal-") == 13


def test_plan_prints_the_last_entry_kept_and_what_is_used(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("plan", "--wal-dir", str(folder), "--to-lsn", LSNS[2])
    told = _json(capsys, *words)
    assert told["asked"] == {"to-lsn": LSNS[2], "exact-entry": False}
    assert (told["target-lsn"], told["log-time"], told["source-time"]) == (LSNS[2], TIME.format(0), None)
    assert (told["moved-from"], told["nearest-before"], told["nearest-after"]) == (None, LSNS[0], None)
    assert told["base"]["lsn"] == LSNS[0]
    assert [LSNS[2] in one for one in told["segments"]] == [True]
    text = _text(capsys, *words)
    assert f"last entry kept   lsn={LSNS[2]}" in text
    assert "feed              shop::orders: sequence ids 1 to 2" in text


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("--to-lsn", LSNS[1]), 3, "target-inside-append"),
        (("--to-lsn", LSNS[5]), 3, "segment-gap"),
        (("--to-time", "2027-01-15T09:00:00Z"), 4, "target-unreachable"),
        (("--to-time", "2020-01-15T09:00:00Z"), 4, "target-unreachable"),
        (("--to-time", "2027-01-15T09:00:00"), 2, "usage"),
        (("--to-lsn", "nonsense"), 2, "usage"),
        (("--to-lsn", LSNS[1], "--to-commit-ts", "7"), 2, "usage"),
        ((), 2, "usage"),
    ],
)
def test_a_moment_that_cant_be_planned_is_one_document_and_a_code(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, error: str
) -> None:
    told = _json(capsys, "plan", "--wal-dir", str(folder), *words, code=code)
    assert told["code"] == error
    if code == 4:
        assert told["windows"][0]["last-lsn"] == LSNS[2]


def test_an_archive_that_is_not_there_is_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _json(capsys, "list", "--wal-dir", str(tmp_path / "no"), code=4)["code"] == "archive-unavailable"
    assert _json(capsys, "list", "--wal-dir", str(tmp_path), code=2)["code"] == "invalid-request"


def test_a_gap_is_listed_accepted_with_a_reason_and_then_gone_over(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ack = ("gap", "ack", "--wal-dir", str(folder))
    (gap,) = _json(capsys, *ack)["gaps"]
    ends = ("--from", gap["after-lsn"], "--to", gap["before-lsn"])
    files = sorted(folder.iterdir())
    assert _json(capsys, *ack, *ends, code=2)["detail"] == "say why: --reason TEXT"
    wrong = _json(capsys, *ack, "--from", LSNS[0], "--to", LSNS[1], "--reason", "x", code=2)
    assert "there is no gap" in wrong["detail"]
    assert _json(capsys, *ack, "--from", LSNS[0], code=2)["code"] == "usage"
    assert sorted(folder.iterdir()) == files, "nothing was written"

    told = _json(capsys, *ack, *ends, "--reason", "a disk died")
    assert told["accepted"] == 1
    assert [one["reason"] for one in told["gaps"][0]["acknowledged"]] == ["a disk died"]
    assert _json(capsys, *ack, "--all", "--reason", "again")["accepted"] == 0
    assert _json(capsys, "plan", "--wal-dir", str(folder), "--to-lsn", LSNS[5])["gaps"] == told["gaps"]
    text = _text(capsys, "list", "--wal-dir", str(folder))
    assert "accepted by " in text
    assert ": a disk died" in text
    assert "but for 1 accepted gaps" in text
    assert "a disk died" in _text(capsys, *ack)


def test_a_loss_behind_the_archives_end_may_be_accepted_before_the_agent_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = ("--from", LSNS[5], "--to", str(Lsn(TS + (99 << 18), 7, 50)))
    assert (
        _json(capsys, "gap", "ack", "--wal-dir", str(folder), *ends, "--reason", "too slow")["accepted"] == 1
    )
    (record,) = Archive.read(str(folder)).gaps_acknowledged
    assert (record.after, record.before, record.reason) == (ends[1], ends[3], "too slow")
    again = ("gap", "ack", "--wal-dir", str(folder), *ends, "--reason", "too slow")
    assert _json(capsys, *again)["accepted"] == 0
    assert main(["wal", *again]) == 0
    assert ": too slow" in capsys.readouterr().err
    (folder / gap_file(record)).write_bytes(b"{}")
    assert _json(capsys, *again, code=3)["code"] == "segment-corrupt"


def test_what_is_not_lost_yet_cant_be_accepted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ends = ("--from", LSNS[5], "--to", str(Lsn(TS + (1 << 35), 7, 50)))
    told = _json(capsys, "gap", "ack", "--wal-dir", str(folder), *ends, "--reason", "too slow", code=2)
    assert "is in the future" in told["detail"]
    assert Archive.read(str(folder)).gaps_acknowledged == []


def test_a_file_that_is_damaged_is_named_and_the_rest_is_of_use(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = folder / f"kdb-gap-{LSNS[5]}-{Lsn(TS + (99 << 18), 7, 50)}.json"
    record.write_bytes(b"{}")
    manifest = max(folder.glob("*.manifest.json"))
    data = bytearray(manifest.read_bytes())
    data[40] ^= 1
    manifest.write_bytes(data)
    found = _json(capsys, "plan", "--wal-dir", str(folder), "--to-lsn", LSNS[2])
    for file in (record, manifest):
        assert [file.name in warning for warning in found["warnings"]].count(True) == 1
    damaged = _json(capsys, "list", "--wal-dir", str(folder))["damaged"]
    assert [one.partition(" ")[0] for one in damaged] == [str(manifest), str(record)]
    text = _text(capsys, "list", "--wal-dir", str(folder))
    assert text.count("damaged     ") == 2
    assert "has no manifest that can be used" in text
    refused = _json(capsys, "plan", "--wal-dir", str(folder), "--to-lsn", LSNS[5], code=4)
    assert "has no manifest that can be used" in refused["detail"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("2027-01-15T08:00:00Z", T0),
        ("2027-01-15T09:00:00+01:00", T0),
        ("2027-01-15t08:00:00.25z", T0 + 250),
        ("2027-01-15 08:00:00.0009999Z", T0),
        ("2027-01-15T08:00:00.001999999Z", T0 + 1),
    ],
)
def test_times_are_rfc_3339_and_finer_digits_are_cut_off(text: str, ms: int) -> None:
    assert time_ms(text, "--to-time") == ms


@pytest.mark.parametrize(
    "text",
    [
        "2027-01-15T08:00:00",
        "2027-01-15",
        "2027-01-15T08:00Z",
        "1969-12-31T23:59:59Z",
        "2027-02-30T00:00:00Z",
        "now",
    ],
)
def test_what_is_no_time_with_an_offset_is_a_usage_error(text: str) -> None:
    with pytest.raises(Usage, match="--to-time"):
        time_ms(text, "--to-time")


def test_a_feed_goes_with_what_its_source_says_only() -> None:
    with pytest.raises(Usage, match="a moment of all feeds"):
        MomentOptions(to_lsn=LSNS[0], feed="shop").asked()
    with pytest.raises(Usage, match="above 0"):
        MomentOptions(to_commit_ts=0).asked()
    asked = MomentOptions(to_commit_ts=7, feed="shop", exact_entry=True).asked()
    assert (asked.to_commit_ts, asked.feed, asked.exact_entry) == (7, "shop", True)
