"""``headrace publisher``: attach an application's tables to a feed, check them, take them away, go on after a stop."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from headrace.cli.copy_progress import copy_progress
from headrace.cli.publisher_copy import copy_command
from headrace.cli.publisher_grants import grants_command
from headrace.cli.splitting import split_names
from headrace.entries.feed import check_feed_id
from headrace.errors import Usage
from headrace.publisher.attach.finding import Attached
from headrace.publisher.attach.selection import AttachRequest
from headrace.publisher.attaching import attach_tables, opened_source
from headrace.publisher.copies import CopyState
from headrace.publisher.source import AttachedTable
from headrace.runtime.dsn import Dsn, find_dsn

app = App(name="publisher", help="Attach tables to a feed, check and detach them.")

app.command(copy_command, name="copy")
app.command(grants_command, name="grants")

Flag = Annotated[bool, Parameter(negative=())]
Names = Annotated[list[str] | None, Parameter(negative=())]


@app.command(name="attach")
def attach_command(
    dsn: str | None = None,
    *,
    feed: str,
    table: Names = None,
    include: Names = None,
    exclude: Names = None,
    columns: Names = None,
    exclude_columns: Names = None,
    mask: Names = None,
    key: Names = None,
    accept: str = "",
    before: Flag = False,
    no_copy: Flag = False,
    dsn_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Put triggers on tables, so that every committed change becomes an entry of a feed. Safe to repeat.

    Parameters
    ----------
    dsn
        The database, such as sqlite:///app.db. Default: --dsn-file, else HEADRACE_DSN.
    feed
        The change-feed-id. Several tables may share one feed.
    table
        A table. Repeat it, or separate by commas.
    include
        Patterns of table names, such as 'app_*'.
    exclude
        Patterns of table names to leave out.
    columns
        Deliver these columns and the key only. COLUMN, or TABLE.COLUMN.
    exclude_columns
        Columns to leave out.
    mask
        Columns whose values are replaced by ***.
    key
        Columns that name a row, for a table whose own key does not do. NOT NULL and UNIQUE together.
    accept
        Why a table that could lose a change by REPLACE is attached all the same. Kept, and shown by check.
    before
        Carry each row as it was before an update, too.
    no_copy
        Leave out the rows that are already there.
    dsn_file
        File whose first line is the DSN.
    json
        Print one JSON document.
    """
    request = AttachRequest(
        feed=check_feed_id(feed),
        tables=split_names(table),
        include=split_names(include),
        exclude=split_names(exclude),
        columns=split_names(columns),
        exclude_columns=split_names(exclude_columns),
        mask=split_names(mask),
        key=split_names(key),
        accept=accept,
        before=before,
        copy=not no_copy,
    )
    with copy_progress() as progress:
        attached = attach_tables(_dsn(dsn, dsn_file), request, progress)
    _tell_attached(attached, as_json=json)


@app.command(name="detach")
def detach_command(
    dsn: str | None = None,
    *,
    table: Names = None,
    discard: Flag = False,
    dsn_file: Path | None = None,
    json: Flag = False,
) -> None:
    """Take triggers away, and everything else that attach made once it is delivered.

    Parameters
    ----------
    dsn
        The application's database. Default: --dsn-file, else HEADRACE_DSN.
    table
        A table. Repeat it, or separate by commas. Default: every attached table.
    discard
        Throw away committed changes that are not delivered yet.
    dsn_file
        File whose first line is the DSN.
    json
        Print one JSON document.
    """
    with opened_source(_dsn(dsn, dsn_file)) as source:
        found = source.detach(split_names(table), discard=discard)
    if json:
        _print(
            {
                "detached": [
                    {"table": one.table, "feed": one.feed, "waiting-rows": one.waiting} for one in found
                ]
            }
        )
        return
    for one in found:
        print(f"{one.table}: detached from {one.feed}; its triggers are gone")
        if one.waiting:
            print(
                f"  {one.waiting} changes wait for the agent; run this again once they are delivered, "
                "or with --discard, to remove the rest"
            )


