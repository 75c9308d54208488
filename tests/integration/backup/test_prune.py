"""A prune that is killed at any moment, one beside an agent that writes, and one of an object store that somebody reads."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import NamedTuple

import fsspec
import pytest

from headrace.archive.files.folder import Folder
from headrace.archive.moments.catalogue import Archive
from headrace.archive.moments.pruning import Terms
from headrace.archive.rights import holds
from headrace.archive.rights.holds import hold
from headrace.archive.rights.lease import Lease
from headrace.backup.pruning import prune_once
from headrace.backup.verifying.archive_check import verify
from tests import archive_model, forks
from tests.archive_model import Append, History, write_archive
from tests.base_files import write_next_base, write_whole_base
from tests.integration.backup.agents import backing_up, backup, entries_of, logged, post, registered
from tests.prune_model import DAY_MS
from tests.s3 import S3Server
from tests.scale import scaled, sized
from tests.servers import serving
from tests.waiting import wait_until

HOLDER = """
import sys
from headrace.archive.files.folder import Folder
from headrace.archive.rights.holds import hold
from headrace.entries.lsn import ZERO
with hold(Folder(sys.argv[1]), ZERO) as held:
    print(held, flush=True)
    sys.stdin.readline()
"""
SLEEPER = """
import os, signal, sys
from functools import partial
from headrace.archive.moments.pruning import Terms
from headrace.archive.rights.holds import pruning
from headrace.backup import pruning as prune
from headrace.errors import ArchiveOwned
remove = prune.remove
def remove_and_sleep(folder, files):
    remove(folder, files)
    prune.remove = remove
    os.kill(os.getpid(), signal.SIGSTOP)
prune.remove = remove_and_sleep
prune.pruning = partial(pruning, lease_s=1.0)
try:
    prune.prune_once(sys.argv[1], Terms(), confirm=True, now_ms=1 << 45)
except ArchiveOwned as lost:
    print(lost.detail)
"""
"""A prune that is stopped right after the first file that it removed."""


class Daily(NamedTuple):
    """An archive of a segment a day and a base every few days. ``anchor``: the oldest base that a prune keeps."""

    days: int
    every: int
    anchor: int


WHOLE = Daily(30, 5, 4)  # day 20: the newest base that is seven days old
IN_S3 = sized(Daily(14, 3, 2), soak=WHOLE)
LEASE_S = sized(15.0, soak=30.0)
"""Of who reads the archive in S3. A prune waits for a sign of life, of which there are three in that time."""
HELD = IN_S3.anchor // 2
"""The base on whose day a reader begins that the prune has to wait for."""
SEED = 11_22


def write_daily(folder: Path, monkeypatch: pytest.MonkeyPatch, daily: Daily) -> list[Path]:
    """Write an archive of so many days, years ago; returns the bases."""
    monkeypatch.setattr(archive_model, "TS", 1_700_000_000_000 << 18)
    history = History([Append(7, day * DAY_MS) for day in range(daily.days)])
    segments = history.segments(range(1, daily.days))
    write_archive(folder, segments)
    return [
        write_whole_base(folder, segments[: day + 1], segments[day].name.last)
        for day in range(0, daily.days, daily.every)
    ]


def count(folder: Path) -> int:
    """Files there but the prune's own; what goes meanwhile is passed over."""
    return sum(len(files) for _, _, files in os.walk(folder)) - (folder / "prune.lock").exists()


def test_a_prune_that_is_killed_leaves_an_archive_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases = write_daily(tmp_path / "whole", monkeypatch, WHOLE)
    anchor = bases[WHOLE.anchor].name.removeprefix("kdb-base-")
    last = str(Archive.read(str(tmp_path / "whole")).segments[-1].name.last)
    chance = random.Random(SEED)
    cut_off = 0
    for number in range(scaled(4)):
        folder = tmp_path / f"copy-{number}"
        shutil.copytree(tmp_path / "whole", folder)
        before = count(folder)
        gone = chance.randrange(1, 40)
        command = [
            *forks.HEADRACE,
            "wal",
            "prune",
            "--wal-dir",
            str(folder),
            "--confirm",
        ]
        with forks.start(command, stdout=subprocess.DEVNULL) as process:

            def is_time(
                folder: Path = folder,
                before: int = before,
                gone: int = gone,
                process: subprocess.Popen[bytes] = process,
            ) -> bool:
                return process.poll() is not None or count(folder) <= before - gone

            wait_until(is_time, what="files that are gone")
            process.kill()
        cut_off += process.returncode != 0
        assert verify(str(folder)).findings == [], (SEED, number)
        chain = Archive.read(str(folder)).chain
        assert chain.gaps() == [], (SEED, number)
        assert any(str(one.first) <= anchor and str(one.last) == last for one in chain.windows()), (
            SEED,
            number,
        )
        forks.run(command, check=True, stdout=subprocess.DEVNULL)
        found = Archive.read(str(folder))
        assert [one.path for one in found.bases] == [bases[4].name, bases[5].name]
        assert str(found.segments[0].name.last) == anchor
        shutil.rmtree(folder)
    assert cut_off, "at least one prune was cut off"


