"""Agents killed at any moment, under load: no gap, no overlap, every file whole, nothing acked that is not archived."""

from __future__ import annotations

import random
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyrage
import pytest

from headrace.archive.files.folder import Folder
from headrace.entries.lsn import ZERO, Lsn
from tests.integration.backup.agents import (
    AgentProcess,
    backing_up,
    backup,
    backup_command,
    entries_of,
    logged,
    lsns_of,
    registered,
)
from tests.s3 import S3Server
from tests.scale import SEED, scaled, sized
from tests.servers import Feed, ServerProcess, changes, serving

WORDS = ("--retention-days", "0")
SMALL = ("--segment-time", "20ms", "--segment-size", "4k")
IN_S3 = ("--segment-time", sized("200ms", soak="20ms"), "--segment-size", "64k")
"""Each object takes the S3 server ten times as long as a file."""
WRITTEN = "a segment is archived"


@contextmanager
def load(server: ServerProcess, feeds: list[Feed]) -> Iterator[None]:
    """Post to the feeds by turns for the length of a ``with``; a post without an answer is made again."""
    ending = threading.Event()

    def post() -> None:
        number = 0
        while not ending.is_set():
            number += 1
            feed = feeds[number % len(feeds)]
            entries = [{"changes": changes(number)} for _ in range(1 + number % 5)]
            feed.post(*entries)

    poster = threading.Thread(target=post)
    poster.start()
    try:
        yield
    finally:
        ending.set()
        poster.join()


def wait_written(agent: AgentProcess) -> None:
    """Wait until it has archived one more segment."""
    before = agent.said().count(WRITTEN)
    agent.until(lambda: agent.said().count(WRITTEN) > before, "a segment")


def acked(server: ServerProcess) -> Lsn:
    """Up to where the server knows that the backup has everything; ZERO if it does not know the backup."""
    (feed, *_) = server.http.get("/feeds").json()["feeds"]
    places = [Lsn.parse(one["lsn"]) for one in feed["subscribers"] if one["subscriber-id"] == "backup"]
    return places[0] if places else ZERO


def killed_again_and_again(
    server: ServerProcess,
    archive: Path | str,
    tmp_path: Path,
    rounds: int,
    *words: str,
    identity: str = "",
    env: Mapping[str, str] | None = None,
) -> None:
    """Kill an agent ``rounds`` times under load; new feeds come in between. In the end all of the log is archived."""
    rng = random.Random(SEED)
    feeds = registered(server, "shop::orders")
    feeds[0].post({"changes": changes(0)})
    begin = Lsn.from_int(int(lsns_of(logged(server))[0]) - 1)  # the place of a subscriber that never acked
    folder = Folder(str(archive), identity)
    for number in range(rounds):
        feeds += registered(server, f"shop::more-{number}")
        with (
            load(server, feeds),
            backing_up(server, archive, *WORDS, *words, folder=tmp_path / "agent", env=env) as agent,
        ):
            if number % 3 < 2:
                wait_written(agent)
            with pytest.raises(subprocess.TimeoutExpired):
                agent.process.wait(rng.random())
            agent.kill()
        segments = folder.segments(needed=False)
        manifests = folder.manifests(segments)
        assert sum(one.file not in manifests for one in segments) <= 1, (
            "but the one that it was about to tell of"
        )
        end = max((one.name.last for one in segments if one.told), default=ZERO)
        assert acked(server) <= max(end, begin), f"round {number}, seed {SEED}"
    backup_command(server, archive, *WORDS, *words, env=env)
    entries = entries_of(archive, identity)
    assert entries == logged(server), f"seed {SEED}"
    assert acked(server) == lsns_of(entries)[-1]
    left = [file for file in folder.files() if ".tmp" in file or "pending" in file]
    assert left == []


def test_killed_at_any_moment(tmp_path: Path) -> None:
    with serving(tmp_path / "server", grpc=True) as server:
        killed_again_and_again(server, tmp_path / "archive", tmp_path, scaled(sized(3, soak=4)), *SMALL)


def test_killed_at_any_moment_when_it_can_not_read_what_it_wrote(tmp_path: Path) -> None:
    key = pyrage.x25519.Identity.generate()
    identity = tmp_path / "key.txt"
    identity.write_text(f"# kept elsewhere\n{key}\n")
    archive = tmp_path / "archive"
    with serving(tmp_path / "server", grpc=True) as server:
        words = (*SMALL, "--recipient", str(key.to_public()))
        killed_again_and_again(server, archive, tmp_path, scaled(2), *words, identity=str(identity))
    assert {path.suffix for path in archive.glob("kdb-wal-*.bin*")} == {".age"}
    assert not any(b"object-" in path.read_bytes() for path in archive.iterdir())


def test_killed_at_any_moment_with_the_archive_in_s3(tmp_path: Path, s3: S3Server, s3_url: str) -> None:
    rounds = scaled(sized(1, soak=2))
    with serving(tmp_path / "server", grpc=True) as server:
        killed_again_and_again(server, s3_url, tmp_path, rounds, *IN_S3, env=s3.env)


def test_the_server_is_killed_under_load(tmp_path: Path) -> None:
    """What the agent was given once, the server still has after its crash, and the agent goes on behind it."""
    with serving(tmp_path / "server", grpc=True) as server:
        feeds = registered(server, "shop::orders")
        with backing_up(server, tmp_path / "archive", *WORDS, *SMALL, folder=tmp_path / "agent") as agent:
            for _ in range(scaled(2)):
                for first in range(20):
                    feeds[0].post({"changes": changes(first)})
                server.restart()
                feeds[0].register()
            agent.stop()
        backup(server, tmp_path / "archive")
        assert entries_of(tmp_path / "archive") == logged(server)
