"""``headrace pipeline tables resume``, ``rebuild``, ``forget``: ask the job to bring a table back, or to let it go."""

from __future__ import annotations

import json as json_format
from typing import Annotated

from cyclopts import Parameter

from headrace.cli.spark_jobs import check_installed
from headrace.errors import TableNotFound, Usage

Flag = Annotated[bool, Parameter(negative=())]


def resume_command(table: str, /, *, to: str, json: Flag = False) -> int:
    """Let a stopped table go on from its place, once what stopped it is mended.

    Leaves a request, which the running job takes up at its next batch, and one that does not run at its start. If something
    stops the table again, `headrace pipeline status` says what.

    Parameters
    ----------
    table
        DATABASE.TABLE, or the parts as a JSON array.
    to
        Folder of the tables.
    json
        Print one JSON document.
    """
    return _request(table, to, as_json=json)


def rebuild_command(table: str, /, *, to: str, json: Flag = False) -> int:
    """Build a table anew from its first entry on, beside the old one, and swap it in whole.

    Leaves a request, as `resume` does. The feed must reach back to the table's first entry, or the job have an archive that
    does; else run `headrace capture copy`, which brings the table's rows once more.

    Parameters
    ----------
    table
        DATABASE.TABLE, or the parts as a JSON array.
    to
        Folder of the tables.
    json
        Print one JSON document.
    """
    return _request(table, to, rebuild=True, as_json=json)


def forget_command(table: str, /, *, to: str, json: Flag = False) -> int:
    """Let go of a stopped table: what is in it, and its place in the feed, which retention then need not wait for.

    Leaves a request, as `resume` does. For a table that is gone at its source, or is not wanted any more. If it is copied
    once more (`headrace capture copy`), truncated or created anew, it comes back whole.

    Parameters
    ----------
    table
        DATABASE.TABLE, or the parts as a JSON array.
    to
        Folder of the tables.
    json
        Print one JSON document.
    """
    return _request(table, to, forget=True, as_json=json)


def _request(text: str, to: str, *, rebuild: bool = False, forget: bool = False, as_json: bool) -> int:
    check_installed()
    from headrace.pipeline.tables.ledger import local_folder, read_tables_file
    from headrace.pipeline.tables.requests import leave_request
    from headrace.pipeline.tables.schemas import table_name
    from headrace.pipeline.tables.states import Request

    folder, table = local_folder(to), table_name(text)
    file = read_tables_file(folder)
    found = [one for one in (file.tables or () if file is not None else ()) if one.table == table]
    if any(one.table == table for one in (file.attached or () if file is not None else ())):
        raise Usage(
            f"{text} is an attached table: it goes on by itself once all its rows come again",
            hint=f"headrace publisher copy DSN --table {text}",
        )
    if not found:
        raise TableNotFound(
            f"{folder} has no captured table {text}",
            hint=f"headrace pipeline status --to {to} lists the tables.",
        )
    if not rebuild and found[0].stopped is None:
        raise Usage(f"table {text} is not stopped")
    request = Request(table, rebuild, forget)
    leave_request(folder, request)
    if as_json:
        print(json_format.dumps({"table": list(table), "request": request.word, "to": str(folder)}))
    else:
        print(
            "The request is there: the running job takes it up at its next batch, another one at its start."
        )
    return 0
