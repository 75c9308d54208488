"""What ``headrace listen`` leaves behind: whole lines, a place that the server knows, a process that ends when told."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.listener import Listener, ListenerSettings, SqliteBookmarks
from tests import forks
from tests.scale import SEED, scaled, sized
from tests.servers import Feed, ServerProcess, changes, serving
from tests.waiting import async_wait_until, wait_until

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests here; one test kills and restarts it, which the others must not notice."""
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    made = Feed(server, f"vmapi::vm-{next(_numbers)}")
    assert made.register().status_code == 200
    return made


def command(feed: Feed, folder: Path, *words: str) -> list[str]:
    place = ["--bookmark", str(folder / "bookmark.db"), "--server", feed.server.url]
    return [*forks.HEADRACE, "listen", feed.name, *place, *words]


def listen(feed: Feed, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        command(feed, folder, *words), capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )


def wait_for_size(path: Path, size: int) -> None:
    wait_until(lambda: path.stat().st_size >= size, what=f"{path.name} of {size} bytes")


def post(feed: Feed, first: int, last: int) -> None:
    for start in range(first, last + 1, 100):
        entries = [{"changes": changes(number)} for number in range(start, min(last, start + 99) + 1)]
        assert feed.post(*entries).status_code == 200


def shown(feed: Feed, listener_id: str) -> dict[str, object]:
    views = feed.server.http.get(feed.path).json()["listeners"]
    return next(view for view in views if view["listener-id"] == listener_id)


def test_entry_broken_over_lines_is_one_line(feed: Feed, tmp_path: Path) -> None:
    posted = feed.post_raw(
        b'{"agent-id": "agent-1", "changes": {\n  "uuid": "a",\n  "n": 1.00000000000000001\n}}'
    )
    assert posted.status_code == 200, posted.text
    (line,) = listen(feed, tmp_path, "--once").stdout.splitlines()
    assert '"changes":{"uuid":"a","n":1.00000000000000001}' in line


def test_killed_at_any_moment_a_file_holds_whole_lines(
    server: ServerProcess, feed: Feed, tmp_path: Path
) -> None:
    """Every line is an entry; in order, at least once; without repeats exactly the feed."""
    rng = random.Random(SEED)
    total = 3000
    post(feed, 1, total)
    out = tmp_path / "out.ndjson"
    for _ in range(scaled(sized(3, soak=5))):
        with out.open("ab") as stdout, (tmp_path / "listen.err").open("ab") as stderr:
            size = out.stat().st_size + rng.randrange(1, 200_000)
            with forks.start(command(feed, tmp_path), stdout=stdout, stderr=stderr) as listener:
                wait_for_size(out, size)
                listener.send_signal(signal.SIGKILL)
        with out.open("r+b") as file:  # and as if the kill had come a little earlier, inside the last write
            file.truncate(out.stat().st_size - rng.randrange(0, 40))
        for name in ("bookmark.db", "bookmark.db-wal", "bookmark.db-shm"):  # as before that write was done
            (tmp_path / name).unlink(missing_ok=True)
    with out.open("ab") as stdout:
        assert forks.run(command(feed, tmp_path, "--once"), stdout=stdout, check=False).returncode == 0
    seen = [json.loads(line)["sequence-id"] for line in out.read_text().splitlines()]
    assert list(dict.fromkeys(seen)) == list(range(1, total + 1))


def test_stalled_reader_does_not_keep_the_process(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 2000)
    with forks.start(command(feed, tmp_path), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listener:
        assert listener.stdout is not None
        assert listener.stderr is not None
        assert os.read(listener.stdout.fileno(), 1) == b"{"
        listener.terminate()
        assert listener.wait(60) == 1
        assert b"they come again" in listener.stderr.read()
    rest = listen(feed, tmp_path, "--once").stdout.splitlines()
    assert json.loads(rest[0])["sequence-id"] == 1


def test_hanging_command_does_not_keep_the_process(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 1)
    script = tmp_path / "hang"
    script.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid\nsleep 600\n"
    )
    script.chmod(0o755)
    words = command(feed, tmp_path, "--exec", str(script))
    with forks.start(words, stderr=subprocess.PIPE) as listener:
        wait_until((tmp_path / "pid").exists)
        listener.terminate()
        assert listener.wait(60) == 1
    command_pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{command_pid}").exists(), what="the command to be ended too")


@pytest.mark.parametrize("text", ["", "'unclosed"], ids=["empty", "unclosed"])
def test_exec_that_is_no_command(feed: Feed, tmp_path: Path, text: str) -> None:
    refused = listen(feed, tmp_path, "--exec", text)
    assert refused.returncode == 2
    assert "code: usage" in refused.stderr
    assert not (tmp_path / "bookmark.db").exists()


def test_stale_bookmark_is_named_in_the_hint(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 1)
    assert listen(feed, tmp_path, "--once").returncode == 0
    with serving(tmp_path / "another") as other:
        made_anew = Feed(other, feed.name)
        assert made_anew.register().status_code == 200
        refused = listen(made_anew, tmp_path, "--once", "--from", "oldest")
    assert refused.returncode == 3
    assert "code: feed-recreated" in refused.stderr
    assert f"kept in {tmp_path}/bookmark.db" in refused.stderr


def test_unknown_feed_leaves_no_bookmark_file(server: ServerProcess, tmp_path: Path) -> None:
    assert listen(Feed(server, "no::such-feed"), tmp_path).returncode == 1
    assert list(tmp_path.iterdir()) == []


async def test_last_place_of_a_burst_is_told_when_it_ends(
    server: ServerProcess, feed: Feed, tmp_path: Path
) -> None:
    post(feed, 1, 300)
    settings = ListenerSettings(entries_max=10, drain=True)
    with closing(SqliteBookmarks(tmp_path / "b.db")) as bookmarks:
        async with Listener(feed.server.url, feed.name, "library", bookmarks, settings=settings) as listener:
            assert [change.sequence_id async for change in listener][-1] == 300
    assert shown(feed, "library")["sequence-id"] == 300
    assert shown(feed, "library")["lag-entries"] == 0


def test_idle_listener_shows_no_lag(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 5000)
    words = command(feed, tmp_path, "--listener-id", "idle")
    with forks.start(words, stdout=subprocess.DEVNULL) as listener:
        wait_until(lambda: place_of(feed, "idle") == 5000, what="the last place to be told")
        listener.terminate()
        assert listener.wait(60) == 0


def place_of(feed: Feed, listener_id: str) -> object:
    views = feed.server.http.get(feed.path).json()["listeners"]
    return next((view["sequence-id"] for view in views if view["listener-id"] == listener_id), None)


async def test_place_is_told_after_the_server_is_back(
    server: ServerProcess, feed: Feed, tmp_path: Path
) -> None:
    post(feed, 1, 1)
    with closing(SqliteBookmarks(tmp_path / "b.db")) as bookmarks:
        async with Listener(feed.server.url, feed.name, "library", bookmarks) as listener:
            coming = aiter(listener.batches())
            batch = await anext(coming)
            feed.server.kill()
            await batch.done()
            feed.server.start()
            await async_wait_until(lambda: place_of(feed, "library") == 1, what="the place to be told")
