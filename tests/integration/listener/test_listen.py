"""``headrace listen`` against a real server: kills on both sides, bookmarks, commands, and bad input."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.listener import Listener, ListenerSettings, SqliteBookmarks
from tests import forks
from tests.scale import scaled, sized
from tests.servers import Feed, ServerProcess, changes, serving
from tests.waiting import wait_until

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
    bookmark = [] if "--bookmark" in words else ["--bookmark", str(folder / "bookmark.db")]
    server = [] if "--server" in words else ["--server", feed.server.url]
    return [*forks.HEADRACE, "listen", feed.name, *bookmark, *server, *words]


def listen(feed: Feed, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        command(feed, folder, *words), capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )


def ids(lines: str) -> list[int]:
    return [json.loads(line)["sequence-id"] for line in lines.splitlines()]


def post(feed: Feed, first: int, last: int) -> None:
    for start in range(first, last + 1, 20):
        entries = [{"changes": changes(number)} for number in range(start, min(last, start + 19) + 1)]
        assert feed.post(*entries).status_code == 200


def test_once_drains_and_goes_on_from_the_bookmark(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 50)
    first = listen(feed, tmp_path, "--once", "--ndjson")
    assert first.returncode == 0, first.stderr
    assert ids(first.stdout) == list(range(1, 51))
    assert json.loads(first.stdout.splitlines()[0]) == feed.entries(1, 1)[0]
    post(feed, 51, 60)
    second = listen(feed, tmp_path, "--once", "--from", "oldest")
    assert ids(second.stdout) == list(range(51, 61))
    assert "going on after sequence id 50" in second.stderr
    assert listen(feed, tmp_path, "--once").stdout == ""
    views = feed.server.http.get(f"{feed.path}").json()["listeners"]
    assert views[0]["sequence-id"] >= 50


def test_from_a_place(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 10)
    assert ids(listen(feed, tmp_path, "--once", "--from", "8", "--listener-id", "a").stdout) == [8, 9, 10]
    assert ids(listen(feed, tmp_path, "--once", "--from", "head", "--listener-id", "b").stdout) == []
    beyond = listen(feed, tmp_path, "--once", "--from", "12", "--listener-id", "c")
    assert beyond.returncode == 3
    assert "beyond-head" in beyond.stderr


def test_listener_and_server_killed_in_the_middle_nothing_lost(feed: Feed, tmp_path: Path) -> None:
    out = tmp_path / "out.ndjson"
    total = 0
    for life in range(scaled(sized(2, soak=4))):
        with out.open("ab") as stdout, (tmp_path / "listen.err").open("ab") as stderr:
            words = command(feed, tmp_path, "--ndjson")
            with forks.start(words, stdout=stdout, stderr=stderr) as listener:
                post(feed, total + 1, total + 100)
                if life % 2:
                    feed.server.restart()
                post(feed, total + 101, total + 200)
                total += 200
                have = total - 60 if life % 2 else total
                wait_for_lines(out, have)
                listener.send_signal(signal.SIGKILL)
    rest = listen(feed, tmp_path, "--once")
    seen = ids("\n".join(line for line in (out.read_text() + rest.stdout).splitlines() if line.endswith("}")))
    assert list(dict.fromkeys(seen)) == list(range(1, total + 1))


def wait_for_lines(path: Path, count: int) -> None:
    wait_until(lambda: whole_lines(path) >= count, what=f"{count} entries")


def whole_lines(path: Path) -> int:
    return path.read_bytes().count(b"}\n")


def test_sigterm_ends_in_order(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 5)
    out = tmp_path / "out.ndjson"
    with out.open("wb") as stdout, forks.start(command(feed, tmp_path), stdout=stdout) as listener:
        wait_until(lambda: whole_lines(out) == 5)
        listener.terminate()
        assert listener.wait(30) == 0
    assert listen(feed, tmp_path, "--once").stdout == ""


def test_exec_runs_the_command_for_each_entry(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 3)
    script = tmp_path / "take"
    script.write_text('#!/bin/sh\ncat >> "$1"\n')
    script.chmod(0o755)
    done = listen(feed, tmp_path, "--once", "--exec", f"{script} {tmp_path}/taken")
    assert done.returncode == 0, done.stderr
    assert ids((tmp_path / "taken").read_text()) == [1, 2, 3]


def test_exec_that_fails_stops_before_its_entry(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 3)
    script = tmp_path / "take"
    script.write_text('#!/bin/sh\n[ "$HEADRACE_SEQUENCE_ID" = 2 ] && exit 7\nexit 0\n')
    script.chmod(0o755)
    failed = listen(feed, tmp_path, "--once", "--exec", str(script))
    assert failed.returncode == 1
    assert "command-failed" in failed.stderr
    assert "exit code 7 on entry 2" in failed.stderr
    assert ids(listen(feed, tmp_path, "--once").stdout) == [2, 3]


@pytest.mark.parametrize(
    ("words", "code", "exit_code"),
    [
        (["--from", "yesterday"], "usage", 2),
        (["--from", "0"], "usage", 2),
        (["--exec", "true", "--ndjson"], "usage", 2),
        (["--exec", "/no/such/program", "--once"], "usage", 2),
        (["--listener-id", "with space"], "invalid-request", 2),
        (["--token-file", "/no/such/file"], "config-invalid", 2),
        (["--server", "ftp://x"], "usage", 2),
        (["--server", "http://127.0.0.1:9", "--once"], "server-unreachable", 4),
    ],
)
def test_bad_input(feed: Feed, tmp_path: Path, words: list[str], code: str, exit_code: int) -> None:
    post(feed, 1, 1)
    refused = listen(feed, tmp_path, *words)
    assert refused.returncode == exit_code, refused.stderr
    assert f"code: {code}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_unknown_feed(server: ServerProcess, tmp_path: Path) -> None:
    refused = listen(Feed(server, "no::such-feed"), tmp_path)
    assert refused.returncode == 1
    assert "code: feed-not-found" in refused.stderr


def test_reader_that_goes_away_keeps_the_bookmark(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 5)
    gone = forks.run(
        ["sh", "-c", " ".join(command(feed, tmp_path, "--once")) + " | true"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "Traceback" not in gone.stderr


async def test_library_bookmark_moves_when_the_next_change_is_asked_for(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 10)
    settings = ListenerSettings(bookmark_changes_max=1, drain=True)
    with closing(SqliteBookmarks(tmp_path / "b.db")) as bookmarks:
        async with Listener(feed.server.url, feed.name, "library", bookmarks, settings=settings) as listener:
            changes_in = aiter(listener)
            for number in range(1, 5):
                assert (await anext(changes_in)).sequence_id == number
            await changes_in.aclose()  # type: ignore[attr-defined]  # an async generator behind AsyncIterator
            saved = listener.bookmark()
            assert saved is not None
            assert saved.sequence_id == 3
            rest = [change.state()["number"] async for change in listener]
        assert rest == list(range(4, 11))


async def test_library_batches_move_only_when_done(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 30)
    settings = ListenerSettings(entries_max=10, drain=True)
    with closing(SqliteBookmarks(tmp_path / "b.db")) as bookmarks:
        async with Listener(feed.server.url, feed.name, "library", bookmarks, settings=settings) as listener:
            async for batch in listener.batches():
                assert len(batch.changes) == 10
                saved = listener.bookmark()
                assert saved is not None
                assert saved.sequence_id == batch.changes[0].sequence_id - 1
                await batch.done()
