"""``headrace listen --exec --on-error``, ``--ack line`` and ``listen parked``, on the stores of bookmarks; ``--hold``."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from headrace.errors import ParkedWaiting
from headrace.listener import Listener, open_bookmarks
from tests import forks
from tests.postgres import Database
from tests.scale import chosen
from tests.servers import Feed, ServerProcess, serving

_numbers = itertools.count(1)

COMMAND = """
import json, os, pathlib, sys

folder = pathlib.Path(sys.argv[1])

def take(line):
    number = json.loads(line)["sequence-id"]
    with (folder / "asked").open("a") as out:
        out.write(f"{number}\\n")
    bad = set(map(int, (folder / "bad").read_text().split()))
    if number in bad:
        return f"refused no {number}"
    with (folder / "taken").open("a") as out:
        out.write(f"{number}\\n")
    return "ok"

if os.environ.get("HEADRACE_ACK") == "line":
    with (folder / "lives").open("a") as out:
        out.write("x")
    for line in sys.stdin:
        if (folder / "die").exists():
            (folder / "die").unlink()
            sys.exit(9)
        print(take(line), flush=True)
else:
    sys.exit(0 if take(sys.stdin.read()) == "ok" else 7)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def feed(server: ServerProcess) -> Feed:
    """Entries 1 to 6 of the keys a b a b c b."""
    made = Feed(server, f"vmapi::vm-{next(_numbers)}")
    assert made.register().status_code == 200
    post(made, "ababcb")
    return made


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test has one of the stores of bookmarks, as the run's seed has it; all of them in a soak."""
    if "bookmark" in metafunc.fixturenames:
        kinds = chosen(["sqlite", "file", "postgresql"], of=metafunc.function.__name__)
        metafunc.parametrize("bookmark", kinds, indirect=True)


