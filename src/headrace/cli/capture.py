"""``headrace capture``: a MariaDB's binlog into a feed: run it, check the source, copy a table again, see how it stands."""

from __future__ import annotations

import asyncio
from pathlib import Path

from cyclopts import App

from headrace.capture.run import run_capture
from headrace.capture.settings import CaptureSettings, load_capture_settings
from headrace.cli.capture_check import check_command
from headrace.cli.capture_copy import copy_command
from headrace.cli.capture_options import Flag, Patterns
from headrace.cli.capture_status import status_command
from headrace.cli.splitting import split_names
from headrace.runtime.shutdown import stop_event

app = App(name="capture", help="Capture a MariaDB's binlog into a feed.")

app.command(check_command, name="check")
app.command(copy_command, name="copy")
app.command(status_command, name="status")


@app.command(name="run")
def run_command(
    *,
    config: Path = Path("capture.toml"),
    columns: Patterns = None,
    exclude_columns: Patterns = None,
    mask: Patterns = None,
    takeover: Flag = False,
) -> None:
    """Capture until told to stop (SIGINT, SIGTERM). It may be killed at any point: nothing is lost, nothing comes twice.

    Parameters
    ----------
    config
        Settings (TOML): feed, dsn or dsn-file (else HEADRACE_DSN), server, grpc, tables and more: docs/reference/capture.md.
    columns
        Patterns DATABASE.TABLE.COLUMN: of the tables that they name, deliver these columns and the handle key only. Repeat
        it, or separate by commas. Added to those of the settings.
    exclude_columns
        Patterns of columns to leave out.
    mask
        Patterns of text columns whose values are replaced by ***.
    takeover
        Claim the feed even if another agent owns it. Stop that one first.
    """
    settings = load_capture_settings(
        config,
        columns=split_names(columns),
        exclude_columns=split_names(exclude_columns),
        mask=split_names(mask),
    )
    asyncio.run(_until_stopped(settings, takeover=takeover))


async def _until_stopped(settings: CaptureSettings, *, takeover: bool) -> None:
    await run_capture(settings, stop_event(), takeover=takeover)
