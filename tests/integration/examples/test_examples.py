"""The examples do what they say, as processes of their own against a real server that is killed in the middle."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proxy import Proxy
from tests.scale import sized
from tests.servers import Feed, ServerProcess, serving
from tests.waiting import wait_until

EXAMPLES = Path(__file__).parents[3] / "examples"
RUN_S_MAX = 120.0


class Example:
    """One run of an example; what it prints goes to a file."""

    def __init__(self, out: Path, name: str, url: str, *arguments: str) -> None:
        self.out = out
        command = [sys.executable, "-X", "faulthandler", str(EXAMPLES / name), "--server", url, *arguments]
        with out.open("wb") as stdout, out.with_suffix(".err").open("wb") as stderr:
            self.process = subprocess.Popen(command, stdout=stdout, stderr=stderr, stdin=subprocess.DEVNULL)

    def printed(self) -> str:
        """All whole lines so far."""
        text = self.out.read_text()
        return text[: text.rfind("\n") + 1]

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Wait until a line matches."""
        wait_until(lambda: re.search(pattern, self.printed()) or self.ended(), RUN_S_MAX, what=pattern)
        found = re.search(pattern, self.printed())
        assert found is not None, self.errors()
        return found

    def ended(self) -> bool:
        return self.process.poll() is not None

    def errors(self) -> str:
        return self.printed()[-2000:] + self.out.with_suffix(".err").read_text()[-4000:]

    def finish(self) -> str:
        """Wait for a good end; returns what was printed."""
        assert self.process.wait(RUN_S_MAX) == 0, self.errors()
        return self.printed()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(RUN_S_MAX)


@contextmanager
def example(out: Path, name: str, url: str, *arguments: str) -> Iterator[Example]:
    """Run an example; it is killed at the end of the ``with`` if it still runs."""
    run = Example(out, name, url, *arguments)
    try:
        yield run
    finally:
        run.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with serving(tmp_path) as running:
        yield running


def contents(server: ServerProcess, feed: str) -> list[dict[str, Any]]:
    """All changes of a feed, checked to be dense from 1."""
    found: list[dict[str, Any]] = []
    while entries := Feed(server, feed).entries(len(found) + 1, limit=10_000):
        assert [entry["sequence-id"] for entry in entries] == list(
            range(len(found) + 1, len(found) + 1 + len(entries))
        )
        found += [entry["changes"] for entry in entries]
    return found


def port_of(server: ServerProcess) -> int:
    return int(server.address.rpartition(":")[2])


def test_idempotent_producer_over_kills_and_cuts(server: ServerProcess, tmp_path: Path) -> None:
    """The server is killed twice; the connection breaks before a request came in, and after it was stored."""
    count = 300
    with (
        Proxy("127.0.0.1", port_of(server)) as proxy,
        example(
            tmp_path / "out",
            "idempotent_producer.py",
            f"http://127.0.0.1:{proxy.port}",
            "--count",
            str(count),
        ) as run,
    ):
        for number, delivered in ((30, True), (60, False), (90, True)):
            run.wait_for(rf"reading {number} ")
            proxy.cut_at(b"expected-offset", delivered=delivered)
            wait_until(lambda: proxy.sprung, RUN_S_MAX, what="the cut")
            proxy.resume()
        for number in (140, 200):
            run.wait_for(rf"reading {number} ")
            server.restart()
        printed = run.finish()
    assert contents(server, "readings") == [
        {"uuid": f"reading-{number}", "value": number} for number in range(1, count + 1)
    ]
    assert re.findall(r"reading (\d+) ", printed) == [str(number) for number in range(1, count + 1)]
    assert printed.count("found again") >= 2, "what was stored and not answered was found, not written again"


