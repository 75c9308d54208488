"""``headrace pipeline audit``: are the tables what the feed says, and is that what the source holds?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from headrace.cli.pipeline_tables import SHORT_ENTRIES_MAX
from headrace.cli.spark_jobs import SparkOptions, check_installed, show

if TYPE_CHECKING:
    from headrace.pipeline.audit.seeing import SourceAsked
    from headrace.pipeline.audit.verdicts import Audit, SourceVerdict, TableAudit
    from headrace.pipeline.connection import Endpoint
    from headrace.pipeline.session import SessionSettings


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The source database, if it is audited too.

    Parameters
    ----------
    source
        The capture.toml that writes the feed: it names the database (its DSN may be in HEADRACE_DSN) and what is captured.
    wait
        How long to wait for capture, and for the tables, to come to the moment at which the source was read.
    """

    source: Path | None = None
    wait: str = "60s"

    def asked(self) -> SourceAsked | None:
        """Return what to read; None if no source is named. ConfigInvalid names what is wrong in the file."""
        from headrace.capture.settings import load_capture_settings
        from headrace.pipeline.audit.seeing import SourceAsked
        from headrace.runtime.settings import parse_duration

        if self.source is None:
            return None
        return SourceAsked(load_capture_settings(self.source), wait_s=parse_duration(self.wait, "--wait"))


def audit_command(
    *,
    to: str,
    source: SourceOptions | None = None,
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

    With --source the rows of the source database are compared with the feed too. The tables job, capture and the
    application may run meanwhile. Exit code 0: all tables are equal; 1: one differs; 3: the tables are of another history of
    the feed, or the source is another server; 4: the feed's beginning is not there (give --archive), or the server, or
    capture or the tables job does not come to the source's moment.

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
    terms: dict[str, Any] = {
        "archive": archive,
        "scratch": scratch,
        "differences_max": keys,
        "entries_max": max_entries,
    }
    if source is not None:
        terms["source"] = source.asked()
    found = _run(settings, to, Endpoint(server, token, ca), **terms)
    print(msgspec.json.encode(found).decode() if json else "\n".join(lines_of(found)))
    return int(not found.equal)


def _run(settings: SessionSettings, to: str, endpoint: Endpoint, **terms: Any) -> Audit:
    """Run the audit in a session of its own."""
    from headrace.pipeline.audit.job import run_audit
    from headrace.pipeline.session import open_session, stop_session

    show(f"starting Spark; its own output goes to {settings.log_file}")
    session = open_session(settings)
    try:
        return run_audit(session, to, endpoint, progress=show, **terms)
    finally:
        stop_session(session)
        show("")


def lines_of(found: Audit) -> list[str]:
    """Return what an audit found, in lines for a person."""
    moment = "" if found.commit_ts is None else f", commitTs {found.commit_ts}"
    lines = [f"{found.feed} at sequence id {found.sequence_id}{moment}, {found.seconds:.1f} s"]
    if found.source is not None:
        at = found.source
        lines.append(
            f"the source at {at.gtid} ({at.file}, {at.position}), which is sequence id {at.sequence_id}"
        )
    for table in found.tables:
        lines += _table_lines(table)
    differing = sum(not table.equal for table in found.tables)
    sides = "" if found.source is None else ": the source, the feed and what is published"
    lines.append(
        f"{differing} of {len(found.tables)} tables differ"
        if differing
        else f"equal: {sum(not table.let_go for table in found.tables)} tables{sides}"
    )
    return lines


def _table_lines(table: TableAudit) -> list[str]:
    name = ".".join(table.table) or "(entries without a table)"
    stopped = "" if table.stopped_after is None else f", stopped after {table.stopped_after}"
    if table.let_go:
        return [f"  {name}: let go, not compared"]
    if table.equal:
        figures = table.feed or (table.source.source if table.source else None)
        told = f", {figures.rows} rows, checksum {figures.checksum}" if figures else ""
        return [f"  {name}: equal{told}{stopped}"]
    lines = [f"  {name}: DIFFERS{': ' if table.reason else ''}{table.reason}{stopped}"]
    for side, figures in (("feed", table.feed), ("published", table.published)):
        if figures is not None:
            lines.append(f"    {side}: {figures.rows} rows, checksum {figures.checksum}")
    for one in table.differences:
        where = _where(one.rows_in_feed, one.rows_in_table, "only in the feed", "only in the table")
        lines.append(f"    {one.key}: {where}")
    return lines + (_source_lines(table.source) if table.source is not None else [])


def _source_lines(found: SourceVerdict) -> list[str]:
    if found.equal:
        return ["    the source and the feed are equal"]
    lines = [f"    the source and the feed differ{': ' if found.reason else ''}{found.reason}"]
    for side, figures in (("source", found.source), ("feed", found.feed)):
        if figures is not None:
            lines.append(f"      {side}: {figures.rows} rows, checksum {figures.checksum}")
    for one in found.differences:
        where = _where(one.rows_in_source, one.rows_in_feed, "only in the source", "only in the feed")
        lines.append(f"      {one.key}: {where}")
    return lines


def _where(left: int, right: int, only_left: str, only_right: str) -> str:
    return {(True, False): only_left, (False, True): only_right}.get((bool(left), bool(right)), "another row")
