"""``headrace agent skip`` and ``agent parked``: go on without a row that the server refuses, and see to it later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from json import dumps as dump_json
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from headrace.errors import Usage
from headrace.publisher.attaching import opened_source
from headrace.publisher.parked import ParkedRow, find_parked
from headrace.publisher.settings import load_agent_settings
from headrace.publisher.source import Source
from headrace.runtime.clock import SystemClock
from headrace.wire.documents import rfc3339

app = App(name="parked", help="See to the rows that were skipped.")

Flag = Annotated[bool, Parameter(negative=())]


def skip_command(row: int, /, *, reason: str, config: Path = Path("agent.toml"), json: Flag = False) -> None:
    """Park the row over which a feed stopped: a PARKED entry (key, reason) takes its place, and the row is kept.

    Then start the agent again. Only the row that `headrace agent status` names can be skipped.

    Parameters
    ----------
    row
        The row's id, as the alarm names it.
    reason
        Why the feed may do without it. It stands in the feed, for everybody to read.
    config
        The agent's settings.
    json
        Print one JSON document.
    """
    with _outbox(config) as (source, feeds):
        parked = source.skip(_stopped_feed(source, feeds, row), row, reason)
    if json:
        print(dump_json(_document(parked), ensure_ascii=False))
    else:
        print(f"parked: {_line(parked)}\nstart the agent again: headrace agent run")


@app.command(name="list")
def list_command(*, config: Path = Path("agent.toml"), json: Flag = False) -> None:
    """List the parked rows of the agent's feeds.

    Parameters
    ----------
    config
        The agent's settings.
    json
        Print one JSON document.
    """
    with _outbox(config) as (source, feeds):
        rows = source.parked(feeds)
    if json:
        print(dump_json({"parked": [_document(one) for one in rows]}, ensure_ascii=False))
        return
    for one in rows:
        print(_line(one))


@app.command(name="retry")
def retry_command(row: int, /, *, config: Path = Path("agent.toml"), json: Flag = False) -> None:
    """Put a parked row at the end of its feed. The place that it had is never used again.

    A row of an attached table: its present state as a copy, or a delete if it is gone. A row of Outbox.add: itself, only if
    no later row has its key.

    Parameters
    ----------
    row
        The row's id.
    config
        The agent's settings.
    json
        Print one JSON document.
    """
    with _outbox(config) as (source, feeds):
        _check_ours(source, feeds, row)
        done = source.retry_parked(row)
    print(dump_json({"id": row, "retried": done}) if json else f"{done}: it follows at the end of its feed")


@app.command(name="drop")
def drop_command(row: int, /, *, config: Path = Path("agent.toml"), json: Flag = False) -> None:
    """Forget a parked row. Its PARKED entry stays in the feed.

    Parameters
    ----------
    row
        The row's id.
    config
        The agent's settings.
    json
        Print one JSON document.
    """
    with _outbox(config) as (source, feeds):
        _check_ours(source, feeds, row)
        parked = source.drop_parked(row)
    print(dump_json(_document(parked), ensure_ascii=False) if json else f"dropped: {_line(parked)}")


@contextmanager
def _outbox(config: Path) -> Iterator[tuple[Source, tuple[str, ...]]]:
    """The outbox of the agent that ``config`` sets up, its format checked, and the agent's feeds."""
    settings = load_agent_settings(config)
    with opened_source(settings.find_dsn(os.environ)) as source:
        source.check_outbox()
        yield source, settings.feeds


def _stopped_feed(source: Source, feeds: tuple[str, ...], row: int) -> str:
    """Return the feed that stopped over ``row``; the only one there is, or Usage, if none did."""
    for feed in feeds:
        alarm = source.alarm_of(feed)
        if alarm is not None and alarm.row is not None and alarm.row.id == row:
            return feed
    if len(feeds) == 1:
        return feeds[0]
    raise Usage(
        f"no feed of this agent has stopped over the row {row}", hint="headrace agent status names the row."
    )


def _check_ours(source: Source, feeds: tuple[str, ...], row: int) -> None:
    find_parked({one.id: one for one in source.parked(feeds)}, row)


def _document(one: ParkedRow) -> dict[str, object]:
    return {
        "id": one.id,
        "feed": one.feed,
        "sequence-id": one.sequence_id,
        "op": one.op,
        "key": one.key,
        "table": list(one.table) or None,
        "code": one.code,
        "reason": one.reason,
        "parked-at": rfc3339(one.parked_at_ms),
    }


def _line(one: ParkedRow) -> str:
    age_s = max(0, SystemClock().wall_ms() - one.parked_at_ms) / 1000
    what = one.key if one.key is None or len(one.key) <= 80 else one.key[:80] + "…"
    return (
        f"{one.id}: {one.feed} {one.sequence_id}, {one.op} of {what or 'an object'}, refused as {one.code}, "
        f"parked {age_s:.0f} s ago: {one.reason}"
    )
