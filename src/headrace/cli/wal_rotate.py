"""``headrace wal rotate``: have whoever writes files from a stream begin new ones now (RFC-010 §5.2)."""

from __future__ import annotations

from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headrace.cli.wal_options import Flag
from headrace.client.credential import read_token
from headrace.client.http import FeedClient


async def rotate_command(
    *,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Ask the subscribers of all open streams to begin a new file. They are asked, and may do it later. Safe to repeat.

    It reaches the streams of the server that is asked: of several servers on one store, ask each.

    Parameters
    ----------
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token of an admin (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document.
    """
    async with FeedClient(server, token=read_token(token_file), ca_file=ca_file) as client:
        streams = await client.rotate_streams()
    if json:
        print(dump_json({"streams": streams}), flush=True)
        return
    asked = "1 stream was" if streams == 1 else f"{streams} streams were"
    print(
        f"the subscribers of {asked} asked to begin a new file" if streams else "no stream is open",
        flush=True,
    )
