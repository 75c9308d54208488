"""``headrace capture copy``: ask the running capture to copy a table's rows once more."""

from __future__ import annotations

import json as json_format
import sys
import time
from pathlib import Path
from typing import Final

from headrace.capture.requests import CopyRequest, CopyRequests
from headrace.capture.settings import load_capture_settings
from headrace.cli.capture_options import Flag
from headrace.errors import TableNotFound, Usage, by_code
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import Disk

POLL_S: Final = 0.05
"""How often it is looked whether capture has taken the request."""

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells expect it."""


def copy_command(
    table: str,
    /,
    *,
    config: Path = Path("capture.toml"),
    no_wait: Flag = False,
    json: Flag = False,
) -> int:
    """Ask the running capture to copy the table's rows into the feed once more, while changes go on.

    Waits until it has begun; the copy then survives whatever happens. A table that was stopped is captured again from its
    copy on. Without a running capture the request waits for the next one.

    Parameters
    ----------
    table
        DATABASE.TABLE.
    config
        Capture's settings: the request goes through its state-dir, so both must be on one machine.
    no_wait
        Leave the request, and end.
    json
        Print one JSON document.
    """
    settings = load_capture_settings(config)
    database, _, name = table.partition(".")
    if not database or not name:
        raise Usage(f"{table!r} names no table", hint="Write DATABASE.TABLE.")
    if not settings.find_selection().captures(database, name):
        raise TableNotFound(f"{table} is not captured", hint="Name it in the setting tables first.")
    requests = CopyRequests(Path(settings.state_dir), settings.feed, Disk())
    request = requests.submit(database, name, SystemClock().wall_ms())
    try:
        begun = not no_wait and _wait_until_begun(requests, request)
    except KeyboardInterrupt:
        print(f"\nThe request stays: {request.id}. The next capture run takes it.", file=sys.stderr)
        return INTERRUPTED
    if json:
        print(json_format.dumps({"request": request.id, "table": table, "begun": begun}))
    else:
        print(f"the copy of {table} has begun" if begun else f"the copy of {table} was asked for")
    return 0


def _wait_until_begun(requests: CopyRequests, request: CopyRequest) -> bool:
    """Wait for as long as it takes; raises what capture answers if it refuses."""
    while requests.is_waiting(request.id):
        time.sleep(POLL_S)
    refusal = requests.take_refusal(request.id)
    if refusal is not None:
        raise by_code(refusal.code)(refusal.detail, hint=refusal.hint)
    return True
