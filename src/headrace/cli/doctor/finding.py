"""What ``headrace doctor`` is asked to look at, and what a check says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from headrace.cli.serve_options import AccessOptions, RetentionOptions
from headrace.errors import HeadraceError
from headrace.publisher.settings import AgentSettings


class Verdict(StrEnum):
    """``warn``: it works, and may not for long, or not as you think. ``fail``: it does not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Finding(NamedTuple):
    """What a check says of one thing. ``hint``: what to do; ``code``: whose page of the runbook says more, if any."""

    verdict: Verdict
    reason: str
    hint: str = ""
    code: str = ""


class Moment(NamedTuple):
    """Both clocks, read at once: UTC milliseconds, and seconds that never run backwards."""

    wall_ms: int
    monotonic_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What to look at; None: there is no such thing here. ``began``: when the doctor began.

    ``is_server_named``: somebody said where the server is, so one must be there. ``agent``: the settings of
    ``agent_config`` where they can be read.
    """

    began: Moment
    data_dir: Path | None
    store: str | None
    disk_reserve: str | None
    access: AccessOptions
    retention: RetentionOptions
    server: str
    is_server_named: bool
    grpc: str | None
    token_file: Path | None
    ca_file: Path | None
    agent_config: Path | None
    capture_config: Path | None
    agent: AgentSettings | None
    wal_dir: str | None
    identity: Path | None
    deep: bool


Check = Callable[[Asked], list[Finding]]
"""Looks at one thing and changes nothing. No finding: there is no such thing here. It may raise a HeadraceError: a fail."""


def ok(reason: str) -> Finding:
    """All is well."""
    return Finding(Verdict.OK, reason)


def warn(reason: str, hint: str, code: str = "") -> Finding:
    """It works, for now."""
    return Finding(Verdict.WARN, reason, hint, code)


def fail(reason: str, hint: str, code: str = "") -> Finding:
    """It does not work."""
    return Finding(Verdict.FAIL, reason, hint, code)


def failed(error: HeadraceError, what: str = "") -> Finding:
    """Return the finding that an error is; ``what`` stands in front of its detail."""
    return Finding(Verdict.FAIL, f"{what}{error.detail}", error.advice, error.code)
