"""``headrace status``: one look at everything that a server knows."""

from __future__ import annotations

import asyncio
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.status_look import Look, take_look
from headrace.cli.status_tables import print_look
from headrace.client.credential import read_token
from headrace.client.http import FeedClient
from headrace.errors import ConfigInvalid
from headrace.runtime.settings import parse_duration

app = App(name="status", help="Show what a server knows: feeds, processes, consumers, alarms.")

INTERVAL_S_MAX = 60.0
"""Longer than this nobody waits for a rate."""


@app.default
async def status_command(
    *,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    interval: str = "1s",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Show feeds, publishers and processes, listeners, subscribers and backups, alarms and retention, in one look.

    It changes nothing. Without an admin's token alarms, processes and retention are left out, and it says so. Exit code 1 if
    the server is not ready, an alarm stands, or a process is stuck; 4 if the server does not answer.

    Parameters
    ----------
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    interval
        Rates are those of so long: the feeds are looked at twice. 0s leaves them out.
    json
        Print one JSON document (docs/reference/status.md).
    """
    wait_s = parse_duration(interval, "--interval")
    if wait_s > INTERVAL_S_MAX:
        raise ConfigInvalid(f"--interval: more than {INTERVAL_S_MAX:g} s", hint="Write 1s.")
    async with FeedClient(server, token=read_token(token_file), ca_file=ca_file) as client:
        look = await _look(client, wait_s)
    if json:
        print(dump_json(look.document(), ensure_ascii=False), flush=True)
    else:
        print_look(look)
    return 0 if look.is_in_order else 1


async def _look(client: FeedClient, wait_s: float) -> Look:
    if not wait_s:
        return await take_look(client)
    loop = asyncio.get_running_loop()
    before, began = await client.feeds(), loop.time()
    await asyncio.sleep(wait_s)
    return await take_look(client, earlier=before, seconds=loop.time() - began)