@app.command(name="check")
def check_command(
    dsn: str | None = None, *, feed: str | None = None, dsn_file: Path | None = None, json: Flag = False
) -> int:
    """Compare triggers with tables as they are now; exit code 1 if something is wrong.

    Parameters
    ----------
    dsn
        The application's database. Default: --dsn-file, else HEADRACE_DSN.
    feed
        Only the tables of this feed.
    dsn_file
        File whose first line is the DSN.
    json
        Print one JSON document.
    """
    with opened_source(_dsn(dsn, dsn_file)) as source:
        found = source.check(None if feed is None else [feed])
        advice = source.advice()
        alarms = {name: source.alarm_of(name) for name in sorted({one.feed for one in found})}
    wrong = any(one.findings for one in found) or any(alarms.values())
    if json:
        raised = [
            {"feed": name, "code": one.code, "detail": one.detail, "hint": one.hint}
            for name, one in alarms.items()
            if one
        ]
        _print(
            {
                "ok": not wrong,
                "attached": [_document(one) for one in found],
                "alarms": raised,
                "advice": advice,
            }
        )
        return int(wrong)
    for one in found:
        state = "wrong" if one.findings else "right"
        print(
            f"{one.table}: {state}, feed {one.feed}, schema version {one.version}, {one.waiting_rows} changes wait"
        )
        for finding in one.findings:
            print(f"  {finding.kind}: {finding.detail}")
        if one.accepted:
            print(f"  accepted: {one.accepted}")
    for name, alarm in alarms.items():
        if alarm:
            print(f"{name}: {alarm.code}: {alarm.detail}\n  {alarm.hint}")
    for line in advice:
        print(f"advice: {line}")
    if not found:
        print("nothing is attached")
    return int(wrong)


@app.command(name="accept")
def accept_command(
    dsn: str | None = None, *, feed: str, reason: str, dsn_file: Path | None = None, json: Flag = False
) -> None:
    """Go on after feed-recreated, outbox-behind-feed or feed-behind-outbox: take the feed as the agent found it.

    At its next start the agent goes on at the feed's end. Changes that were not delivered get new places, and every attached
    table is emptied in the feed and copied anew. Nothing happens if the feed is another one again by then.

    Parameters
    ----------
    dsn
        The application's database. Default: --dsn-file, else HEADRACE_DSN.
    feed
        The feed at which the agent stopped.
    reason
        Why; kept with the outbox.
    dsn_file
        File whose first line is the DSN.
    json
        Print one JSON document.
    """
    check_feed_id(feed)
    if not reason.strip():
        raise Usage("--reason says nothing", hint="Say why the feed is taken as it is.")
    with opened_source(_dsn(dsn, dsn_file)) as source:
        alarm = source.accept(feed, reason)
    if json:
        _print(
            {
                "feed": feed,
                "code": alarm.code,
                "incarnation": alarm.incarnation,
                "next-sequence-id": alarm.next_sequence_id,
            }
        )
        return
    print(f"{feed}: {alarm.code} is accepted; start the agent: it goes on at {alarm.next_sequence_id}")


def _dsn(dsn: str | None, dsn_file: Path | None) -> Dsn:
    return find_dsn(dsn, dsn_file, os.environ)


def _tell_attached(found: Sequence[tuple[AttachedTable, Attached]], *, as_json: bool) -> None:
    if as_json:
        _print({"attached": [{**_document(one), "new": table.new} for table, one in found]})
        return
    for table, one in found:
        verb = "attached" if table.new else "was attached already"
        print(
            f"{one.table}: {verb}, feed {one.feed}, schema version {one.version}, {one.copied_rows} rows copied"
        )
        if one.copy_state == CopyState.FAILED:
            print("  its copy failed; headrace publisher copy --status says why")
    print("Deliver them with: headrace agent run --config agent.toml")


def _document(one: Attached) -> dict[str, Any]:
    return {
        "table": one.table,
        "feed": one.feed,
        "version": one.version,
        "columns": one.columns,
        "key": one.key,
        "masked": one.masked,
        "accepted": one.accepted,
        "copy": one.copy_state,
        "copied-rows": one.copied_rows,
        "waiting-rows": one.waiting_rows,
        "findings": [{"kind": finding.kind, "detail": finding.detail} for finding in one.findings],
    }


def _print(document: Mapping[str, Any]) -> None:
    print(json.dumps(document, ensure_ascii=False))
