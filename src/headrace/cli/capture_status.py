"""``headrace capture status``: how far the feed is, what is copied, what is not captured any more."""

from __future__ import annotations

import asyncio
import json as json_format
import os
from pathlib import Path

from headrace.capture.position import CopyProgress, SourcePosition
from headrace.capture.settings import CaptureSettings, load_capture_settings
from headrace.capture.standing import (
    FeedStanding,
    SourceStanding,
    read_feed_standing,
    read_source_standing,
)
from headrace.cli.capture_options import Flag
from headrace.errors import HeadraceError
from headrace.runtime.clock import SystemClock
from headrace.wire.documents import rfc3339


def status_command(*, config: Path = Path("capture.toml"), json: Flag = False) -> int:
    """Show the place in the binlog, how far behind it is, copies under way, and what is not captured.

    Reads the feed and the source, so it works whether capture runs or not. Exit code 1 if a table is stopped, or the source
    can't be asked.

    Parameters
    ----------
    config
        Capture's settings.
    json
        Print one JSON document.
    """
    return asyncio.run(_status(load_capture_settings(config), as_json=json))


async def _status(settings: CaptureSettings, *, as_json: bool) -> int:
    feed = await read_feed_standing(settings, os.environ)
    source: SourceStanding | HeadraceError
    try:
        source = await read_source_standing(settings, os.environ, feed.position)
    except HeadraceError as error:
        source = error
    lag_ms = _lag_ms(feed, source)
    if as_json:
        print(json_format.dumps(_document(settings, feed, source, lag_ms), ensure_ascii=False))
    else:
        _tell(settings, feed, source, lag_ms)
    return int(isinstance(source, HeadraceError) or bool(feed.position and feed.position.stopped))


def _lag_ms(feed: FeedStanding, source: SourceStanding | HeadraceError) -> int | None:
    """How old the last change is that the feed has; 0 if no later one is there, None if that is not known.

    A commitTs may be far ahead of the stream: copied rows get the time at which they were copied.
    """
    if feed.position is None or feed.committed_at_ms is None or isinstance(source, HeadraceError):
        return None
    taken_ms = feed.position.time_s * 1000 or feed.committed_at_ms
    return max(0, SystemClock().wall_ms() - taken_ms) if source.behind else 0


def _document(
    settings: CaptureSettings, feed: FeedStanding, source: SourceStanding | HeadraceError, lag_ms: int | None
) -> dict[str, object]:
    position = feed.position
    asked = source if isinstance(source, SourceStanding) else None
    return {
        "feed": settings.feed,
        "agent-id": settings.agent_id,
        "owner": feed.owner,
        "epoch": feed.epoch,
        "next-sequence-id": feed.next_sequence_id,
        "position": None if position is None else _position_document(feed, position),
        "source": None
        if asked is None
        else {"gtid": str(asked.gtid), "behind-transactions": asked.behind, "lag-ms": lag_ms},
        "source-error": None
        if not isinstance(source, HeadraceError)
        else {"code": source.code, "detail": source.detail, "hint": source.advice},
        "copies": [_copy_document(copy) for copy in (position.copies if position else ())],
        "stopped": [
            {"table": table, "reason": reason}
            for table, reason in (position.stopped if position else {}).items()
        ],
        "cascades": [
            {"table": one.table, "key": one.key, "actions": one.actions}
            for one in (asked.cascades if asked else ())
        ],
    }


def _position_document(feed: FeedStanding, position: SourcePosition) -> dict[str, object]:
    return {
        "gtid": position.gtid,
        "file": position.file,
        "offset": position.offset,
        "server-id": position.server_id,
        "under-way": position.under_way or None,
        "parts": position.parts,
        "rows": position.rows,
        "commit-ts": position.commit_ts,
        "committed-at": rfc3339(feed.committed_at_ms or 0),
        "whole": position.whole,
    }


def _copy_document(copy: CopyProgress) -> dict[str, object]:
    return {
        "table": ".".join(copy.table),
        "copied-rows": copy.rows,
        "request": copy.id or None,
    }


def _tell(
    settings: CaptureSettings, feed: FeedStanding, source: SourceStanding | HeadraceError, lag_ms: int | None
) -> None:
    position = feed.position
    owner = f"agent {feed.owner} at epoch {feed.epoch}" if feed.owner else "no capture has run yet"
    print(f"{settings.feed}: next sequence id {feed.next_sequence_id}; {owner}")
    if position is None:
        print("nothing was captured yet")
    else:
        part = f", and {position.parts} parts of {position.under_way}" if position.under_way else ""
        print(
            f"captured up to {position.gtid or 'the beginning'}{part} ({position.file}, {position.offset}), "
            f"committed at {rfc3339(feed.committed_at_ms or 0)}"
        )
    if isinstance(source, HeadraceError):
        print(f"the source can't be asked: {source.detail}\n  {source.advice}")
    elif source.behind:
        print(
            f"the source is at {source.gtid}: {source.behind} transactions and {(lag_ms or 0) / 1000:.1f} s ahead"
        )
    elif source.behind is not None and position is not None and not position.whole:
        print("the feed has every change so far; rows are still to be copied")
    elif source.behind is not None:
        print("the feed has everything")
    for copy in position.copies if position else ():
        asked = f"request {copy.id}" if copy.id else "initial snapshot"
        print(f"copying {'.'.join(copy.table)} ({asked}): {copy.rows} rows so far")
    for table, reason in (position.stopped if position else {}).items():
        print(f"stopped: {table}: {reason}\n  Mend it, then run headrace capture copy {table}.")
    for one in source.cascades if isinstance(source, SourceStanding) else ():
        print(f"cascade: {one.table}: {one.key} has {' and '.join(one.actions)}, which no binlog shows")
