"""What each consumer did with an entry, of what was written down of its progress. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

import msgspec

from headrace.access.patterns import matches_any
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError
from headrace.log.metadata.contract import ListenerRow, ProgressRow, SubscriberRow
from headrace.runtime.typed_json import decode_json
from headrace.server.recording import Step
from headrace.server.streams.selection import selection_of
from headrace.server.tracing.finding import Found
from headrace.wire.documents import rfc3339
from headrace.wire.filters import entry_filter
from headrace.wire.passages import Passage, decode_points, passage
from headrace.wire.trace_documents import TraceConsumer, TraceSpan, TraceStep

_UNSEEN: Final = (
    "its place is behind the entry, but no poll or stream was seen to give it: it read a range, took a snapshot, "
    "began there, or had it before a crash"
)


class Sought(NamedTuple):
    """The entry that is asked about. ``found`` None: it is not there, so no filter can be tried on it.

    ``floor_ms``: nobody had it before, None if that is not known. ``bounded``: one server alone writes progress down, so a
    consumer was not further on than it says at that time.
    """

    sequence_id: int
    lsn: Lsn | None
    incarnation: str
    found: Found | None
    floor_ms: int | None
    bounded: bool


class _Steps(NamedTuple):
    delivered: Passage | None
    acked: Passage | None
    wanted: str
    reached: int | None
    """The last place of which it is known that it was handed out."""


def listener_trace(sought: Sought, row: ListenerRow, progress: Sequence[ProgressRow]) -> TraceConsumer:
    """Return what a registered listener did with the entry."""
    rows = [one for one in progress if one.incarnation == sought.incarnation]
    steps = _steps(rows, sought.sequence_id)
    known = row.sequence_id if row.incarnation == sought.incarnation else None
    if known is not None and known < sought.sequence_id:  # it moved back, or a crash lost where it had been
        steps = steps._replace(acked=None)
    place = max((one for one in (known, steps.reached) if one is not None), default=None)
    return _told(
        TraceConsumer(
            kind="listener",
            name=row.listener_id,
            subject="",
            state="waiting",
            delivered=_span(steps.delivered, sought),
            acked=_span(steps.acked, sought),
            place=str(known) if known is not None else "",
            behind=max(0, sought.sequence_id - place - 1) if place is not None else None,
            seen_at=rfc3339(row.seen_at_ms),
            detail="",
        ),
        steps,
        leaves_out=_listener_leaves_out(steps.wanted, sought.found),
    )


def subscriber_trace(
    sought: Sought, row: SubscriberRow, progress: Sequence[ProgressRow]
) -> TraceConsumer | None:
    """Return what a subscriber did with the entry; None where its LSN is not known, so nothing can be told."""
    if sought.lsn is None:
        return None
    steps = _steps(progress, int(sought.lsn))
    acked = steps.acked
    if acked is None and Lsn.parse(row.lsn) >= sought.lsn:  # before its progress was written down
        acked = Passage(None, row.seen_at_ms, skipped=True)
        steps = steps._replace(acked=acked)
    return _told(
        TraceConsumer(
            kind="subscriber",
            name=row.subscriber_id,
            subject=row.subject,
            state="waiting",
            delivered=_span(steps.delivered, sought),
            acked=_span(acked, sought),
            place=row.lsn,
            behind=None,
            seen_at=rfc3339(row.seen_at_ms),
            detail="",
        ),
        steps,
        leaves_out=_selection_leaves_out(steps.wanted, sought.found),
    )


def archived_steps(consumers: Sequence[TraceConsumer], backups: AbstractSet[str]) -> Iterator[TraceStep]:
    """Return when the entry was archived: a subscriber that reports as a backup acks what its archive holds."""
    for one in consumers:
        if one.kind == "subscriber" and one.name in backups and one.acked is not None:
            yield TraceStep(
                step="archived",
                after=one.acked.after,
                by=one.acked.by,
                detail=f"the backup {one.name} acknowledged it",
            )


def _steps(rows: Sequence[ProgressRow], place: int) -> _Steps:
    delivered = acked = reached = None
    wanted = ""
    for row in rows:
        points = decode_points(row.points)
        if row.step == Step.DELIVERED:
            delivered, wanted = passage(points, place), row.wanted
            reached = points[-1].place if points else None
        elif row.step == Step.ACKED:
            acked = passage(points, place)
    return _Steps(delivered, acked, wanted, reached)


def _span(found: Passage | None, sought: Sought) -> TraceSpan | None:
    if found is None:
        return None
    bounds = [found.after_ms] if sought.bounded and not found.skipped else []
    after = max((one for one in (*bounds, sought.floor_ms) if one is not None), default=None)
    return TraceSpan(
        after=rfc3339(min(after, found.by_ms)) if after is not None else None, by=rfc3339(found.by_ms)
    )


def _told(one: TraceConsumer, steps: _Steps, *, leaves_out: bool | None) -> TraceConsumer:
    """State and words of what was found; what may have been passed over is not told as delivered."""
    seen = steps.delivered is not None and not steps.delivered.skipped
    if leaves_out or not seen:
        one.delivered = None
    if leaves_out:
        one.state, one.detail = "filtered", f"the filter it asks with leaves the entry out: {steps.wanted}"
    elif steps.acked is not None and (seen or not steps.acked.skipped):
        one.state, one.detail = "acked", "" if seen else _UNSEEN
    elif seen:
        one.state, one.detail = "delivered", "handed to its connection; not acknowledged yet"
    elif steps.acked is not None:
        one.state, one.detail = "skipped", _UNSEEN
    elif steps.delivered is not None:
        one.state, one.detail = "skipped", f"{_UNSEEN}. So it was by {rfc3339(steps.delivered.by_ms)}"
    else:
        behind = f", {one.behind} more before it" if one.behind is not None else ""
        one.detail = f"not handed out yet{behind}; last seen {one.seen_at}"
    return one


def _listener_leaves_out(wanted: str, found: Found | None) -> bool | None:
    """None: it can't be told."""
    if not wanted:
        return False
    if found is None:
        return None
    try:
        given = decode_json(wanted, dict[str, str])
        entry = entry_filter(given.get("changed"), given.get("key"), given.get("shard"))
    except (msgspec.DecodeError, HeadraceError):
        return None
    return not entry.passes(found.message)


def _selection_leaves_out(wanted: str, found: Found | None) -> bool | None:
    if not wanted:
        return False
    if found is None:
        return None
    try:
        feeds = decode_json(wanted, dict[str, str]).get("feeds", "")
        _, _, feed = found.message.key_prefix.removesuffix(":").split(":", 2)
        if feeds and not all(matches_any(patterns.split(","), feed) for patterns in feeds.split(";")):
            return True
        runs = selection_of(wanted).runs(found.frame)
    except (msgspec.DecodeError, HeadraceError):
        return None
    return not any(begin <= found.at < stop for begin, stop in runs)