@pytest.fixture
def bookmark(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        database: Database = request.getfixturevalue("database")
        return database.dsn
    return f"{request.param}:///{tmp_path}/bookmark"


def post(feed: Feed, keys: str) -> None:
    assert feed.post(*({"key": key, "changes": {"key": key}} for key in keys)).status_code == 200


class Run:
    """The command line in a folder, and what the command there was asked and has taken."""

    def __init__(self, feed: Feed, folder: Path, bookmark: str) -> None:
        self.feed = feed
        self.folder = folder
        self.bookmark = bookmark
        (folder / "command.py").write_text(COMMAND)
        self.command = f"{sys.executable} {folder}/command.py {folder}"
        self.refuse()

    def refuse(self, *numbers: int) -> None:
        (self.folder / "bad").write_text(" ".join(map(str, numbers)))

    def listen(self, *words: str) -> subprocess.CompletedProcess[str]:
        place = ["--server", self.feed.server.url, "--exec", self.command, "--once"]
        return self.call("listen", self.feed.name, *place, *words)

    def parked(self, what: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.call("listen", "parked", what, self.feed.name, *words)

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forks.run(
            [*forks.HEADRACE, *words, "--bookmark", self.bookmark],
            capture_output=True, text=True, timeout=120, check=False, cwd=self.folder,
        )  # fmt: skip

    def numbers(self, name: str) -> list[int]:
        path = self.folder / name
        return list(map(int, path.read_text().split())) if path.exists() else []


@pytest.fixture
def run(feed: Feed, tmp_path: Path, bookmark: str) -> Run:
    return Run(feed, tmp_path, bookmark)


@pytest.fixture
def plain(feed: Feed, tmp_path: Path) -> Run:
    """On the default store."""
    return Run(feed, tmp_path, str(tmp_path / "bookmark"))


def test_park_list_replay_and_drop(run: Run) -> None:
    run.refuse(2, 5)
    done = run.listen("--on-error", "park", "--attempts-max", "1")
    assert done.returncode == 0, done.stderr
    assert "entry 2 was refused, try 1: exit code 7" in done.stderr
    assert run.numbers("taken") == [1, 3]
    shown = json.loads(run.parked("list", "--json").stdout)["parked"]
    assert [(row["sequence-id"], row["held"]) for row in shown] == [
        (2, False),
        (4, True),
        (5, False),
        (6, True),
    ]
    assert shown[0]["entry"]["changes"] == {"key": "b"}
    assert shown[0]["reason"] == "exit code 7"
    assert "2\t" in run.parked("list").stdout
    post(run.feed, "bca")
    assert run.listen("--on-error", "park", "--attempts-max", "1").returncode == 0
    assert run.numbers("taken") == [1, 3, 9], "7 and 8 wait behind 2 and 5"
    run.refuse(4)
    again = run.parked("replay", "--exec", run.command, "--sequence-id", "2", "--json")
    assert json.loads(again.stdout) == {"taken": 1, "parked": 3}, again.stderr
    assert run.parked("drop", "--sequence-id", "4").returncode == 0
    assert run.listen("--on-error", "park", "--attempts-max", "1").returncode == 0
    assert run.numbers("taken") == [1, 3, 9, 2, 6, 7], "what waited behind the dropped one is due"
    assert json.loads(run.parked("drop", "--all", "--json").stdout) == {"dropped": [5, 8]}
    nothing = run.parked("list")
    assert (nothing.returncode, nothing.stdout) == (0, "")


def test_retry_goes_on_until_it_is_taken(plain: Run) -> None:
    plain.refuse(2)
    words = ["--on-error", "retry", "--attempts-max", "2"]
    failed = plain.listen(*words)
    assert failed.returncode == 1
    assert "exit code 7 on entry 2, 2 times" in failed.stderr
    plain.refuse()
    assert plain.listen(*words).returncode == 0
    assert plain.numbers("taken") == [1, 2, 3, 4, 5, 6]


def test_more_than_parked_max_stops(plain: Run) -> None:
    plain.refuse(1, 2)
    done = plain.listen("--on-error", "park", "--attempts-max", "1", "--parked-max", "2")
    assert done.returncode == 3
    assert "code: parked-too-many" in done.stderr
    assert len(json.loads(plain.parked("list", "--json").stdout)["parked"]) == 2


def test_more_than_parked_bytes_max_stops(plain: Run) -> None:
    plain.refuse(1, 2)
    words = ["--on-error", "park", "--attempts-max", "1"]
    done = plain.listen(*words, "--parked-bytes-max", "500")
    assert done.returncode == 3
    assert "code: parked-too-many" in done.stderr
    assert len(json.loads(plain.parked("list", "--json").stdout)["parked"]) == 1
    assert "--parked-bytes-max" in done.stderr
    assert plain.listen(*words, "--parked-bytes-max", "64k").returncode == 0


async def test_no_way_to_hand_over_lets_a_parked_entry_be_overtaken(run: Run) -> None:
    """What does not hold back later entries of a parked key does not begin; whoever has the bookmark goes on having it."""
    run.refuse(1)
    assert run.listen("--on-error", "park", "--attempts-max", "1").returncode == 0
    post(run.feed, "ac")
    done = run.call("listen", run.feed.name, "--server", run.feed.server.url, "--once")
    assert (done.returncode, done.stdout) == (3, "")
    assert "code: parked-waiting" in done.stderr
    assert "listen parked replay" in done.stderr
    for way in ("each", "batches", "deliveries"):
        with closing(open_bookmarks(run.bookmark)) as store:
            listener = Listener(run.feed.server.url, run.feed.name, "listen", store)
            ways = {
                "each": listener.__aiter__,
                "batches": listener.batches,
                "deliveries": listener.deliveries,
            }
            async with listener:
                with pytest.raises(ParkedWaiting, match="2 entries are parked, the first is 1 of text:a"):
                    await anext(aiter(ways[way]()))
    shown = json.loads(run.parked("list", "--json").stdout)["parked"]
    assert [row["sequence-id"] for row in shown] == [1, 3], "nothing moved"
    run.refuse()
    assert run.parked("drop", "--all").returncode == 0
    done = run.call("listen", run.feed.name, "--server", run.feed.server.url, "--once")
    assert [json.loads(line)["sequence-id"] for line in done.stdout.splitlines()] == [7, 8]


def test_one_process_answers_line_by_line(plain: Run) -> None:
    plain.refuse(2)
    done = plain.listen("--ack", "line", "--on-error", "park", "--attempts-max", "2")
    assert done.returncode == 0, done.stderr
    assert plain.numbers("taken") == [1, 3, 5]
    assert (plain.folder / "lives").read_text() == "x", "one process for all"
    assert json.loads(plain.parked("list", "--json").stdout)["parked"][0]["reason"] == "no 2"
    plain.refuse()
    replayed = plain.parked("replay", "--exec", plain.command, "--ack", "line")
    assert replayed.stdout == "3 taken, 0 still parked\n", replayed.stderr
    assert plain.numbers("taken") == [1, 3, 5, 2, 4, 6]


def test_process_that_dies_is_started_anew_and_its_entry_comes_again(plain: Run) -> None:
    (plain.folder / "die").touch()
    done = plain.listen("--ack", "line")
    assert done.returncode == 0, done.stderr
    assert "entry 1 was refused, try 1: exit code 9" in done.stderr
    assert plain.numbers("taken") == [1, 2, 3, 4, 5, 6]
    assert (plain.folder / "lives").read_text() == "xx"


def test_hold_is_registered(plain: Run) -> None:
    assert plain.listen("--hold", "--listener-id", "holder").returncode == 0
    views = plain.feed.server.http.get(plain.feed.path).json()["listeners"]
    assert next(view["hold"] for view in views if view["listener-id"] == "holder")


def test_parked_bad_input(plain: Run) -> None:
    assert plain.listen().returncode == 0
    for words, code in (
        (["drop"], "usage"),
        (["drop", "--sequence-id", "1", "--all"], "usage"),
        (["drop", "--sequence-id", "99"], "parked-not-found"),
        (["replay", "--exec", "true", "--sequence-id", "99"], "parked-not-found"),
        (["replay", "--exec", ""], "usage"),
    ):
        refused = plain.parked(*words)
        assert (refused.returncode, f"code: {code}" in refused.stderr) == (2, True), (words, refused.stderr)


@pytest.mark.parametrize(
    "words",
    [["--attempts-max", "0"], ["--parked-max", "0"], ["--on-error", "panic"], ["--bookmark", "redis://x"]],
    ids=["attempts", "parked", "word", "store"],
)
def test_listen_bad_input(plain: Run, words: list[str]) -> None:
    plain.bookmark = words[1] if words[0] == "--bookmark" else plain.bookmark
    refused = plain.listen(*([] if words[0] == "--bookmark" else words))
    assert refused.returncode == 2, refused.stderr
    assert "code: usage" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_parked_of_a_file_that_is_not_there_makes_none(plain: Run) -> None:
    assert plain.parked("list").returncode == 2
    assert not Path(plain.bookmark).exists()
