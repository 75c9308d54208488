"""``headrace listen`` and the library with filters, against a real server: parts in parallel, members, keys, times."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headrace.listener import EntryFilter, Listener, ListenerSettings, Shard, SqliteBookmarks
from tests import forks
from tests.scale import scaled, sized
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import async_wait_until, wait_until

PARTS = 4
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    made = Feed(server, f"vmapi::vm-{next(_numbers)}")
    assert made.register().status_code == 200
    return made


def command(feed: Feed, *words: str) -> list[str]:
    return [
        *forks.HEADRACE, "listen", feed.name, "--server", feed.server.url, *words,
    ]  # fmt: skip


def listen(feed: Feed, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return forks.run(
        command(feed, "--once", *words), capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )


def ids(lines: str) -> list[int]:
    return [json.loads(line)["sequence-id"] for line in lines.splitlines()]


def place(feed: Feed, folder: Path, listener_id: str = "listen") -> int:
    with closing(SqliteBookmarks(folder / f"{feed.name.replace(':', '_')}.{listener_id}.bookmark")) as store:
        found = store.load(listener_id, feed.name)
    assert found is not None
    return found.sequence_id


def post(feed: Feed, first: int, last: int) -> None:
    """Entries of 17 keys."""
    for start in range(first, last + 1, 20):
        numbers = range(start, min(last, start + 19) + 1)
        entries = [{"key": f"vm-{number % 17}", "changes": {"number": number}} for number in numbers]
        assert feed.post(*entries).status_code == 200


def members(feed: Feed, *posted: dict[str, Any]) -> None:
    for entry in posted:
        assert feed.post({"key": "vm-1", "changes": {"ram": 1}, **entry}).status_code == 200


def test_parts_in_parallel_with_kills_get_everything_each_key_in_order(feed: Feed, tmp_path: Path) -> None:
    outs = [tmp_path / f"{part}.ndjson" for part in range(1, PARTS + 1)]
    total = 0
    for life in range(scaled(sized(2, soak=3))):
        with ExitStack() as stack:
            running = []
            for part, out in enumerate(outs, 1):
                words = command(feed, "--shard", f"{part}/{PARTS}")
                files = (
                    stack.enter_context(out.open("ab")),
                    stack.enter_context((tmp_path / "err").open("ab")),
                )
                running.append(
                    stack.enter_context(forks.start(words, stdout=files[0], stderr=files[1], cwd=tmp_path))
                )
            post(feed, total + 1, total + 100)
            wait_until(partial(has_lines, outs, total + 20), what="some entries")
            running[life % PARTS].send_signal(signal.SIGKILL)
            post(feed, total + 101, total + 160)
            total += 160
            for listener in running:
                listener.send_signal(signal.SIGKILL)
    got: dict[int, list[int]] = {}
    for part, out in enumerate(outs, 1):
        rest = listen(feed, tmp_path, "--shard", f"{part}/{PARTS}")
        assert rest.returncode == 0, rest.stderr
        whole = [line for line in (out.read_text() + rest.stdout).splitlines() if line.endswith("}")]
        got[part] = list(dict.fromkeys(ids("\n".join(whole))))
        assert got[part] == sorted(got[part]), "in order, but for what comes again after a kill"
        assert place(feed, tmp_path, f"listen.{part}-of-{PARTS}") == total
    assert sorted(itertools.chain(*got.values())) == list(range(1, total + 1)), "each in one part"
    for part, numbers in got.items():
        shard = Shard(part, PARTS)
        assert numbers == [n for n in range(1, total + 1) if shard.has(f"vm-{n % 17}".encode())]
    views = feed.server.http.get(feed.path).json()["listeners"]
    assert {view["listener-id"] for view in views} == {f"listen.{part}-of-{PARTS}" for part in got}


def has_lines(paths: list[Path], count: int) -> bool:
    return sum(path.read_bytes().count(b"}\n") for path in paths) >= count


def test_changed_delivers_deletes_always_and_the_bookmark_moves_past_the_rest(
    feed: Feed, tmp_path: Path
) -> None:
    members(
        feed,
        {"changed": ["nics"]},
        {"changed": ["ram"]},
        {"changes": {"alias": "a"}},
        {"op": "delete"},
        {"changed": ["ram", "alias"]},
        {"changed": ["ram"]},
        {"changed": ["ram"]},
    )
    first = listen(feed, tmp_path, "--changed", "nics,alias")
    assert ids(first.stdout) == [1, 3, 4, 5], first.stderr
    assert place(feed, tmp_path) == 7, "past what was not asked for"
    members(feed, {"changed": ["ram"]})
    assert listen(feed, tmp_path, "--changed", "alias,nics").stdout == ""
    assert place(feed, tmp_path) == 8
    (view,) = feed.server.http.get(feed.path).json()["listeners"]
    assert (view["sequence-id"], view["lag-entries"]) == (8, 0)


def test_one_object(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 40)
    assert ids(listen(feed, tmp_path, "--key", "vm-3").stdout) == [3, 20, 37]
    assert place(feed, tmp_path) == 40


async def test_quiet_filtered_listener_moves_its_bookmark_while_nothing_is_for_it(
    feed: Feed, tmp_path: Path
) -> None:
    post(feed, 1, 10)
    settings = ListenerSettings(poll_timeout_ms=200)
    with closing(SqliteBookmarks(tmp_path / "b.db")) as store:
        async with Listener(
            feed.server.url, feed.name, "quiet", store, wanted=EntryFilter(key=b"vm-99"), settings=settings
        ) as listener:
            coming = asyncio.ensure_future(anext(listener.batches()))

            def stands_at(number: int) -> bool:
                found = listener.bookmark()
                return found is not None and found.sequence_id == number

            await async_wait_until(lambda: stands_at(10), what="the bookmark to move past all of it")
            post(feed, 11, 30)
            await async_wait_until(lambda: stands_at(30), what="the bookmark to move past what was polled")
            assert feed.post({"key": "vm-99", "changes": {}}).status_code == 200
            batch = await coming
            assert [change.sequence_id for change in batch.changes] == [31]


def test_start_at_a_time(feed: Feed, tmp_path: Path) -> None:
    post(feed, 1, 20)
    times = {entry["sequence-id"]: entry["committed-at"] for entry in feed.entries()}
    last = feed.entries(20, 20)[0]["committed-at"]
    later = listen(feed, tmp_path, "--from", last, "--listener-id", "a")
    assert ids(later.stdout) == [number for number, time in times.items() if time >= last], later.stderr
    post(feed, 21, 22)
    again = listen(feed, tmp_path, "--from", "2020-01-01T00:00:00+01:00", "--listener-id", "a")
    assert ids(again.stdout) == [21, 22], "the bookmark wins"
    assert (
        len(ids(listen(feed, tmp_path, "--from", "2020-01-01T00:00:00+01:00", "--listener-id", "b").stdout))
        == 22
    )
    future = listen(feed, tmp_path, "--from", "2100-01-01T00:00:00Z", "--listener-id", "c")
    assert (future.returncode, future.stdout) == (0, "")
    post(feed, 23, 23)
    assert ids(listen(feed, tmp_path, "--listener-id", "c").stdout) == [23], "resolved once"
    part = listen(feed, tmp_path, "--from", last, "--key", "vm-6", "--listener-id", "d")
    assert ids(part.stdout) == [number for number in (6, 23) if number == 23 or times[number] >= last]


def test_bookmark_of_another_filter_is_refused_until_the_user_says_so(feed: Feed, tmp_path: Path) -> None:
    members(feed, {"changed": ["nics"]}, {"changed": ["ram"]})
    assert ids(listen(feed, tmp_path, "--changed", "nics").stdout) == [1]
    members(feed, {"changed": ["ram"]})
    for words in ([], ["--changed", "nics,ram"], ["--changed", "nics", "--key", "vm-1"]):
        refused = listen(feed, tmp_path, *words)
        assert refused.returncode == 3, refused.stderr
        assert "code: filter-differs" in refused.stderr
        assert 'made with {"changed":"nics"}' in refused.stderr
        assert "--change-filter" in refused.stderr
        assert refused.stdout == ""
    assert ids(listen(feed, tmp_path, "--changed", "nics,ram", "--change-filter").stdout) == [3]
    assert listen(feed, tmp_path, "--changed", "nics,ram").returncode == 0
    assert listen(feed, tmp_path, "--changed", "nics").returncode == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shard", "9/8"], "--shard: '9/8'"),
        (["--shard", "two"], "Write --shard=2/8"),
        (["--changed", "nics,,alias"], "--changed: 'nics,,alias'"),
        (["--key", b"\xff".decode(errors="surrogateescape")], "--key:"),
        (["--from", "2026-11-22T07:00:00"], "--from: '2026-11-22T07:00:00'"),
        (["--from", "2026-11-31T07:00:00Z"], "--from: '2026-11-31T07:00:00Z'"),
        (["--from", "0001-01-01T00:00:00+14:00"], "--from:"),
        (["--shard", "2/8", "--listener-id", "x" * 198], "listener-id:"),
    ],
    ids=lambda value: str(value).encode("ascii", "backslashreplace").decode()[:40],
)
def test_bad_values_are_usage_errors(feed: Feed, tmp_path: Path, words: list[str], said: str) -> None:
    refused = listen(feed, tmp_path, *words)
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []
