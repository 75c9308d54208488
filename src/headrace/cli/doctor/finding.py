"""What ``headrace doctor`` is asked to look at, and what a check says."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from headrace.cli.serve_options import AccessOptions, RetentionOptions
from headrace.errors import HeadraceError
from headrace.publisher.settings import SERVER_DEFAULT, AgentSettings, load_agent_settings


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
    """What to look at, as it was given; None: there is no such thing here. ``began``: when the doctor began."""

    began: Moment
    data_dir: Path | None
    store: str | None
    disk_reserve: str | None
    access: AccessOptions
    retention: RetentionOptions
    server: str | None
    grpc: str | None
    token_file: Path | None
    ca_file: Path | None
    agent_config: Path | None
    capture_config: Path | None
    wal_dir: str | None
    identity: Path | None
    deep: bool

    @property
    def agent(self) -> AgentSettings | None:
        """The agent's settings where they can be read; the check of them says why not."""
        try:
            return load_agent_settings(self.agent_config) if self.agent_config is not None else None
        except HeadraceError:
            return None

    @property
    def is_server_named(self) -> bool:
        """Somebody said where the server is, so one must be there."""
        return self.server is not None or self.agent is not None

    @property
    def address(self) -> str:
        """The server's address: as given, else that of the agent's settings, else the one on this machine."""
        agent = self.agent
        return self.server or (agent.find_server(os.environ) if agent is not None else SERVER_DEFAULT)

    @property
    def token(self) -> Path | None:
        """The file of the token, if one is named."""
        agent = self.agent
        named = agent.token_file if agent is not None else None
        return self.token_file or (Path(named) if named is not None else None)

    @property
    def authorities(self) -> Path | None:
        """The file of the authorities to trust, if one is named."""
        agent = self.agent
        named = agent.ca_file if agent is not None else None
        return self.ca_file or (Path(named) if named is not None else None)


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
