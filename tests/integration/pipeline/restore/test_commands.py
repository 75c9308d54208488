"""A real server, backed up by the real agent: its restore and its drill by the commands, as an operator has them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.cli.app import main
from tests import forks
from tests.integration.backup.agents import backup
from tests.servers import Feed, serving


def run(*commands: Sequence[str]) -> list[Any]:
    """Run commands of ``headrace wal`` with ``--json``, at once: each waits for its own Spark. Return their documents."""
    words = [[*forks.HEADRACE, "wal", *one, "--json"] for one in commands]
    running = [forks.start(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for one in words]
    found = []
    for one in running:
        out, error = one.communicate(timeout=300)
        assert one.returncode == 0, error
        (line,) = out.splitlines()
        found.append(json.loads(line))
    return found


def test_a_server_restored_and_drilled_by_the_commands(tmp_path: Path) -> None:
    archive, out = tmp_path / "wal", tmp_path / "out"
    with serving(tmp_path / "server", grpc=True) as server:
        feed = Feed(server, "shop::orders")
        assert feed.register().status_code == 200
        for number in range(40):
            entry = {"change-feed-id": feed.name, "key": f"k{number % 7}", "changes": {"n": number}}
            assert feed.post(entry).status_code == 200
            if number in {15, 30}:
                backup(server, archive)
        backup(server, archive)
    last = str(Archive.read(str(archive)).segments[-1].name.last)
    where = ("--wal-dir", str(archive), "--master", "local[1]")
    found, report = run(
        ["restore", *where, "--to-lsn", last, "--as", "kv", "--out", str(out)],
        ["drill", *where, "--seed", "5", "--scratch", str(tmp_path)],
    )
    assert (found["target-lsn"], found["feeds"][0]["rows"]) == (last, 7)
    assert found["plan"]["segments"] == sorted(path.name for path in archive.glob("*.bin"))
    assert (report["equal"], report["seed"], report["differences"]) == (True, 5, [])
    assert report["newest-lsn"] == last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.restore.log", "server", "wal"]


def test_what_commands_refuse_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive, at = str(tmp_path), ("--to-lsn", "1.1.1")
    for words, detail in (
        (["--out", "o"], "no moment is named"),
        ([*at], "--as tables takes --out"),
        ([*at, "--out", "o", "--data-dir", "d"], "and neither --data-dir nor"),
        ([*at, "--as", "server", "--out", "o"], "--as server takes --data-dir"),
        ([*at, "--out", "o", "--identity", "nowhere"], "there is no such file"),
        ([*at, "--out", "o", "--feeds", "a b"], "not a valid name"),
    ):
        assert main(["wal", "restore", "--wal-dir", archive, *words, "--json"]) == 2
        assert detail in json.loads(capsys.readouterr().out)["detail"]
    assert main(["wal", "drill", "--wal-dir", archive, "--scratch", str(tmp_path / "none")]) == 2
