"""``headrace capture check``: is the source fit, and if not, what to set to what."""

from __future__ import annotations

import json as json_format
import os
from contextlib import closing
from pathlib import Path

from headrace.capture.mariadb.connection import connect
from headrace.capture.mariadb.fitness import Finding, Severity
from headrace.capture.preflight import check_source
from headrace.capture.settings import load_capture_settings
from headrace.cli.capture_options import Flag, Patterns
from headrace.cli.splitting import split_names


def check_command(
    *,
    config: Path = Path("capture.toml"),
    columns: Patterns = None,
    exclude_columns: Patterns = None,
    mask: Patterns = None,
    json: Flag = False,
) -> int:
    """Say whether the server, its rights and its tables are fit, and what to set to what. Changes nothing.

    Exit code 1 if something would stop the capture, or the capture of a table.

    Parameters
    ----------
    config
        Capture's settings.
    columns
        As for headrace capture run.
    exclude_columns
        As for headrace capture run.
    mask
        As for headrace capture run.
    json
        Print one JSON document.
    """
    settings = load_capture_settings(
        config,
        columns=split_names(columns),
        exclude_columns=split_names(exclude_columns),
        mask=split_names(mask),
    )
    with closing(connect(settings.find_dsn(os.environ))) as connection:
        found = check_source(connection, settings)
    fit = not any(one.severity is Severity.ERROR for one in found)
    if json:
        document = {"fit": fit, "findings": [_document(one) for one in found]}
        print(json_format.dumps(document, ensure_ascii=False))
    else:
        for one in found:
            print(f"{one.severity}: {one.subject}: {one.detail}\n  {one.remedy}")
        print("the source is fit" if fit else "the source is not fit")
    return int(not fit)


def _document(one: Finding) -> dict[str, object]:
    return {
        "severity": one.severity,
        "subject": one.subject,
        "detail": one.detail,
        "remedy": one.remedy,
        "table": one.table,
    }
