"""Where a run's time goes: each folder's seconds and processor seconds, each test's and fixture's, and the servers started.

A plugin of every run. A test's processor time is that of its worker and of all processes below it: servers, databases,
Java, Python workers. ``HEADRACE_TEST_TIMES=FILE`` has it written to FILE, a line of JSON for each test;
``python -m tests.timing FILE`` prints the tables that ``docs/decisions`` quotes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import pytest

from tests.budget import CHECKED, loop_s, over

TIMES: Final = "HEADRACE_TEST_TIMES"
MARK: Final = "HEADRACE_TEST_WORKER"
"""A variable in the environment of all that a worker starts: a daemon is found by it when its parent has gone."""

FIXTURE_S_MIN: Final = 0.1
SAMPLE_S_MIN: Final = 0.2
"""A test that took less is sampled with those that follow it in its file."""
ROWS_SHOWN: Final = 60

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SERVERS: Final = {"postgres", "mariadbd", "java", "chromium"}


class _Process(NamedTuple):
    parent: int
    seconds: float
    name: str


class Tree:
    """The processes of one worker: the processor time they took, and the servers seen among them."""

    def __init__(self) -> None:
        self._last: dict[int, _Process] = {}
        self._strays: set[int] = set()
        self._gone_s = self._total_s = 0.0
        self.servers: Counter[str] = Counter()

    def seconds(self) -> float:
        """Return the processor seconds of this process and of all below it since its start, ended ones included.

        Linux adds those of an ended process to its parent. One whose parent ended before is counted as last seen: what was
        counted once stays counted.
        """
        there = dict(_processes())
        ours = {pid for pid in there if _below(pid, os.getpid(), there)}
        strays = {pid for pid in there if pid not in ours and (pid in self._last or _is_marked(pid))}
        self._gone_s += sum(self._last[pid].seconds for pid in self._strays - strays)
        self._strays = strays
        for pid in (ours | strays) - self._last.keys():
            name, parent = there[pid].name, there.get(there[pid].parent)
            if name in _SERVERS and (parent is None or parent.name != name):
                self.servers[name] += 1
        self._last = {pid: there[pid] for pid in ours | strays}
        now_s = sum(process.seconds for process in self._last.values())
        self._gone_s += max(0.0, self._total_s - now_s - self._gone_s)
        self._total_s = now_s + self._gone_s
        return self._total_s


def _processes() -> Iterator[tuple[int, _Process]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:  # it has ended
                continue
            command, _, rest = text.partition("(")[2].rpartition(")")
            parts = rest.split()
            yield (
                int(folder.name),
                _Process(int(parts[1]), sum(int(ticks) for ticks in parts[11:15]) / _TICKS, command),
            )


def _below(pid: int, top: int, there: dict[int, _Process]) -> bool:
    while pid != top and pid in there:
        pid = there[pid].parent
    return pid == top


def _is_marked(pid: int) -> bool:
    try:
        environment = Path("/proc", str(pid), "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK}={os.environ[MARK]}".encode() in environment.split(b"\0")


class Sampling:
    """In each process that runs tests: gives each test's last report its processor time, fixtures and servers."""

    def __init__(self) -> None:
        os.environ[MARK] = str(os.getpid())
        self._tree = Tree()
        self._last_s = self._tree.seconds()
        self._fixtures: list[tuple[str, str, float]] = []
        self._began = time.monotonic()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_finish(self) -> None:
        """Begin here: to find ten thousand tests takes each worker 20 s, which are no test's."""
        self._last_s, self._began = self._tree.seconds(), time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, Any, Any]:
        """Time a fixture, with those that it asks for."""
        began = time.monotonic()
        result = yield
        took = time.monotonic() - began
        if took >= FIXTURE_S_MIN:
            self._fixtures.append((fixturedef.argname, fixturedef.scope, round(took, 2)))
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        """Sample at the end of a test that took long, and of each file."""
        result = yield
        now = time.monotonic()
        if now - self._began >= SAMPLE_S_MIN or nextitem is None or nextitem.path != item.path:
            before, self._last_s = self._last_s, self._tree.seconds()
            servers, self._tree.servers = dict(self._tree.servers), Counter()
            item.user_properties.append(("processor_s", round(max(0.0, self._last_s - before), 2)))
            item.user_properties.append(("fixtures", self._fixtures))
            item.user_properties.append(("servers", servers))
            self._fixtures = []
            self._began = time.monotonic()
        return result


