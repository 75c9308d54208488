"""Options of ``headrace listen`` that belong together: which entries are asked for; to whom they are handed, and what if
they are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from headrace.cli.listen_exec import parse_command
from headrace.errors import InvalidRequest, Usage
from headrace.listener.handover import OnError, Refusals
from headrace.listener.parking import PARKED_MAX
from headrace.runtime.settings import parse_size
from headrace.wire.filters import EntryFilter, entry_filter


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Which entries are asked for; each condition that is given must hold.

    Parameters
    ----------
    changed
        Only entries that changed one of these members (nics,alias), and deletes.
    key
        Only entries with this key.
    shard
        Only this part of the keys: 2/8 is the second of eight. Each part is a listener of its own (LISTENER-ID.2-of-8).
    change_filter
        Go on with another filter than the bookmark was made with; what the old one took away until now never comes.
    """

    changed: str | None = None
    key: str | None = None
    shard: str | None = None
    change_filter: Annotated[bool, Parameter(negative=())] = False

    def wanted(self) -> EntryFilter:
        """Return the filter; Usage naming the option that can't be read."""
        try:
            return entry_filter(self.changed, self.key, self.shard)
        except InvalidRequest as error:
            raise Usage(f"--{error.detail}", hint=error.advice.replace("Write ", "Write --")) from None


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
    parked_bytes_max
        Stop when the parked entries would take more than this (such as 64m; default 16m).
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
    parked_bytes_max: str = "16m"
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
        size = int(parse_size(self.parked_bytes_max, "--parked-bytes-max"))
        return Refusals(self.on_error, self.attempts_max, self.parked_max, size)

    def words(self) -> list[str] | None:
        """Return the command's words; None without one. Usage."""
        return parse_command(self.exec_) if self.exec_ is not None else None
