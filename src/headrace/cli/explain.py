"""``headrace explain CODE``: what a code of an error or an alarm means, what to look at, and what to do."""

from __future__ import annotations

import difflib
from json import dumps as dump_json
from typing import Annotated

from cyclopts import App, Parameter

from headrace.errors import Usage
from headrace.runtime.runbook import runbook_codes, runbook_page

app = App(name="explain", help="Print the runbook's page of a code.")


@app.default
def explain_command(
    code: str | None = None, /, *, json: Annotated[bool, Parameter(negative=())] = False
) -> None:
    """Print the page of a code: what it means, what to look at, what to do. It takes no network.

    Parameters
    ----------
    code
        The code of an error or an alarm, such as feed-owned; without it, all codes are listed.
    json
        Print one JSON document: code and page, or the codes.
    """
    if code is None:
        codes = runbook_codes()
        print(dump_json({"codes": codes}) if json else "\n".join(codes))
        return
    page = runbook_page(code)
    if page is None:
        close = difflib.get_close_matches(code, runbook_codes(), n=1)
        meant = f"Did you mean {close[0]}? " if close else ""
        raise Usage(f"there is no code {code[:80]!r}", hint=f"{meant}`headrace explain` lists all of them.")
    print(dump_json({"code": code, "page": page}) if json else page, end="\n" if json else "")