def test_a_prune_beside_an_agent_that_writes(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with serving(tmp_path / "server", grpc=True) as server:
        (feed,) = registered(server, "shop::orders")
        following, segments_gone = 1, 0
        with backing_up(server, archive, "--segment-size", "4k", folder=tmp_path / "agent") as agent:
            for _ in range(4):
                for _ in range(12):
                    post(feed, following, 40)
                    following += 40
                agent.until(lambda: len(list(archive.glob("*.bin"))) > 6, "segments")
                there = Archive.read(str(archive)).segments
                write_next_base(archive, there[-3].name.last)
                done = prune_once(str(archive), Terms(0, 0), confirm=True, now_ms=1 << 45)
                assert not done.refused
                segments_gone += len(done.plan.segments_going)
                assert verify(str(archive)).findings == []
            agent.stop()
        assert segments_gone > 4
        post(feed, following, 8)
        backup(server, archive)
        found = verify(str(archive))
        assert (found.findings, found.notes) == ([], [])
        left = entries_of(archive, gaps=True)
        assert 0 < len(left) < following + 7
        assert left == logged(server)[-len(left) :]


def test_a_prune_of_an_object_store_waits_for_who_reads_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server, s3_url: str
) -> None:
    bases = write_daily(tmp_path / "whole", monkeypatch, IN_S3)
    held_day = HELD * IN_S3.every
    store, root = fsspec.core.url_to_fs(s3_url)
    store.put(str(tmp_path / "whole"), root, recursive=True)
    assert verify(str(tmp_path / "whole")).findings == []
    folder, day = Folder(s3_url), Archive.read(s3_url).segments
    monkeypatch.setattr(holds, "Lease", partial(Lease, lease_s=LEASE_S))
    with hold(folder, day[held_day].name.last, "restore") as held:
        assert held
        done = prune_once(s3_url, Terms(), confirm=True, now_ms=1 << 45)
        assert done.plan.keep_from == day[held_day].name.last
        assert [one.path for one in Archive.read(s3_url).bases] == [one.name for one in bases[HELD:]]
        assert [one.file for one in Archive.read(s3_url).segments] == [one.file for one in day[held_day:]]
    holder = [sys.executable, "-c", HOLDER, s3_url]
    with forks.start(holder, env=s3.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        process.kill()
    done = prune_once(s3_url, Terms(), confirm=True, now_ms=1 << 45)
    assert [one.startswith("hold-") for one in done.leftovers] == [True]
    assert [one.path for one in Archive.read(s3_url).bases] == [one.name for one in bases[IN_S3.anchor :]]
    assert verify(s3_url).findings == []
    assert not [name for name in folder.files() if name.startswith("hold-")]


def test_a_prune_that_slept_removes_nothing_that_somebody_counts_on_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: S3Server, s3_url: str
) -> None:
    """It had looked before the hold stood, and stood still for so long that the hold no longer waited for it."""
    bases = write_daily(tmp_path / "whole", monkeypatch, IN_S3)
    held_day = HELD * IN_S3.every
    store, root = fsspec.core.url_to_fs(s3_url)
    store.put(str(tmp_path / "whole"), root, recursive=True)
    day = Archive.read(s3_url).segments
    command = [sys.executable, "-c", SLEEPER, s3_url]
    with subprocess.Popen(command, env=s3.env, stdout=subprocess.PIPE, text=True) as process:
        wait_until(lambda: state_of(process.pid) == "T", what="the prune to be stopped")
        with hold(Folder(s3_url), day[held_day].name.last) as held:
            assert held
            left = files_below(s3_url)
            assert [one.path for one in Archive.read(s3_url).bases] == [one.name for one in bases[1:]]
            process.send_signal(signal.SIGCONT)
            said, _ = process.communicate(timeout=60)
            assert "was taken by another process" in said
            assert process.returncode == 0
            assert files_below(s3_url) == left
            assert not prune_once(s3_url, Terms(), confirm=True, now_ms=1 << 45).refused, (
                "the next one goes on"
            )
            assert [one.file for one in Archive.read(s3_url).segments] == [one.file for one in day[held_day:]]
    assert verify(s3_url).findings == []


def files_below(url: str) -> list[str]:
    """All that an archive holds but the rights of prunes."""
    store, root = fsspec.core.url_to_fs(url)
    store.invalidate_cache()
    return [one for one in sorted(store.find(root)) if "/prune-" not in one and "/hold-" not in one]


def state_of(pid: int) -> str:
    """A process's state as Linux has it; T: stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
