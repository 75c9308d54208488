"""``headrace serve``: the server alone, until SIGINT or SIGTERM."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.retention_settings import parse_positive_duration, parse_segment_size
from headrace.cli.serve_options import AccessOptions, PgOptions, RetentionOptions, StreamOptions
from headrace.log.log import LogSettings
from headrace.log.opening import parse_store
from headrace.runtime.shutdown import stop_event
from headrace.server.reports import parse_gone_after
from headrace.server.run import ServeSettings, Serving, check_platform, run, serve

_ACCESS, _RETENTION, _STREAMS = AccessOptions(), RetentionOptions(), StreamOptions()
_PG = PgOptions()

app = App(name="serve", help="Run the server: the durable log and its HTTP API.")


@app.default
def serve_command(
    *,
    data_dir: Path = Path("headrace-data"),
    store: Annotated[str | None, Parameter(env_var="HEADRACE_STORE")] = None,
    http: str = "127.0.0.1:8470",
    grpc: str = "127.0.0.1:8471",
    pg: PgOptions = _PG,
    access: AccessOptions = _ACCESS,
    retention: RetentionOptions = _RETENTION,
    streams: StreamOptions = _STREAMS,
    segment_size: str = "128m",
    disk_reserve: str | None = None,
    stalled_after: str = "60s",
    gone_after: str = "30s",
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Run the server until it is told to stop (SIGINT, SIGTERM).

    Parameters
    ----------
    data_dir
        Folder of the journal; made if it isn't there, owned by one server at a time.
    store
        Keep the log in a database instead, which several servers may share: postgresql://USER@HOST/DATABASE. An address
        with a password belongs in the environment.
    http
        Address to listen on. Port 0 takes a free one.
    grpc
        Address of the gRPC services; off leaves them out.
    segment_size
        A journal segment takes frames up to this size, and at most 131,072 of them.
    disk_reserve
        Appends are refused (503 disk-reserve) while less than this is free on the volume, such as 2g. Default: 1g, or 5 %
        of the volume if that is more.
    stalled_after
        While appends wait and none has become durable for so long, /readyz fails, and there is the alarm stalled.
    gone_after
        A process that has not reported for so long is gone, or can't reach this server; 10s or more.
    json
        Print the address as a JSON document when ready.
    """
    check_platform()
    if access.insecure and access.auth_jwks is None:
        print(
            "warning: --insecure: whoever reaches this address can read and write every feed", file=sys.stderr
        )
    reserve = None if disk_reserve is None else parse_segment_size(disk_reserve, "--disk-reserve")
    log = LogSettings(
        segment_bytes=parse_segment_size(segment_size),
        disk_reserve_bytes=reserve,
        retention=retention.settings(),
        stalled_after_s=parse_positive_duration(stalled_after, "--stalled-after"),
    )
    settings = ServeSettings(
        data_dir=data_dir,
        store=parse_store(store) if store is not None else None,
        http=http,
        grpc=None if grpc == "off" else grpc,
        pg=pg.address(),
        pg_sender_timeout_s=pg.sender_timeout_s(),
        insecure=access.insecure,
        auth=access.auth(),
        tls=access.tls(),
        snapshot_allow=access.origins(),
        log=log,
        gone_after_s=parse_gone_after(gone_after),
        streams=streams.terms(),
    )
    run(_until_stopped(settings, as_json=json))


async def _until_stopped(settings: ServeSettings, *, as_json: bool) -> None:
    await serve(settings, stop_event(), lambda serving: say_ready(serving, as_json=as_json))


def say_ready(serving: Serving, *, as_json: bool) -> None:
    """Print the one line (or document) that says where the server answers."""
    kind, place = ("data-dir", serving.data_dir) if serving.store is None else ("store", serving.store)
    if as_json:
        grpc = str(serving.grpc) if serving.grpc is not None else None
        said = {"http": str(serving.http), "grpc": grpc, kind: str(place)}
        if serving.pg is not None:
            said["pg"] = str(serving.pg)
        print(json.dumps(said), flush=True)
    else:
        grpc = f", grpc {serving.grpc}" if serving.grpc is not None else ""
        grpc += f", postgresql {serving.pg}" if serving.pg is not None else ""
        scheme = "https" if serving.encrypted else "http"
        print(f"serving {scheme}://{serving.http}{grpc}, data in {place}", flush=True)
