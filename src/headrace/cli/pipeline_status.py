"""``headrace pipeline status``: how far the tables are, and which are stopped."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from headrace.cli.spark_jobs import check_installed

if TYPE_CHECKING:
    from headrace.pipeline.tables.standing import Standing, TableStanding

_ORIGINS = {
    "feed": "the feed's entries",
    "archive": "the archive",
    "snapshot": "the publisher's snapshot",
    "copy": "a copy in the feed",
}

ANSWER_S_MAX = 5.0
"""So long the server may be away before its part is left out."""


def status_command(
    *,
    to: str,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Show what is published, how far behind the feed each table is, and what is stopped, why, and what helps.

    Works whether the job runs or not, and starts no Spark. Exit code 1 if a table is stopped, or the server can't be asked.

    Parameters
    ----------
    to
        Folder of the tables.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document.
    """
    check_installed()
    from headrace.pipeline.connection import Endpoint
    from headrace.pipeline.tables.ledger import local_folder
    from headrace.pipeline.tables.standing import read_standing

    token, ca = ("" if file is None else str(file) for file in (token_file, ca_file))
    standing = read_standing(local_folder(to), Endpoint(server, token, ca, ANSWER_S_MAX))
    if json:
        print(msgspec.json.encode(standing).decode())
    else:
        for line in lines_of(standing):
            print(line)
    return int(not standing.in_order)


def lines_of(standing: Standing) -> list[str]:
    """Return how tables stand, in lines for a person."""
    lines = [
        f"{standing.feed} in {standing.to}: published at sequence id {standing.sequence_id}, {standing.published_at}"
    ]
    if standing.commit_ts is not None:
        lines.append(f"  all that was committed up to commitTs {standing.commit_ts} is in it")
    if standing.server_error is not None:
        lines.append(f"  the server does not say how far the feed is: {standing.server_error}")
    else:
        lines.append(f"  {standing.lag_entries} entries and {standing.lag_s} s behind the feed")
    for table in standing.tables:
        lines += _table_lines(table)
    return lines


def _table_lines(table: TableStanding) -> list[str]:
    name = ".".join(table.table) or "(entries without a table)"
    lines = _state_lines(name, table)
    if table.request is not None:
        lines.append(f"    a request waits for the job: {table.request}")
    if table.refused is not None:
        refused = table.refused
        lines.append(f"    {refused.request} was refused at {refused.at} ({refused.code}): {refused.reason}")
        lines.append(f"    {refused.hint}")
    return lines


def _state_lines(name: str, table: TableStanding) -> list[str]:
    match table.state:
        case "running":
            origin = f", from {_ORIGINS[table.started_from]}" if table.started_from in _ORIGINS else ""
            return [f"  {name}: {table.path}, version {table.version}{origin}"]
        case "copying":
            return [f"  {name}: its rows are being copied; it is published when they are all there"]
        case "unseen":
            return [f"  {name}: not there; no entry of it came since the tables begin", f"    {table.hint}"]
        case "forgotten":
            return [f"  {name}: let go; headrace capture copy brings it back"]
    return [
        f"  {name}: STOPPED after sequence id {table.sequence_id} ({table.code}): {table.reason}",
        f"    {table.hint}",
        f"    then: {table.next}",
    ]
