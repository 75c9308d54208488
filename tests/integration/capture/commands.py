"""A capture.toml, and the commands of ``headrace capture`` that are given it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests import forks
from tests.agents import run_here
from tests.mariadb import Database
from tests.servers import ServerProcess

TIMEOUT_S = 120.0


class Capture:
    """A capture.toml, and commands that are given it."""

    def __init__(self, folder: Path, database: Database, server: ServerProcess, *lines: str) -> None:
        self.folder = folder
        self.feed = f"feed-{database.name}"
        self.name = database.name
        self.config = folder / "capture.toml"
        self.config.write_text(
            "\n".join(
                [
                    f'feed = "{self.feed}"',
                    f'server = "{server.url}"',
                    f'grpc = "{server.grpc_address}"',
                    f'state-dir = "{folder / "state"}"',
                    f'tables = ["{database.name}.*"]',
                    *lines,
                ]
            )
        )
        self.environment = os.environ | {"HEADRACE_DSN": database.dsn}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command as a process."""
        command = [*forks.HEADRACE, "capture", *words, "--config", str(self.config)]
        return forks.start(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command in this process, which is quicker; returns its exit code and what it printed."""
        words = ("capture", *words, "--config", str(self.config))
        return run_here(words, HEADRACE_DSN=self.environment["HEADRACE_DSN"])

    def document(self, *words: str, code: int = 0) -> dict[str, Any]:
        """The document that a command prints."""
        found, out, err = self.run(*words, "--json")
        assert found == code, out + err
        document: dict[str, Any] = json.loads(out)
        return document
