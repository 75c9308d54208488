"""Logs go to stderr as JSON lines, never to stdout, however early the logger was made."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from headrace.errors import ConfigInvalid
from headrace.runtime.logs import configure_logs, get_logger

PROGRAM = """
from headrace.runtime.logs import configure_logs, get_logger
import headrace.log.files.store as store
early = get_logger("early")
configure_logs(level="LEVEL", as_json=True)
early.debug("detail"), early.info("first", number=1), get_logger("late").warning("second")
store.logger.error("third")
try:
    1 / 0
except ZeroDivisionError:
    early.exception("fourth")
"""


def run(level: str) -> list[dict[str, object]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("LEVEL", level)], capture_output=True, text=True, check=True
    )
    assert not done.stdout
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_lines_are_json_on_stderr() -> None:
    lines = run("info")
    assert [(line["event"], line["room"], line["level"]) for line in lines] == [
        ("first", "early", "info"),
        ("second", "late", "warning"),
        ("third", "log", "error"),
        ("fourth", "early", "error"),
    ]
    assert lines[0]["number"] == 1
    assert str(lines[0]["timestamp"]).endswith("Z")
    assert "ZeroDivisionError" in str(lines[3]["exception"])


def test_level_is_kept() -> None:
    assert [line["event"] for line in run("error")] == ["third", "fourth"]
    assert run("debug")[0]["event"] == "detail"


def test_stderr_may_be_replaced_later() -> None:
    """Nothing holds on to the stderr of the moment of configuring (a captured one that was closed meanwhile)."""
    program = (
        "import io, sys\n"
        "from headrace.runtime.logs import configure_logs, get_logger\n"
        "kept, sys.stderr = sys.stderr, io.StringIO()\n"
        "configure_logs(as_json=True); logger = get_logger('x'); logger.info('one'); sys.stderr.close()\n"
        "sys.stderr = kept; logger.info('two')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)["event"] == "two"


def test_names_are_importable() -> None:
    assert callable(configure_logs)
    assert get_logger("x") is not None


def test_a_terminal_is_not_shown_the_contents_of_variables() -> None:
    program = """
from headrace.runtime.logs import configure_logs, get_logger
configure_logs(as_json=False)
def fail():
    body = "the row of a customer " + "x" * 3
    raise ValueError("no good")
try:
    fail()
except ValueError:
    get_logger("late").exception("failed")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "no good" in done.stderr
    assert "customer xxx" not in done.stderr


def test_a_logger_that_was_used_follows_a_later_configuration() -> None:
    code = (
        "from structlog.testing import capture_logs\n"
        "from headrace.runtime.logs import configure_logs, get_logger\n"
        "configure_logs(as_json=True); logger = get_logger('x'); logger.info('one')\n"
        "configure_logs(as_json=True)\n"
        "with capture_logs() as caught: logger.info('two')\n"
        "assert [one['event'] for one in caught] == ['two'], caught\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert '"event": "one"' in done.stderr


def test_the_environment_chooses_format_and_level() -> None:
    program = (
        "from headrace.runtime.logs import configure_logs, get_logger\n"
        "configure_logs(); get_logger('x').info('one', number=1); get_logger('x').warning('two')\n"
    )

    def lines(**chosen: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, **chosen},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stderr.splitlines()

    assert [json.loads(line)["event"] for line in lines()] == ["one", "two"]
    assert [json.loads(line)["event"] for line in lines(HEADRACE_LOG_LEVEL="Warning")] == ["two"]
    (one, two) = lines(HEADRACE_LOG_FORMAT="console")
    assert "one" in one
    assert not one.startswith("{")
    assert not two.startswith("{")


@pytest.mark.parametrize("name", ["HEADRACE_LOG_FORMAT", "HEADRACE_LOG_LEVEL"])
def test_a_word_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(ConfigInvalid, match=f"{name}: 'loud' is none of"):
        configure_logs(environment={name: "loud"})
