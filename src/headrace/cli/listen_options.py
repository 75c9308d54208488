"""Options of ``headrace listen`` that belong together: to whom entries are handed, and what if they are refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from headrace.cli.listen_exec import parse_command
from headrace.errors import Usage
from headrace.listener.handover import OnError, Refusals
from headrace.listener.parking import PARKED_MAX


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class HandingOptions:
    """To whom entries are handed, and what becomes of those that are refused.

    Parameters
    ----------
    exec_
        Run this command for each entry, with the entry as a line of JSON on its stdin.
    ack
        exit: a process for each entry, its exit code 0 means taken. line: one process is kept running and answers each line
        with one of its own, ok or refused REASON.
    on_error
        What becomes of an entry that the command refuses: retry, park (later entries of its key wait), or stop.
    attempts_max
        How often an entry is tried (default: 5; with --on-error retry, for ever).
    parked_max
        Stop when more entries than this would be parked.
    ndjson
        Print each entry as one line of JSON (this is what happens without --exec too).
    json
        The same as --ndjson, for scripts that always ask for JSON; progress on stderr is JSON too.
    """

    exec_: Annotated[str | None, Parameter(name="--exec")] = None
    ack: Literal["exit", "line"] = "exit"
    on_error: OnError = OnError.STOP
    attempts_max: int | None = None
    parked_max: int = PARKED_MAX
    ndjson: Annotated[bool, Parameter(negative=())] = False
    json: Annotated[bool, Parameter(negative=())] = False

    def refusals(self) -> Refusals:
        """Return what becomes of entries that are refused; Usage where the options don't go together."""
        if self.exec_ is not None and (self.ndjson or self.json):
            raise Usage("--exec and --ndjson can't be used together")
        if self.exec_ is None and (self.on_error is not OnError.STOP or self.ack != "exit"):
            raise Usage("--on-error and --ack are for commands", hint="Give --exec too.")
        if (self.attempts_max is not None and self.attempts_max < 1) or self.parked_max < 1:
            raise Usage("--attempts-max and --parked-max must be at least 1")
        return Refusals(self.on_error, self.attempts_max, self.parked_max)

    def words(self) -> list[str] | None:
        """Return the command's words; None without one. Usage."""
        return parse_command(self.exec_) if self.exec_ is not None else None