class Telling:
    """In the process that hears of all tests: adds up the folders, and writes what ``HEADRACE_TEST_TIMES`` asks for."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.processor_s: defaultdict[str, float] = defaultdict(float)
        self.tests: Counter[str] = Counter()
        self._loop_s = loop_s() if CHECKED in os.environ else 0.0
        self._over: list[str] = []
        self._phases: defaultdict[str, dict[str, float]] = defaultdict(dict)
        name = os.environ.get(TIMES)
        self._file = Path(name).open("a", encoding="utf-8") if name else None  # noqa: SIM115  # closed by unconfigure

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test to its folder; the last one tells the rest."""
        folder = folder_of(report.nodeid)
        self.seconds[folder] += report.duration
        self.tests[folder] += report.when == "call"
        phases = self._phases[report.nodeid]
        phases[report.when] = round(report.duration, 2)
        if report.when == "teardown":
            found: dict[str, Any] = {str(name): value for name, value in report.user_properties}
            self.processor_s[folder] += found.get("processor_s", 0.0)
            if self._file is not None:
                self._file.write(json.dumps({"test": report.nodeid, **phases, **found}) + "\n")
                self._file.flush()
            del self._phases[report.nodeid]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run in which a folder was over its budget, where that is asked for."""
        if CHECKED in os.environ:
            self._over = list(over(self.processor_s, max(self._loop_s, loop_s())))
            if self._over and session.exitstatus == pytest.ExitCode.OK:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print what each folder took, and which ones took too much."""
        if self.seconds:
            terminalreporter.section("time by folder: seconds, processor seconds, tests")
            for folder, seconds in sorted(self.seconds.items(), key=lambda item: -item[1]):
                terminalreporter.line(
                    f"{seconds:8.1f} {self.processor_s[folder]:8.1f} {self.tests[folder]:6d}  {folder}"
                )
            terminalreporter.line(
                f"{sum(self.seconds.values()):8.1f} {sum(self.processor_s.values()):8.1f} "
                f"{sum(self.tests.values()):6d}  in all"
            )
        for line in self._over:
            terminalreporter.line(f"over budget: {line}", red=True)

    def pytest_unconfigure(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def folder_of(nodeid: str) -> str:
    """Return the folder of a test."""
    return str(PurePosixPath(nodeid.partition("::")[0]).parent)


def pytest_configure(config: pytest.Config) -> None:
    """Sample where tests run; tell where all of them are heard of."""
    is_worker = hasattr(config, "workerinput")
    if is_worker or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Sampling(), "headrace-sampling")
    if not is_worker:
        config.pluginmanager.register(Telling(), "headrace-telling")


def main(file: Path) -> None:
    """Print the tables of a run that was written to ``file``."""
    tests = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    rows: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])
    fixtures: defaultdict[tuple[str, str, str], list[float]] = defaultdict(lambda: [0.0, 0])
    servers: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for test in tests:
        folder = folder_of(test["test"])
        test["seconds"] = sum(test.get(phase, 0.0) for phase in ("setup", "call", "teardown"))
        for at, value in enumerate((test["seconds"], test.get("processor_s", 0.0), 1)):
            rows[folder][at] += value
        for name, scope, seconds in test.get("fixtures", ()):
            fixtures[folder, name, scope][0] += seconds
            fixtures[folder, name, scope][1] += 1
        servers[folder].update(test.get("servers", {}))
    out = sys.stdout
    out.write("seconds processor tests folder (servers started)\n")
    for folder, (seconds, processor, count) in sorted(rows.items(), key=lambda item: -item[1][0]):
        started = ", ".join(f"{name} {number}" for name, number in sorted(servers[folder].items()))
        out.write(f"{seconds:8.1f} {processor:8.1f} {count:6.0f}  {folder}  {started}\n")
    out.write(
        f"{sum(row[0] for row in rows.values()):8.1f} {sum(row[1] for row in rows.values()):8.1f}  in all\n"
    )
    out.write("\nseconds processor test\n")
    for test in sorted(tests, key=lambda one: -one["seconds"])[:ROWS_SHOWN]:
        out.write(f"{test['seconds']:8.1f} {test.get('processor_s', 0.0):8.1f}  {test['test']}\n")
    out.write("\nseconds times fixture\n")
    for (folder, name, scope), (seconds, times) in sorted(fixtures.items(), key=lambda item: -item[1][0])[
        :ROWS_SHOWN
    ]:
        out.write(f"{seconds:8.1f} {times:6.0f}  {name} ({scope}) in {folder}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
