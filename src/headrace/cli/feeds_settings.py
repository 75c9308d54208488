"""``headrace feeds settings``: a feed's settings, shown or changed."""

from __future__ import annotations

from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from msgspec import UNSET, to_builtins

from headrace.client.credential import read_token
from headrace.client.http import FeedClient
from headrace.wire.documents import ChangeSettings, ChangesTerms, FeedSettings, OffsetTerms

Flag = Annotated[bool, Parameter(negative=())]


async def settings_command(
    feed: str,
    *,
    expected_offset: OffsetTerms | None = None,
    key_field: str | None = None,
    changes: ChangesTerms | None = None,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Show a feed's settings; with an option, change them first. They hold for every later append and survive a restart.

    Parameters
    ----------
    feed
        The change-feed-id.
    expected_offset
        optional: an append may name the places of its entries. required: it must. ignored: what it names is not compared,
        so no append is safe to repeat.
    key_field
        The member of an entry's changes that is its key, where the entry names none.
    changes
        What an entry without op carries: full (the whole state) or delta (only what changed).
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document.
    """
    change = ChangeSettings(
        expected_offset=expected_offset if expected_offset is not None else UNSET,
        key_field=key_field if key_field is not None else UNSET,
        changes=changes if changes is not None else UNSET,
    )
    async with FeedClient(server, token=read_token(token_file), ca_file=ca_file) as client:
        if change == ChangeSettings():
            found = await client.settings(feed)
        else:
            found = await client.configure(feed, change)
    print(dump_json(to_builtins(found)) if json else _lines(found), flush=True)


def _lines(found: FeedSettings) -> str:
    return (
        f"{found.change_feed_id}\n  expected-offset  {found.expected_offset}\n"
        f"  key-field        {found.key_field}\n  changes          {found.changes}"
    )
