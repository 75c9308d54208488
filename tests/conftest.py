"""What every test run has: hypothesis profiles, scaled rounds, and no silent skip."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.java_classes import start_quickly
from tests.scale import SCALE
from tests.scale import scaled as scaled_rounds

# Where time goes. And fixtures for every folder: a real PostgreSQL and databases in it, an S3 server, and the stores.
pytest_plugins = ["tests.timing", "tests.postgres", "tests.s3", "tests.stores"]

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
    """Note what was skipped; show a failure at once, as a run may be cut off."""
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
    """Print what was skipped."""
    for nodeid in _skipped:
        terminalreporter.line(f"skipped, which counts as failed: {nodeid}", red=True)
