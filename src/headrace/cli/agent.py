"""``headrace agent``: relay a database's outbox to its feeds, until told to stop."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.publisher.agent import run_agent
from headrace.publisher.settings import AgentSettings, load_agent_settings
from headrace.runtime.shutdown import stop_event

app = App(name="agent", help="Relay a database's outbox to a feed.")

Flag = Annotated[bool, Parameter(negative=())]


@app.command(name="run")
def run_command(*, config: Path = Path("agent.toml"), takeover: Flag = False, json: Flag = False) -> None:
    """Relay until told to stop (SIGINT, SIGTERM). It may be killed at any point: nothing is lost, nothing comes twice.

    Parameters
    ----------
    config
        Settings (TOML): agent-id, feeds, server, dsn or dsn-file (else HEADRACE_DSN), retention, token-file.
    takeover
        Claim the feeds even if another agent owns them. Stop that one first.
    json
        Print agent id and feeds as a JSON document at the start.
    """
    settings = load_agent_settings(config)
    asyncio.run(_until_stopped(settings, takeover=takeover, as_json=json))


async def _until_stopped(settings: AgentSettings, *, takeover: bool, as_json: bool) -> None:
    stop = stop_event()
    if as_json:
        print(json.dumps({"agent-id": settings.agent_id, "feeds": settings.feeds}), flush=True)
    await run_agent(settings, stop, takeover=takeover)
