"""The document of ``GET /feeds/{id}/trace``: one entry's life, as far as it was written down.

Times are RFC 3339 of the server's clock, save those that say otherwise. Where only bounds are known there are two:
``after`` (the step was not done then) and ``by`` (it was done then).
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.wire.documents import AlarmView, Answer
from headrace.wire.report_documents import WorkReport


class TraceStep(Answer):
    """A step that happens once. ``after`` and ``by`` are equal where the time was written down with the entry.

    ``step``: ``committed`` and ``marked`` (the source's clock), ``posted``, ``appended``, ``durable``. ``by`` None: not
    known.
    """

    step: str
    after: str | None
    by: str | None
    detail: str = ""


class TracePlace(Answer):
    """Where the entry stands in the journal. ``frame_position`` and ``entry_position``: of the first byte of its frame and
    of itself. ``segment``: the journal segment's file: a start record, then the frame bytes from
    ``segment_first_position`` on. A store in a database has rows in its place.
    """

    segment: str
    segment_first_position: int
    frame_position: int
    frame_bytes: int
    entry_position: int
    entry_bytes: int
    index_in_append: int
    entries_in_append: int


class TraceProducer(Answer):
    """Who appended it. ``owner_now``: who owns the feed now; empty for a shared one. ``source_position`` is base64."""

    producer: str
    epoch: int
    owner_now: str
    epoch_now: int
    traceparent: str
    source_position: str


class TraceSpan(Answer):
    """A time between two bounds. ``after`` None: no lower bound is known."""

    after: str | None
    by: str


class TraceConsumer(Answer):
    """What one consumer did with the entry.

    ``kind``: ``listener`` or ``subscriber``. ``state``: ``delivered``; ``acked``; ``skipped`` (it is behind the entry, and
    may have begun there or come from a snapshot); ``filtered`` (its filter leaves the entry out); ``waiting`` (it is not
    so far: ``behind`` entries of this feed are before it, None where that is not known). ``place``: the last one that it
    reported or acked. ``delivered``, ``acked``: when; None: not yet, or not known. ``detail``: the same in words.
    """

    kind: str
    name: str
    subject: str
    state: str
    delivered: TraceSpan | None
    acked: TraceSpan | None
    place: str
    behind: int | None
    seen_at: str | None
    detail: str


class TraceWork(Answer):
    """What an agent or a capture said last of its work at the feed, and when.

    ``state``: the process's where that is ``gone`` (no report for 30 seconds), ``ending`` or ``failed``, else the work's.
    """

    kind: str
    name: str
    state: str
    reported_at: str
    work: WorkReport


class TraceQuarantine(Answer):
    """A publisher that is refused until an operator releases it, and the entry that it posted again."""

    agent_id: str
    sequence_id: int
    since: str


class TraceSource(Answer):
    """What is known of where entries that are not there would come from.

    ``words``: all of it in sentences. ``owner``: who may append, empty for a shared feed. ``works`` and ``alarms`` (those
    that stand and concern the feed) are None where the token may not see them. ``not_ready``: why nothing is appended now.
    """

    words: Sequence[str]
    owner: str
    epoch: int
    shared: bool
    quarantines: Sequence[TraceQuarantine]
    works: Sequence[TraceWork] | None
    alarms: Sequence[AlarmView] | None
    not_ready: Sequence[str]


class Trace(Answer):
    """One entry's life. ``state``: ``retained``; ``dropped`` (retention took it); ``lost`` (a repair, or a rebuild from a
    backup); ``damaged``; ``beyond-head`` (there is no such entry yet); ``not-found`` (no entry with this key was met).

    ``same_key``: for a key, the sequence ids of the newest entries with it, newest first; ``scanned_from`` is the oldest
    sequence id that was looked at for it. What ``state`` keeps from being told is None or empty.

    ``source``: what keeps entries from being appended, for an entry that is not there yet, and for a key, of which a newer
    change may be on its way.
    """

    change_feed_id: str
    incarnation: str
    sequence_id: int | None
    state: str
    detail: str
    oldest_sequence_id: int
    head_sequence_id: int
    at: str
    lsn: str | None = None
    key: str | None = None
    op: str | None = None
    control: str | None = None
    tx: str | None = None
    producer: TraceProducer | None = None
    place: TracePlace | None = None
    steps: Sequence[TraceStep] = ()
    consumers: Sequence[TraceConsumer] = ()
    same_key: Sequence[int] = ()
    scanned_from: int | None = None
    source: TraceSource | None = None
