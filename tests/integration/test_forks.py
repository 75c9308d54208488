"""Forked ``headrace`` processes, which the tests use, are what started ones are."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import forks
from tests.waiting import wait_until

SERVE = ("serve", "--data-dir", "data", "--http", "127.0.0.1:0", "--grpc", "off", "--json")


def both(words: Sequence[str], **options: Any) -> tuple[Any, Any]:
    """A command forked and started."""
    command = [*forks.HEADRACE, *words]
    with forks.start(command, stdin=subprocess.DEVNULL, **options) as forked:
        told = forked.communicate(timeout=60)
    assert type(forked) is not subprocess.Popen, "it was not forked"
    done = subprocess.run(command, stdin=subprocess.DEVNULL, timeout=60, check=False, **options)
    return (forked.returncode, *told), (done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    "words",
    [
        ["--version"],
        ["serve", "--help"],
        ["nonsense"],
        ["feeds", "retention", "explain", "--json", "--server", "x"],
    ],
)
def test_they_say_the_same_and_end_the_same(words: list[str]) -> None:
    forked, started = both(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert forked == started
    assert forked[1] or forked[2]


def test_streams_folder_and_environment_are_its_own(tmp_path: Path) -> None:
    env = {**os.environ, "HEADRACE_SERVER": "ftp://nowhere"}
    asking = [*forks.HEADRACE, "feeds", "retention", "explain"]
    refused = forks.run(asking, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=env)
    assert "ftp://nowhere" in refused.stderr, refused
    with (tmp_path / "out").open("wb") as out:
        server = forks.start([*forks.HEADRACE, *SERVE], stdout=out, stderr=out, cwd=tmp_path)
    try:
        wait_until(lambda: (tmp_path / "out").read_text().endswith("\n"), what="the server's first line")
        assert (tmp_path / "data").is_dir()
        assert json.loads((tmp_path / "out").read_text())["http"]
        assert Path(f"/proc/{server.pid}/cwd").resolve() == tmp_path
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.01)
        assert server.poll() is None
    finally:
        server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0


def test_a_signal_that_ends_one_is_its_exit_code(tmp_path: Path) -> None:
    server = forks.start([*forks.HEADRACE, *SERVE], stdout=subprocess.PIPE, cwd=tmp_path)
    with server:
        assert server.stdout is not None
        assert server.stdout.readline()
        server.kill()
        assert server.wait(60) == -signal.SIGKILL
