"""The ``headrace`` command: a registry of commands, and how errors come out of all of them.

A command's module is imported when the command runs, so ``headrace --help`` stays quick. Each exposes ``app``, a cyclopts
App of the command's name. Exit codes: 0 done, 1 failed, 2 usage, 3 refused for safety, 4 target not reachable.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from cyclopts import App, CycloptsError, Group

from headrace import __version__
from headrace.errors import HeadraceError, Usage


class Command(NamedTuple):
    """Where a command lives (``module:attribute``), its line in the help, and the group that it stands in there."""

    place: str
    help: str
    group: str = ""


RUN, LOOK, CONSUME, PREPARE = "Run", "Look and mend", "Use what was captured", "Set up"
GROUPS: Final = (RUN, LOOK, CONSUME, PREPARE)
"""The groups of the help, in this order."""

COMMANDS: Final = {
    "serve": Command("headrace.cli.serve:app", "Run the server: the durable log and its HTTP API.", RUN),
    "agent": Command("headrace.cli.agent:app", "Relay a database's outbox to a feed.", RUN),
    "capture": Command("headrace.cli.capture:app", "Capture a MariaDB's binlog into a feed.", RUN),
    "up": Command("headrace.cli.up:app", "Run server and agent together, for a first try.", RUN),
    "demo": Command(
        "headrace.cli.demo:app", "Run the whole flow on this machine and compare what came out.", RUN
    ),
    "status": Command(
        "headrace.cli.status:app", "Show what a server knows: feeds, processes, consumers, alarms.", LOOK
    ),
    "doctor": Command(
        "headrace.cli.doctor:app", "Check configuration, machine and server, and say what to do.", LOOK
    ),
    "trace": Command("headrace.cli.trace:app", "Show what became of one entry.", LOOK),
    "explain": Command("headrace.cli.explain:app", "Print the runbook's page of a code.", LOOK),
    "feeds": Command("headrace.cli.feeds:app", "See and change a running server's feeds.", LOOK),
    "log": Command("headrace.cli.log:app", "Check, print and repair the journal of a data folder.", LOOK),
    "listen": Command("headrace.cli.listen:app", "Follow a feed from a durable bookmark.", CONSUME),
    "pipeline": Command("headrace.cli.pipeline:app", "Tables and more of a feed, on Spark.", CONSUME),
    "wal": Command(
        "headrace.cli.wal:app",
        "Work with the streams over all feeds, and with what is written from them.",
        CONSUME,
    ),
    "snapshot": Command(
        "headrace.cli.snapshot:app", "Base snapshots of an archive, from which restores begin.", CONSUME
    ),
    "publisher": Command(
        "headrace.cli.publisher:app", "Attach tables to a feed, check and detach them.", PREPARE
    ),
    "token": Command("headrace.cli.token:app", "Make and look at tokens for development.", PREPARE),
    "completion": Command(
        "headrace.cli.completion:app", "Print what makes a shell complete words of headrace.", PREPARE
    ),
}
"""Every command. One more is one module and one line here."""

ROOT_FLAGS: Final = ("--help", "-h", "--version")

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells expect it."""


def root() -> App:
    """Return the root command with all commands registered, none of them imported."""
    app = App(
        name="headrace",
        help="Every committed change of a database, in order and without loss, to any number of consumers.",
        help_epilogue="Exit codes: 0 done, 1 failed, 2 usage, 3 refused for safety, 4 target not reachable.",
        version=__version__,
    )
    groups = {name: Group(name, sort_key=number) for number, name in enumerate(GROUPS)}
    for name, command in COMMANDS.items():
        group = groups.get(command.group, groups[LOOK])
        app.command(command.place, name=name, help=command.help, group=group)
    return app


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; a user's mistake is three lines on stderr, never a traceback.

    On a terminal a fourth line names the runbook's page.

    With ``--json`` an error is one JSON document on stdout instead: ``code``, ``detail``, ``hint`` and its members.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(words)
    except HeadraceError as error:
        _tell(error, as_json="--json" in words)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Who read our output has gone. Python would complain again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(words: list[str]) -> int:
    if words and words[0] not in ROOT_FLAGS:
        _check_command(words[0])
        from headrace.runtime.logs import configure_logs

        configure_logs()
    try:
        command, bound, _ = root().parse_args(words, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        called = " ".join(["headrace", *words[:1]]) if words and words[0] in COMMANDS else "headrace"
        raise Usage(_plain(error), hint=f"See {called} --help.") from None
    result: Any = command(*bound.args, **bound.kwargs)
    if inspect.iscoroutine(result):
        result = asyncio.run(result)
    return result if isinstance(result, int) else 0


def _check_command(name: str) -> None:
    """Cyclopts would import every command to tell the user which one was meant."""
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise Usage(f"there is no command {name[:80]!r}", hint=f"{meant}See headrace --help.")


def _plain(error: CycloptsError) -> str:
    return " ".join(str(error).split())


def _tell(error: HeadraceError, *, as_json: bool) -> None:
    if as_json:
        document = {**error.members, "code": error.code, "detail": error.detail, "hint": error.advice}
        print(json.dumps(document, default=str), flush=True)
        return
    print(f"error: {error.detail}\ncode: {error.code}\nhint: {error.advice}", file=sys.stderr)
    if sys.stderr.isatty():  # a person; programs count on the three lines
        print(f"more: headrace explain {error.code}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
