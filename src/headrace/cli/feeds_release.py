"""``headrace feeds release``: an operator lets a quarantined publisher post again."""

from __future__ import annotations

from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from headrace.client.credential import read_token
from headrace.client.http import FeedClient

Flag = Annotated[bool, Parameter(negative=())]


async def release_command(
    agent_id: str,
    *,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Lift the quarantine of a publisher that sent an entry twice, in every feed, and clear its alarm. Safe to repeat.

    First find out who sent what: compare the publisher's outbox and the feed around the sequence id that the alarm names.
    The refused entry is not in the feed. An agent that stopped over it has to be started again.

    Parameters
    ----------
    agent_id
        The publisher, as the alarm names it.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document.
    """
    async with FeedClient(server, token=read_token(token_file), ca_file=ca_file) as client:
        feeds = await client.release(agent_id)
    if json:
        print(dump_json({"agent-id": agent_id, "feeds": feeds}), flush=True)
        return
    said = ", ".join(feeds)
    print(
        f"{agent_id}: released in {said}" if feeds else f"{agent_id}: is quarantined in no feed", flush=True
    )
