"""``headrace wal backup``: archive the stream over all feeds until told to stop, and show how that stands (RFC-010 §5)."""

from __future__ import annotations

import asyncio
import math
import os
import signal
from dataclasses import dataclass
from json import dumps as dump_json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from headrace.cli.health_options import HealthOptions
from headrace.errors import Usage

if TYPE_CHECKING:
    from headrace.backup.settings import BackupSettings

Flag = Annotated[bool, Parameter(negative=())]

ENDED_AT_ONCE: Final = 130
"""Exit code after a second signal, as shells expect it."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BackupOptions:
    """What to archive, and where to.

    Parameters
    ----------
    pitr_dir
        The archive: a folder, or any address that fsspec knows (s3://BUCKET/FOLDER). Made if it is not there.
    segment_size
        A segment is written once it has this size; at most 1g.
    segment_time
        It is written that long after its first entry at the latest.
    recipient
        Encrypt segments to this age or SSH public key; may be given several times. This machine can't read them then.
    once
        Archive what is there now, and end. No server is waited for, and no room in the archive: a server that goes away
        meanwhile is given a minute.
    accept_gap
        Why what the server no longer has may be missing: then the backup goes on behind it, with the gap on record.
    retention_days
        Prune once an hour what is not needed for the last so many days, if there is a base snapshot; 0: never.
    buffer_days
        Keep base snapshots for so many days more.
    subscriber_id
        Under which name the server keeps this backup's place. Give each archive of one server its own.
    server
        Address of the server (HEADRACE_SERVER).
    grpc
        Its gRPC address, HOST:PORT, or https://HOST:PORT (HEADRACE_GRPC).
    token_file
        File that holds the bearer token of an admin (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    """

    pitr_dir: str
    segment_size: str = "128m"
    segment_time: str = "1h"
    recipient: Annotated[tuple[str, ...], Parameter(negative=())] = ()
    once: Flag = False
    accept_gap: str = ""
    retention_days: float = 7
    buffer_days: float = 1
    subscriber_id: str = "backup"
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470"
    grpc: Annotated[str, Parameter(env_var="HEADRACE_GRPC")] = "127.0.0.1:8471"
    token_file: Path | None = None
    ca_file: Path | None = None

    def settings(self, health: HealthOptions | None = None) -> BackupSettings:
        """Return what the options mean; ConfigInvalid and Usage name the one that is wrong."""
        from headrace.backup.settings import SEGMENT_BYTES_MAX, BackupSettings
        from headrace.cli.retention_settings import parse_positive_duration, parse_segment_size

        if self.pitr_dir.startswith("memory:"):
            raise Usage(f"--pitr-dir {self.pitr_dir}: an archive in memory is gone when this process ends")
        for name, days in (("--retention-days", self.retention_days), ("--buffer-days", self.buffer_days)):
            if not (math.isfinite(days) and days >= 0):
                raise Usage(f"{name} {days}: it is a number of days, 0 or more")
        size = parse_segment_size(self.segment_size)
        if size > SEGMENT_BYTES_MAX:
            raise Usage("--segment-size: at most 1g", hint="Two segments are held in memory.")
        return BackupSettings(
            archive=self.pitr_dir,
            server=self.server,
            grpc=self.grpc,
            subscriber_id=self.subscriber_id,
            segment_bytes=size,
            segment_s=parse_positive_duration(self.segment_time, "--segment-time"),
            recipients=self.recipient,
            once=self.once,
            accept_gap=self.accept_gap.strip(),
            retention_days=self.retention_days or None,
            buffer_days=self.buffer_days,
            token_file=self.token_file,
            ca_file=self.ca_file,
            health=(health or HealthOptions()).terms(),
        )


async def backup_command(
    *, options: BackupOptions, health: HealthOptions | None = None, json: Flag = False
) -> None:
    """Archive all entries of all feeds as KWAL segments, until told to stop (SIGINT, SIGTERM; a second one ends it at once).

    It may be killed at any point: the next start goes on without gap or overlap. Only what is durable there is acked. One
    agent writes to a folder.

    Parameters
    ----------
    json
        Print one JSON document at the end.
    """
    from headrace.backup.process import run_backup
    from headrace.cli.backup_progress import shown_size, watch

    outcome = await run_backup(options.settings(health), _stop_event(), watch)
    if json:
        print(dump_json(outcome.document()), flush=True)
        return
    end = f"lsn={outcome.last}" if outcome.last is not None else "nothing: the log is empty"
    print(
        f"{outcome.segments} segments written, {outcome.entries:,} entries, {shown_size(outcome.bytes)} in "
        f"{outcome.seconds:.1f} s; {outcome.archive} ends with {end}",
        flush=True,
    )


def _stop_event() -> asyncio.Event:
    """The event that the first SIGINT or SIGTERM sets; the second one ends the process where it is, which does no harm."""
    event = asyncio.Event()

    def told() -> None:
        if event.is_set():
            os._exit(ENDED_AT_ONCE)
        event.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told)
    return event