def test_bulk_load_goes_on_where_it_was(server: ServerProcess, tmp_path: Path) -> None:
    """Loader and server are killed in turn; the new loader knows nothing but the feed's end."""
    rows, batch = sized((10_000, 100), soak=(20_000, 200))
    arguments = ("--rows", str(rows), "--batch", str(batch))
    for number, least in enumerate((rows // 10, 3 * rows // 10)):
        with example(tmp_path / f"out-{number}", "bulk_load.py", server.url, *arguments) as run:
            run.wait_for(r"loaded up to row \d+")
            wait_for_rows(run, least)
            run.kill()
            server.restart()
    with example(tmp_path / "out-last", "bulk_load.py", server.url, *arguments) as run:
        began = int(run.wait_for(r"going on at row (\d+)")[1])
        assert began > 3 * rows // 10, "what was loaded is not loaded again"
        wait_for_rows(run, 6 * rows // 10)
        server.restart()
        assert run.finish().endswith("loaded all\n")
    found = contents(server, "archive")
    assert [entry["uuid"] for entry in found] == [f"row-{number}" for number in range(1, rows + 1)]


def test_bulk_load_takes_no_more_memory_the_more_it_loads(server: ServerProcess, tmp_path: Path) -> None:
    """It is killed at the end: a load that has ended can't be looked at any more.

    Batches are small, so that what a batch takes is little beside what is loaded."""
    rows, payload_bytes = sized(2_500, soak=5_000), 40_000
    arguments = ("--rows", "10000000", "--batch", "10", "--payload-bytes", str(payload_bytes))
    with example(tmp_path / "out", "bulk_load.py", server.url, *arguments) as run:
        wait_for_rows(run, 1_000)
        early = peak_bytes(run)
        wait_for_rows(run, rows)
        late = peak_bytes(run)
    assert late - early < rows * payload_bytes / 4


def peak_bytes(run: Example) -> int:
    """The most memory that the process has had so far."""
    status = Path(f"/proc/{run.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None, "the process has ended"
    return int(found[1]) * 1024


def wait_for_rows(run: Example, least: int) -> None:
    """Wait until a load has come so far, or has ended."""
    wait_until(lambda: loaded(run) >= least or run.ended(), RUN_S_MAX, what=f"{least} rows")


def loaded(run: Example) -> int:
    """Up to which row a load says that it has come; 0 before its first word."""
    return int((re.findall(r"loaded up to row (\d+)\n", run.printed()) or ["0"])[-1])


def test_commit_log_of_two_tills(server: ServerProcess, tmp_path: Path) -> None:
    """They compete for every seat; the server is killed meanwhile; each sale was decided on all sales before it."""
    seats = sized(150, soak=600)
    arguments = ("--seats", str(seats))
    with (
        example(tmp_path / "one", "commit_log.py", server.url, "--agent-id", "till-1", *arguments) as one,
        example(tmp_path / "two", "commit_log.py", server.url, "--agent-id", "till-2", *arguments) as two,
    ):
        first, second = met(one, two)
        first.process.send_signal(signal.SIGSTOP)  # what it has read grows old while the other one sells
        sold = second.printed().count("sold seat")
        wait_until(lambda: second.printed().count("sold seat") > sold + 3, RUN_S_MAX, what="more sales")
        second.process.send_signal(signal.SIGSTOP)
        server.restart()
        for run in (one, two):
            run.process.send_signal(signal.SIGCONT)
        said = [json.loads(run.finish().splitlines()[-1]) for run in (one, two)]
    sales = contents(server, "hall")
    assert [sale["seat"] for sale in sales] == list(range(1, seats + 1)), "each seat once, in order"
    for document in said:
        assert document["sold"] == [sale["seat"] for sale in sales if sale["till"] == document["till"]]
        assert document["sold"], "both sold something"
    assert "another till was first" in one.printed() + two.printed()


def met(one: Example, two: Example) -> tuple[Example, Example]:
    """Stop whichever till sells first until the other one does as well; returns them in that order, both running."""
    wait_until(lambda: "sold seat" in one.printed() + two.printed(), RUN_S_MAX, what="a first sale")
    first, second = (one, two) if "sold seat" in one.printed() else (two, one)
    first.process.send_signal(signal.SIGSTOP)
    second.wait_for("sold seat")
    first.process.send_signal(signal.SIGCONT)
    return first, second


def test_stale_till_is_refused_and_catches_up(server: ServerProcess, tmp_path: Path) -> None:
    """A till that has been stopped while another sold must not sell what it still takes for free."""
    feed = Feed(server, "hall")
    feed.agent = "till-9"
    assert feed.register(shared=True).status_code == 200
    with Proxy("127.0.0.1", port_of(server)) as proxy:
        url = f"http://127.0.0.1:{proxy.port}"
        with example(
            tmp_path / "out", "commit_log.py", url, "--agent-id", "till-1", "--seats", "5000"
        ) as run:
            run.wait_for("sold seat 3\n")
            proxy.freeze()

            def sell(sold: int) -> int:
                """Sell behind so many sales; returns how many there were, 0 if there are more by now."""
                sale = {"uuid": "late", "seat": 5000, "till": "till-9"}
                answer = feed.post({"changes": sale, "expected-offset": sold + 1})
                return sold if answer.status_code == 200 else 0

            # One request of the till may have got through, and be served now; another one may be held in the proxy: two
            # of ours in front of it make it stale for certain.
            stale = wait_until(lambda: sell(len(contents(server, "hall"))), what="a sale of the other till")
            assert sell(stale + 1)
            proxy.thaw()
            run.wait_for("another till was first")
            run.wait_for(rf"sold seat {stale + 3}\n")
    sales = contents(server, "hall")
    assert [sale["till"] for sale in sales[stale : stale + 2]] == ["till-9", "till-9"]
    assert len([sale for sale in sales if sale["till"] == "till-1"]) == len(sales) - 2
