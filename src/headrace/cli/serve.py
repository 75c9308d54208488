"""``headrace serve``: the server alone, until SIGINT or SIGTERM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.runtime.shutdown import stop_event
from headrace.server.run import ServeSettings, Serving, check_platform, run, serve

app = App(name="serve", help="Run the server: the durable log and its HTTP API.")


@app.default
def serve_command(
    *,
    data_dir: Path = Path("headrace-data"),
    http: str = "127.0.0.1:8470",
    insecure: Annotated[bool, Parameter(negative=())] = False,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Run the server until it is told to stop (SIGINT, SIGTERM).

    Parameters
    ----------
    data_dir
        Folder of the journal; made if it isn't there, owned by one server at a time.
    http
        Address to listen on. Port 0 takes a free one.
    insecure
        Allow an address that other machines can reach: nobody is asked who they are.
    json
        Print the address as a JSON document when ready.
    """
    check_platform()
    if insecure:
        print(
            "warning: --insecure: whoever reaches this address can read and write every feed", file=sys.stderr
        )
    settings = ServeSettings(data_dir=data_dir, http=http, insecure=insecure)
    run(_until_stopped(settings, as_json=json))


async def _until_stopped(settings: ServeSettings, *, as_json: bool) -> None:
    await serve(settings, stop_event(), lambda serving: say_ready(serving, as_json=as_json))


def say_ready(serving: Serving, *, as_json: bool) -> None:
    """Print the one line (or document) that says where the server answers."""
    if as_json:
        print(json.dumps({"http": str(serving.http), "data-dir": str(serving.data_dir)}), flush=True)
    else:
        print(f"serving http://{serving.http}, data in {serving.data_dir}", flush=True)
