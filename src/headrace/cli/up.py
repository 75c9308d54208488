"""``headrace up``: server and agent in one process over one attached database, for a first try."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from cyclopts import App, Parameter

from headrace.cli.splitting import split_names
from headrace.entries.feed import check_feed_id
from headrace.publisher.agent import run_agent
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.databases import open_source
from headrace.publisher.settings import AgentSettings
from headrace.publisher.source import AttachedTable
from headrace.runtime.dsn import Dsn, find_dsn
from headrace.runtime.shutdown import stop_event
from headrace.server.run import ServeSettings, Serving, check_platform, run, serve

app = App(name="up", help="Run server and agent together, for a first try.")

AGENT_ID: Final = "headrace-up"
"""The agent's name; permanent once used, so that a second ``up`` goes on where the first stopped."""

Say = Callable[[Serving, Sequence[AttachedTable]], None]


class _Plan(NamedTuple):
    """What was asked for."""

    serve: ServeSettings
    agent: AgentSettings
    attach: AttachRequest
    dsn: Dsn


@app.default
def up_command(
    *,
    source: str | None = None,
    table: Annotated[tuple[str, ...], Parameter(negative=())],
    feed: str = "app",
    data_dir: Path = Path("headrace-data"),
    http: str = "127.0.0.1:8470",
    grpc: str = "127.0.0.1:8471",
    insecure: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Attach tables, then run server and agent until told to stop (SIGINT, SIGTERM). Calling it again goes on.

    Parameters
    ----------
    source
        DSN of the database, such as sqlite:///app.db (else HEADRACE_DSN). It is never printed.
    table
        A table to attach. Repeat it, or separate by commas.
    feed
        The feed that the tables' changes go into.
    data_dir
        Folder of the server's journal.
    http
        Address that the server listens on. Port 0 takes a free one.
    grpc
        Address of the gRPC services, which backups read from; off leaves them out.
    insecure
        Allow an address that other machines can reach: nobody is asked who they are.
    json
        Print address, feed and tables as one JSON document when ready.
    """
    check_platform()
    plan = _Plan(
        ServeSettings(data_dir=data_dir, http=http, grpc=None if grpc == "off" else grpc, insecure=insecure),
        AgentSettings(agent_id=AGENT_ID, feeds=(check_feed_id(feed),), dsn=source),
        AttachRequest(feed=feed, tables=split_names(table)),
        find_dsn(source, None, os.environ),
    )
    if insecure:
        print(
            "warning: --insecure: whoever reaches this address can read and write every feed", file=sys.stderr
        )
    run(_up(plan, _say_json(feed) if json else _say_lines(feed)))


async def _up(plan: _Plan, say: Say) -> None:
    """Start from the server to the agent, stop the other way round; an error of either ends both and is raised."""
    stop = stop_event()
    await asyncio.to_thread(_with_source, plan.dsn, None)
    ready = asyncio.Event()
    said: list[Serving] = []

    def note(serving: Serving) -> None:
        said.append(serving)
        ready.set()

    server_stop, agent_stop = asyncio.Event(), asyncio.Event()
    tasks = [asyncio.create_task(serve(plan.serve, server_stop, note))]
    waits = [asyncio.create_task(event.wait()) for event in (ready, stop)]
    try:
        await asyncio.wait({waits[0], *tasks}, return_when=asyncio.FIRST_COMPLETED)
        if said:
            attached = await asyncio.to_thread(_with_source, plan.dsn, plan.attach)
            tasks.insert(0, asyncio.create_task(run_agent(_of_server(plan.agent, said[0]), agent_stop)))
            say(said[0], attached)
            ends: set[asyncio.Task[Any]] = {waits[1], *tasks}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        for task, event in zip(tasks, (agent_stop, server_stop)[-len(tasks) :], strict=True):
            event.set()
            await asyncio.wait({task})
    for task in tasks:
        task.result()


def _with_source(dsn: Dsn, request: AttachRequest | None) -> list[AttachedTable]:
    """Open the source, attach what is asked for (None: only see that it can be opened), and close it again."""
    source = open_source(dsn)
    try:
        return source.attach(request) if request is not None else []
    finally:
        source.close()


def _of_server(settings: AgentSettings, serving: Serving) -> AgentSettings:
    return AgentSettings(
        agent_id=settings.agent_id, feeds=settings.feeds, dsn=settings.dsn, server=f"http://{serving.http}"
    )


def _say_lines(feed: str) -> Say:
    def say(serving: Serving, attached: Sequence[AttachedTable]) -> None:
        for table in attached:
            print(f"{'attached' if table.new else 'attached before'}: {table.table}")
        grpc = f", grpc {serving.grpc}" if serving.grpc is not None else ""
        print(f"serving http://{serving.http}{grpc}, feed {feed}, data in {serving.data_dir}", flush=True)

    return say


def _say_json(feed: str) -> Say:
    def say(serving: Serving, attached: Sequence[AttachedTable]) -> None:
        document = {
            "http": str(serving.http),
            "grpc": str(serving.grpc) if serving.grpc is not None else None,
            "data-dir": str(serving.data_dir),
            "feed": feed,
            "tables": [table.table for table in attached],
        }
        print(json.dumps(document), flush=True)

    return say
