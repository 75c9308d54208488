"""``headrace agent``: relay a database's outbox to its feeds until told to stop, and show how that stands."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.cli.agent_parked import app as parked_app
from headrace.cli.agent_parked import skip_command
from headrace.publisher.agent import run_agent
from headrace.publisher.attaching import opened_source
from headrace.publisher.settings import AgentSettings, load_agent_settings
from headrace.publisher.snapshot.spool import Whole, read_spool
from headrace.publisher.standing import FeedStanding, Holder
from headrace.runtime.clock import SystemClock
from headrace.runtime.shutdown import stop_event
from headrace.wire.documents import rfc3339

app = App(name="agent", help="Relay a database's outbox to a feed.")
app.command(skip_command, name="skip")
app.command(parked_app)

Flag = Annotated[bool, Parameter(negative=())]


@app.command(name="run")
def run_command(*, config: Path = Path("agent.toml"), takeover: Flag = False, json: Flag = False) -> None:
    """Relay until told to stop (SIGINT, SIGTERM). It may be killed at any point: nothing is lost, nothing comes twice.

    Parameters
    ----------
    config
        Settings (TOML): agent-id, feeds, server, dsn or dsn-file (else HEADRACE_DSN), retention, token-file, ca-file;
        with health (HOST:PORT) it says there whether it moves (docs/howto/health.md), with snapshot-listen it serves
        snapshots too (docs/howto/snapshots.md).
    takeover
        Claim the feeds even if another agent owns them. Stop that one first.
    json
        Print agent id and feeds as a JSON document at the start.
    """
    settings = load_agent_settings(config)
    asyncio.run(_until_stopped(settings, takeover=takeover, as_json=json))


@app.command(name="status")
def status_command(*, config: Path = Path("agent.toml"), json: Flag = False) -> int:
    """Show how the agent's feeds stand: what waits, since when, the last error, parked rows, snapshots, and who holds the
    database up.

    Reads the source and the snapshots' folder only, so it works whether the agent runs or not. Exit code 1 if there is an
    alarm, or something is wrong with an attached table.

    Parameters
    ----------
    config
        The agent's settings.
    json
        Print one JSON document.
    """
    settings = load_agent_settings(config)
    with opened_source(settings.find_dsn(os.environ)) as source:
        source.check_outbox()
        feeds = source.standing(settings.feeds)
        findings = [finding for one in source.check(settings.feeds) for finding in one.findings]
        holders = source.holders()
        advice = source.advice()
        parked = source.parked(settings.feeds)
    snapshots = read_spool(Path(settings.snapshot_dir)) if settings.snapshot_listen is not None else []
    now_ms = SystemClock().wall_ms()
    document = {
        "feeds": [
            _feed_document(one, now_ms)
            | {
                "parked-rows": sum(row.feed == one.feed for row in parked),
                "snapshot": _snapshot_document(one.feed, snapshots, now_ms),
            }
            for one in feeds
        ],
        "holders": [
            {"what": one.what, "detail": one.detail, "age-s": one.age_s, "transactions": one.transactions}
            for one in holders
        ],
        "findings": [{"kind": one.kind, "table": one.table, "detail": one.detail} for one in findings],
        "advice": advice,
    }
    if json:
        print(dump_json(document, ensure_ascii=False))
    else:
        _tell_status(feeds, holders, now_ms)
        for row in parked:
            print(f"parked: row {row.id} of {row.feed}, {row.op} of {row.key or 'an object'}: {row.reason}")
        for one in feeds:
            if settings.snapshot_listen is not None:
                print(_tell_snapshot(one.feed, snapshots, now_ms))
        for finding in findings:
            print(f"{finding.table}: {finding.kind}: {finding.detail}")
        for line in advice:
            print(f"advice: {line}")
    return int(bool(findings) or any(one.alarm for one in feeds))


def _feed_document(one: FeedStanding, now_ms: int) -> dict[str, object]:
    return {
        "feed": one.feed,
        "agent-id": one.agent_id,
        "epoch": one.epoch,
        "incarnation": one.incarnation,
        "next-sequence-id": one.next_sequence_id,
        "processed-next": one.processed_next,
        "waiting-rows": one.waiting_rows,
        "oldest-waiting-ms": _age_ms(one, now_ms),
        "alarm": None
        if one.alarm is None
        else {
            "code": one.alarm.code,
            "detail": one.alarm.detail,
            "hint": one.alarm.hint,
            "raised-at": rfc3339(one.alarm.raised_at_ms),
            "row": None if one.alarm.row is None else one.alarm.row.id,
        },
    }


def _newest(feed: str, snapshots: Sequence[Whole]) -> Whole | None:
    return next((one for one in reversed(snapshots) if one.change_feed_id == feed), None)


def _snapshot_document(feed: str, snapshots: Sequence[Whole], now_ms: int) -> dict[str, object] | None:
    newest = _newest(feed, snapshots)
    if newest is None:
        return None
    return {
        "snapshot-id": newest.snapshot_id,
        "sequence-id": newest.sequence_id,
        "rows": newest.rows,
        "bytes": newest.size,
        "age-ms": max(0, now_ms - newest.taken_at_ms),
        "kept": sum(one.change_feed_id == feed for one in snapshots),
    }


def _tell_snapshot(feed: str, snapshots: Sequence[Whole], now_ms: int) -> str:
    newest = _newest(feed, snapshots)
    if newest is None:
        return f"{feed}: no snapshot is kept"
    age_s = max(0, now_ms - newest.taken_at_ms) / 1000
    return f"{feed}: snapshot at {newest.sequence_id}, {newest.rows} rows, {newest.size} bytes, taken {age_s:.0f} s ago"


def _age_ms(one: FeedStanding, now_ms: int) -> int | None:
    return None if one.oldest_waiting_ms is None else max(0, now_ms - one.oldest_waiting_ms)


def _tell_status(feeds: Sequence[FeedStanding], holders: Sequence[Holder], now_ms: int) -> None:
    for one in feeds:
        age = _age_ms(one, now_ms)
        since = "" if age is None else f", the oldest for {age / 1000:.1f} s"
        owner = f"agent {one.agent_id} at epoch {one.epoch}" if one.agent_id else "no agent has run yet"
        print(
            f"{one.feed}: {one.waiting_rows} rows wait{since}; next sequence id {one.next_sequence_id}; {owner}"
        )
        if one.alarm:
            print(f"  {one.alarm.code}: {one.alarm.detail}\n  {one.alarm.hint}")
    for holder in holders:
        age_text = "" if holder.age_s is None else f", open for {holder.age_s} s"
        print(
            f"holds the horizon: {holder.what} ({holder.detail}){age_text}; {holder.transactions} transactions since"
        )


async def _until_stopped(settings: AgentSettings, *, takeover: bool, as_json: bool) -> None:
    stop = stop_event()
    if as_json:
        print(dump_json({"agent-id": settings.agent_id, "feeds": settings.feeds}), flush=True)
    await run_agent(settings, stop, takeover=takeover)
