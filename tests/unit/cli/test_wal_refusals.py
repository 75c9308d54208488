"""Each command on archives, called wrongly or where something is in the way: exit code, one document, nothing written.

What goes well, and damage that only a whole look finds, is tested where each command is.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.cli.app import main
from headrace.wire.base_manifest import MANIFEST
from tests.archive_model import Append, History, write_archive

HISTORY = History(
    [Append(7, 0), Append(8, 0, (("A", False), ("A", True))), Append(7, 0), Append(8, 5), Append(9, 12)]
)
LSNS = [str(one.lsn) for one in HISTORY.entries]
ALONE, INSIDE, BEHIND_GAP, BEYOND = LSNS[0], LSNS[1], LSNS[5], f"{'f' * 16}.1.1"
BEFORE_ALL = "2020-01-15T09:00:00Z"


class Refusal(NamedTuple):
    """Words of the command line, ``{dir}`` for the test's folder, and what they end with."""

    words: str
    code: int
    error: str


RESTORES = (
    "wal restore --as tables --out {dir}/out",
    "wal restore --as kv --out {dir}/out",
    "wal restore --as server --data-dir {dir}/out",
)
TO_A_MOMENT = ("wal plan", *RESTORES, "snapshot create")
READING = (*TO_A_MOMENT, "wal list", "wal verify", "wal drill --scratch {dir}", "wal gap ack", "wal prune")


SPARK = (*RESTORES[:2], "wal drill --scratch {dir}", "snapshot create")


def refusals() -> Iterator[Refusal]:
    """All of them."""
    wal = "--wal-dir {dir}/wal"
    for command in TO_A_MOMENT:
        called = f"{command} {wal}"
        yield Refusal(f"{called} --to-time 2027-01-15T08:00:00", 2, "usage")
        yield Refusal(f"{called} --to-lsn nonsense", 2, "usage")
        yield Refusal(f"{called} --to-lsn {ALONE} --to-commit-ts 7", 2, "usage")
        yield Refusal(f"{called} --to-lsn {ALONE} --feed shop", 2, "usage")
        yield Refusal(f"{called} --to-lsn {INSIDE}", 3, "target-inside-append")
        yield Refusal(f"{called} --to-lsn {BEHIND_GAP}", 3, "segment-gap")
        yield Refusal(f"{called} --to-lsn {BEYOND}", 4, "target-unreachable")
        yield Refusal(f"{called} --to-time {BEFORE_ALL}", 4, "target-unreachable")
        base = "--previous" if command == "snapshot create" else "--snapshot"
        at = f"{called} --to-lsn {LSNS[2]} {base}"
        yield Refusal(f"{at} {{dir}}/nowhere", 3, "base-corrupt")
        yield Refusal(f"{at} {{dir}}/kdb-base-{ALONE}", 3, "base-corrupt")
    for command in RESTORES:
        held = command.replace("{dir}/out", "{dir}/held")
        yield Refusal(f"{held} {wal} --to-lsn {ALONE}", 3, "out-not-empty")
    for command in READING:
        moment = f" --to-lsn {ALONE}" if command in TO_A_MOMENT else ""
        yield Refusal(f"{command} --wal-dir {{dir}}/nowhere{moment}", 4, "archive-unavailable")
        yield Refusal(f"{command} {wal}{moment} --no-such-option", 2, "usage")
        if command not in {"wal list", "wal gap ack", "wal prune"}:  # these open no segment
            yield Refusal(f"{command} {wal}{moment} --identity {{dir}}/nowhere", 2, "usage")
        yield Refusal(f"{command} --wal-dir zip://a::{{dir}}/nowhere{moment}", 4, "archive-unavailable")
    for command in ("wal verify", "wal prune", "wal prune --confirm"):
        yield Refusal(f"{command} --wal-dir {{dir}}/held", 4, "archive-unavailable")
    for command in SPARK:
        moment = f" --to-lsn {LSNS[2]}" if command in TO_A_MOMENT else ""
        yield Refusal(f"{command} {wal}{moment} --log-file {{dir}}/held/something/log", 2, "usage")
    publishers = "--from-publishers --server http://127.0.0.1:1"
    yield Refusal(f"snapshot create {wal} {publishers} --scratch {{dir}}/nowhere", 2, "usage")
    yield Refusal(f"{RESTORES[0]} {wal} --to-lsn {ALONE} --max-entries 0", 2, "usage")
    yield Refusal(f"snapshot create {wal} --buckets 0", 2, "usage")
    yield Refusal(f"wal verify {wal} --workers 0", 2, "usage")
    yield Refusal(f"wal prune {wal} --retention-days nan", 2, "usage")
    yield Refusal(f"wal gap ack {wal} --all", 2, "usage")
    nobody = "--server http://127.0.0.1:1"
    yield Refusal(f"wal rotate {nobody}", 4, "server-unreachable")
    yield Refusal(f"wal backup --once --pitr-dir {{dir}}/held {nobody}", 4, "server-unreachable")
    yield Refusal("wal backup --once --pitr-dir {dir}/held --segment-size 2g", 2, "usage")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An archive with a gap in ``wal``, a base that lacks its manifest beside it, and a folder that holds something."""
    bases = [HISTORY.entries[:1]]
    write_archive(tmp_path / "wal", HISTORY.segments([1, 2, 3]), lost=[2], bases=bases)
    base = f"kdb-base-{ALONE}"
    shutil.copytree(tmp_path / "wal" / base, tmp_path / base)
    (tmp_path / base / MANIFEST).unlink()
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "something").write_bytes(b"of somebody")
    return tmp_path


def test_each_refusal_is_one_document_and_a_code_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = standing(folder)
    for one in refusals():
        words = one.words.format(dir=folder).split()
        assert main([*words, "--json"]) == one.code, one
        (line,) = capsys.readouterr().out.splitlines()
        told = json.loads(line)
        assert told["code"] == one.error, (one, told)
        assert told["detail"], one
        assert standing(folder) == before, one
        if one.error == "target-unreachable":
            assert told["windows"][0]["last-lsn"] == LSNS[2], one
        elif one.error == "segment-gap":
            assert LSNS[2] in told["detail"], (one, told)


def standing(folder: Path) -> dict[str, bytes | None]:
    """All that is there: files with their bytes, but the lock that says who is at work, and folders."""
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {
        name: path.read_bytes() if path.is_file() else None
        for name, path in found.items()
        if not name.endswith(".lock")
    }
