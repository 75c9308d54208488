"""``headrace publisher grants``: print the least SQL rights that a source needs. It changes nothing."""

from __future__ import annotations

import os
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headrace.cli.splitting import split_names
from headrace.publisher.databases import read_rights
from headrace.publisher.grants import Party, merge
from headrace.runtime.dsn import find_dsn

Names = Annotated[list[str] | None, Parameter(negative=())]
Flag = Annotated[bool, Parameter(negative=())]


def grants_command(
    dsn: str | None = None,
    *,
    role: str,
    application_role: str | None = None,
    table: Names = None,
    dsn_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Print the SQL that gives the agent's role, and who attaches, no more rights than they need.

    PostgreSQL, MariaDB and MySQL. In the latter two a role is USER (at any host) or USER@HOST.

    Parameters
    ----------
    dsn
        The application's database. Default: --dsn-file, else HEADRACE_DSN.
    role
        The role in the agent's DSN.
    application_role
        A role of an application that calls Outbox.add.
    table
        A table that is or will be attached. Repeat it, or separate by commas. Default: every attached table.
    dsn_file
        File whose first line is the DSN.
    json
        Print one JSON document.
    """
    source = find_dsn(dsn, dsn_file, os.environ)
    rights = read_rights(source, list(split_names(table)), role, application_role)
    if json:
        print(
            dump_json(
                {"grants": [{"party": one.party.name.lower(), "sql": one.statement} for one in rights.grants]}
            )
        )
        return
    for party in Party:
        lines = merge(one for one in rights.grants if one.party is party)
        if lines:
            after = "" if party is Party.OWNER else f", {rights.when}"
            print("\n".join([f"-- for {party}{after}", *lines]))
    print("\n".join(rights.notes))
