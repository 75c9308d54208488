"""A real ``headrace agent run`` for tests: start, kill, restart and stop it over a folder of its own; and commands."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from headrace.cli.app import main
from tests import forks

STOP_S_MAX = 60.0


class AgentProcess:
    """An agent that relays the source ``dsn`` to the server at ``url``; its output goes to ``folder/agent.err``."""

    program: Sequence[str] = forks.HEADRACE
    """What is run, before the words of the command."""

    def __init__(
        self, folder: Path, url: str, dsn: str, *feeds: str, agent_id: str = "agent-1", **settings: Any
    ) -> None:
        """``settings``: further keys of its settings, with underscores."""
        self.folder = folder
        self.dsn = dsn
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lines: dict[str, object] = {"agent-id": agent_id, "server": url, "feeds": list(feeds)}
        lines |= {name.replace("_", "-"): value for name, value in settings.items()}
        self._config = folder / "agent.toml"
        self._config.write_text("".join(f"{name} = {_toml(value)}\n" for name, value in lines.items()))

    def __enter__(self) -> AgentProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process."""
        assert self.process is None, "the agent runs already"
        with (self.folder / "agent.err").open("ab") as errors:
            self.process = forks.start(
                [*self.program, "agent", "run", "--config", str(self._config)],
                env={**os.environ, "HEADRACE_DSN": self.dsn},
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )

    def kill(self) -> None:
        """SIGKILL, whatever it is doing; nothing happens if it doesn't run."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait; returns the exit code."""
        return self._end(signal.SIGTERM)

    def ended(self) -> int | None:
        """The exit code, if it has ended by itself."""
        return None if self.process is None else self.process.poll()

    def errors(self) -> str:
        """What it wrote to stderr so far, all its lives together."""
        return (self.folder / "agent.err").read_text(encoding="utf-8", errors="replace")

    def status(self) -> Any:
        """What ``headrace agent status`` says of its feeds; fails if there is an alarm."""
        return headrace(["agent", "status", "--config", str(self._config)], HEADRACE_DSN=self.dsn)

    def _end(self, number: signal.Signals) -> int:
        if self.process is None:
            return 0
        process, self.process = self.process, None
        process.send_signal(number)
        return process.wait(STOP_S_MAX)


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def headrace(words: Sequence[str], **environment: str) -> Any:
    """Run a ``headrace`` command that prints one JSON document and return that; fails with its output if it fails."""
    done = forks.run(
        [*forks.HEADRACE, *words, "--json"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"headrace {' '.join(words)}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def run_here(words: Sequence[str], **environment: str) -> tuple[int, str, str]:
    """Run a ``headrace`` command in this process, which is quicker; returns its exit code and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name, value in environment.items():
            patch.setenv(name, value)
        code = main(list(words))
    return code, out.getvalue(), err.getvalue()
