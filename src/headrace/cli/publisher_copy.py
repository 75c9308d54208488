"""``headrace publisher copy``: copy an attached table's rows once more, or see to the copies that there are."""

from __future__ import annotations

import os
import sys
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter

from headrace.cli.copy_progress import copy_progress, describe
from headrace.errors import Usage
from headrace.publisher.attaching import drive_copy, opened_source, standing_of
from headrace.publisher.copies import CopyRequest, CopyStanding, CopyState, choose_attached
from headrace.publisher.source import Source
from headrace.runtime.dsn import Dsn, find_dsn

Flag = Annotated[bool, Parameter(negative=())]

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells expect it."""

_ACTIONS: Final = {
    "pause": (CopyState.PAUSED, (CopyState.RUNNING,)),
    "resume": (CopyState.RUNNING, (CopyState.PAUSED,)),
    "cancel": (CopyState.CANCELLED, (CopyState.RUNNING, CopyState.PAUSED)),
}
"""What an option makes of copies, and of which ones."""


def copy_command(
    dsn: str | None = None,
    *,
    table: str | None = None,
    where: str | None = None,
    rows_per_second: int | None = None,
    no_wait: Flag = False,
    pause: Flag = False,
    resume: Flag = False,
    cancel: Flag = False,
    status: Flag = False,
    dsn_file: Path | None = None,
    json: Flag = False,
) -> int:
    """Copy the rows of an attached table into its feed once more, while the application goes on.

    It may be interrupted or killed: the agent goes on with the copy, and so does the same command. A row's copy never comes
    after a later change of the row.

    Parameters
    ----------
    dsn
        The application's database. Default: --dsn-file, else HEADRACE_DSN.
    table
        The table.
    where
        Copy only rows that meet this SQL condition over the table's columns. It runs with the rights of the DSN's role.
    rows_per_second
        Copy at most so many rows a second, on average.
    no_wait
        Only begin (or resume) it, and leave the work to the agent.
    pause
        Halt the table's copies. Nobody goes on with them until --resume.
    resume
        Go on with the table's paused copies.
    cancel
        Give the table's copies up.
    status
        Show the copies of the table, or of all tables, that run, are paused, or ended last.
    dsn_file
        File whose first line is the DSN.
    json
        Print one JSON document.
    """
    chosen = [
        name
        for name, given in (("pause", pause), ("resume", resume), ("cancel", cancel), ("status", status))
        if given
    ]
    if len(chosen) > 1 or (chosen and (where is not None or rows_per_second is not None)):
        raise Usage("these options don't go together", hint="See headrace publisher copy --help.")
    source_dsn = find_dsn(dsn, dsn_file, os.environ)
    if not chosen and table is None:
        raise Usage("no table was named", hint="Name it with --table.")
    with opened_source(source_dsn) as source:
        if status:
            return _tell(_newest(_copies(source, table)), as_json=json)
        if chosen:
            copies = _set_state(source, table, chosen[0])
        else:
            assert table is not None  # noqa: S101  # asked above
            number = source.begin_copy(CopyRequest(table, where, rows_per_second))
            copies = [standing_of(source, number)]
    if no_wait or pause or cancel:
        return _tell(copies, as_json=json)
    return _drive(source_dsn, copies, as_json=json)


def _drive(dsn: Dsn, copies: list[CopyStanding], *, as_json: bool) -> int:
    done = []
    try:
        with copy_progress() as progress:
            done = [drive_copy(dsn, copy.number, progress) for copy in copies]
    except KeyboardInterrupt:
        table = copies[0].table
        print(
            f"\nThe agent goes on with the copy, and so does the same command. To halt it: "
            f"headrace publisher copy --table {table} --pause; to give it up: --cancel.",
            file=sys.stderr,
        )
        return INTERRUPTED
    return _tell(done, as_json=as_json)


def _set_state(source: Source, table: str | None, action: str) -> list[CopyStanding]:
    state, fitting = _ACTIONS[action]
    found = [copy for copy in _copies(source, table) if copy.state in fitting]
    if not found:
        words = " or ".join(one.value for one in fitting)
        raise Usage(
            f"no copy{f' of {table}' if table else ''} is {words}",
            hint="See headrace publisher copy --status.",
        )
    for copy in found:
        source.set_copy_state(copy.number, state)
    return [standing_of(source, copy.number) for copy in found]


def _copies(source: Source, table: str | None) -> list[CopyStanding]:
    copies = source.copies()
    if table is None:
        return copies
    attached = {one.table: one.table for one in source.check()} | {copy.table: copy.table for copy in copies}
    name = choose_attached(table, attached)
    return [copy for copy in copies if copy.table == name]


def _newest(copies: list[CopyStanding]) -> list[CopyStanding]:
    """Leave out what ended before the newest one of the same table."""
    newest = {copy.table: copy.number for copy in copies}
    return [copy for copy in copies if not copy.state.is_over or newest[copy.table] == copy.number]


def _tell(copies: list[CopyStanding], *, as_json: bool) -> int:
    if as_json:
        print(dump_json({"copies": [_document(copy) for copy in copies]}, ensure_ascii=False))
    else:
        for copy in copies:
            print(describe(copy))
        if not copies:
            print("there is no copy")
    return int(any(copy.state is CopyState.FAILED for copy in copies))


def _document(copy: CopyStanding) -> dict[str, Any]:
    return {
        "copy": copy.number,
        "table": copy.table,
        "feed": copy.feed,
        "state": copy.state,
        "where": copy.condition,
        "rows-per-second": copy.rows_per_second,
        "copied-rows": copy.rows,
        "locked-rows": copy.rows_left,
        "estimated-rows": copy.rows_estimated,
        "detail": copy.detail,
    }
