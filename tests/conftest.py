"""What every test run has: hypothesis profiles, scaled rounds, the time of each folder, and no silent skip."""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import PurePosixPath

import pytest
from hypothesis import HealthCheck, settings

from tests.java_classes import start_quickly
from tests.scale import SCALE
from tests.scale import scaled as scaled_rounds

# Fixtures for every folder: a real PostgreSQL cluster and databases in it, an S3 server, and the stores.
pytest_plugins = ["tests.postgres", "tests.s3", "tests.stores"]

# A busy machine makes generation slow, which says nothing about the code: hence no deadline, no too_slow.
_QUIET = [HealthCheck.too_slow]
settings.register_profile(
    "dev", max_examples=scaled_rounds(100), deadline=None, print_blob=True, suppress_health_check=_QUIET
)
settings.register_profile(
    "ci", settings.get_profile("dev"), max_examples=scaled_rounds(200), stateful_step_count=60
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))

start_quickly(os.environ)

_seconds: defaultdict[str, float] = defaultdict(float)
_tests: defaultdict[str, int] = defaultdict(int)
_skipped: list[str] = []

_LINES_SHOWN_AT_ONCE = 40


@pytest.fixture(scope="session")
def scaled() -> Callable[[int], int]:
    """Give the function that multiplies a number of rounds by ``HEADRACE_TEST_SCALE``."""
    return scaled_rounds


def pytest_report_header() -> str:
    """Say in the header what scales the run."""
    return (
        f"headrace: HEADRACE_TEST_SCALE={SCALE:g}, hypothesis profile {settings.get_current_profile_name()}"
    )


def pytest_collection_finish() -> None:
    """Take what was imported for ten thousand tests out of what each collection of garbage looks through."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add a test's set-up, call and tear-down to its folder; show a failure at once, as a run may be cut off."""
    folder = str(PurePosixPath(report.nodeid.partition("::")[0]).parent)
    _seconds[folder] += report.duration
    _tests[folder] += report.when == "call"
    if report.skipped:
        _skipped.append(report.nodeid)
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        lines = report.longreprtext.splitlines()[-_LINES_SHOWN_AT_ONCE:]
        sys.stderr.write("\n".join([f"\nfailed: {report.nodeid} ({report.when})", *lines, ""]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that skipped anything: a skipped test is a hole."""
    if _skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time that each folder took, and what was skipped."""
    if _seconds:
        terminalreporter.section("time by folder")
        for folder, seconds in sorted(_seconds.items(), key=lambda item: -item[1]):
            terminalreporter.line(f"{seconds:8.1f} s {_tests[folder]:6d} tests  {folder}")
        terminalreporter.line(f"{sum(_seconds.values()):8.1f} s {sum(_tests.values()):6d} tests  in all")
    for nodeid in _skipped:
        terminalreporter.line(f"skipped, which counts as failed: {nodeid}", red=True)
