"""A real server, backed up by the real agent into an object store, and the commands on that archive, as operators use it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.archive.moments.catalogue import Archive
from headrace.cli.app import main
from tests import forks
from tests.integration.backup.agents import backup
from tests.s3 import S3Server
from tests.servers import Feed, serving


def run(*commands: Sequence[str], env: Mapping[str, str]) -> list[Any]:
    """Run commands of ``headrace wal`` with ``--json``, at once: each waits for its own Spark. Return their documents."""
    words = [[*forks.HEADRACE, "wal", *one, "--json"] for one in commands]
    running = [
        forks.start(one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) for one in words
    ]
    found = []
    for one in running:
        out, error = one.communicate(timeout=300)
        assert one.returncode == 0, error
        (line,) = out.splitlines()
        found.append(json.loads(line))
    return found


def test_a_server_backed_up_to_s3_restored_and_drilled_by_the_commands(
    tmp_path: Path, s3: S3Server, s3_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str, code: int = 0) -> Any:
        assert main(["wal", words[0], "--wal-dir", s3_url, *words[1:], "--json"]) == code
        return json.loads(capsys.readouterr().out.splitlines()[-1])  # behind what the backup logs

    out = tmp_path / "out"
    with serving(tmp_path / "server", grpc=True) as server:
        feed = Feed(server, "shop::orders")
        assert feed.register().status_code == 200
        for number in range(40):
            entry = {"change-feed-id": feed.name, "key": f"k{number % 7}", "changes": {"n": number}}
            assert feed.post(entry).status_code == 200
            if number in {15, 30}:
                backup(server, s3_url)
        backup(server, s3_url)
    segments = Archive.read(s3_url).segments
    last = str(segments[-1].name.last)
    where, at = ("--wal-dir", s3_url, "--master", "local[1]"), ("--to-lsn", last)
    found, report = run(
        ["restore", *where, *at, "--as", "kv", "--out", str(out)],
        ["drill", *where, "--seed", "5", "--scratch", str(tmp_path)],
        env=s3.env,
    )
    assert (found["target-lsn"], found["feeds"][0]["rows"]) == (last, 7)
    assert found["plan"]["segments"] == [one.file for one in segments]
    assert (report["equal"], report["seed"], report["differences"]) == (True, 5, [])
    assert report["newest-lsn"] == last
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "out.restore.log", "server"]
    # Without Spark: what looks, what rebuilds a server, what takes away.
    assert [one["last-lsn"] for one in said("list")["windows"]] == [last]
    assert said("plan", *at)["target-lsn"] == last
    assert (said("verify")["findings"], len(segments)) == ([], 3)
    rebuilt = said("restore", *at, "--as", "server", "--data-dir", str(tmp_path / "rebuilt"))
    assert [one["next-sequence-id"] for one in rebuilt["feeds"]] == [41]
    assert [one["fate"] for one in said("prune", "--confirm")["segments"]] == [
        "too-young",
        "too-young",
        "newest-segment",
    ]
    # A store of objects can't be OUT: what is written there gets its name by a rename.
    refused = said("restore", *at, "--as", "kv", "--out", f"{s3_url}-out", code=2)
    assert "is no folder" in refused["detail"]


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
