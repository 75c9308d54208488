"""``headrace pipeline audit``: are the tables what the feed says?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from headrace.cli.pipeline_tables import SHORT_ENTRIES_MAX
from headrace.cli.spark_jobs import SparkOptions, check_installed, show

if TYPE_CHECKING:
    from headrace.pipeline.audit.job import Audit, TableAudit
    from headrace.pipeline.connection import Endpoint
    from headrace.pipeline.session import SessionSettings


def audit_command(
    *,
    to: str,
    archive: str = "",
    scratch: str = "",
    keys: int = 20,
    max_entries: int = 1_000_000,
    spark: SparkOptions | None = None,
    log_file: Path | None = None,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> int:
    """Fold the feed anew up to the published moment, and compare every table with it: counts, checksums, differing keys.

    The tables job and the source may run meanwhile. Exit code 0: all tables are equal; 1: one differs; 3: the tables are
    of another history of the feed; 4: the feed's beginning is not there (give --archive), or the server.

    Parameters
    ----------
    to
        Folder of the tables.
    archive
        URL of a folder of KWAL segments, for entries that the server has dropped.
    scratch
        Folder below which the fold is made, and removed at the end; Spark's workers must reach it by the same path.
        Default: inside the tables' folder.
    keys
        Differing keys that are listed of a table at most.
    max_entries
        Entries that are folded at once.
    log_file
        Where Spark's own output goes. Default: TO/_headrace/audit.log.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    json
        Print one JSON document.
    """
    check_installed()
    from headrace.pipeline.connection import Endpoint
    from headrace.pipeline.tables.ledger import FOLDER, local_folder
    from headrace.pipeline.tables.reader import published_moment

    moment = published_moment(to)  # before Spark is started for nothing
    token, ca = ("" if file is None else str(file) for file in (token_file, ca_file))
    log = log_file if log_file is not None else local_folder(to) / FOLDER / "audit.log"
    short = moment.sequence_id <= SHORT_ENTRIES_MAX
    settings = (spark or SparkOptions()).session(
        f"headrace audit of {moment.feed}", log, checkpoint=to, short_lived=short
    )
    terms = {"archive": archive, "scratch": scratch, "differences_max": keys, "entries_max": max_entries}
    found = _run(settings, to, Endpoint(server, token, ca), **terms)
    if json:
        print(msgspec.json.encode(found).decode())
    else:
        for line in lines_of(found):
            print(line)
    return int(not found.equal)


def _run(settings: SessionSettings, to: str, endpoint: Endpoint, **terms: Any) -> Audit:
    """Run the audit in a session of its own."""
    from headrace.pipeline.audit.job import run_audit
    from headrace.pipeline.session import open_session

    show(f"starting Spark; its own output goes to {settings.log_file}")
    session = open_session(settings)
    try:
        return run_audit(session, to, endpoint, progress=show, **terms)
    finally:
        session.stop()
        show("")


def lines_of(found: Audit) -> list[str]:
    """Return what an audit found, in lines for a person."""
    moment = "" if found.commit_ts is None else f", commitTs {found.commit_ts}"
    lines = [f"{found.feed} at sequence id {found.sequence_id}{moment}, {found.seconds:.1f} s"]
    for table in found.tables:
        lines += _table_lines(table)
    differing = sum(not table.equal for table in found.tables)
    lines.append(
        f"{differing} of {len(found.tables)} tables differ"
        if differing
        else f"equal: {len(found.tables)} tables"
    )
    return lines


def _table_lines(table: TableAudit) -> list[str]:
    name = ".".join(table.table) or "(entries without a table)"
    stopped = "" if table.stopped_after is None else f", stopped after {table.stopped_after}"
    if table.equal and table.feed is not None:
        return [f"  {name}: equal, {table.feed.rows} rows, checksum {table.feed.checksum}{stopped}"]
    lines = [f"  {name}: DIFFERS{': ' if table.reason else ''}{table.reason}{stopped}"]
    for side, figures in (("feed", table.feed), ("published", table.published)):
        if figures is not None:
            lines.append(f"    {side}: {figures.rows} rows, checksum {figures.checksum}")
    for one in table.differences:
        where = {(True, False): "only in the feed", (False, True): "only in the table"}.get(
            (bool(one.rows_in_feed), bool(one.rows_in_table)), "another row"
        )
        lines.append(f"    {one.key}: {where}")
    return lines
