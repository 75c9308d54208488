"""The documents of ``PUT /reports/{kind}/{name}`` and ``GET /reports``: what processes say of themselves, for people.

Every few seconds each long-running process says how its works stand. "No entries" then reads as: the source is idle, the
agent is gone, or it is stuck.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from headrace.wire.documents import U64, Answer, Document, Name

WORKS_MAX: Final = 1_000
"""Works in a report: an agent has one a feed."""
FACTS_MAX: Final = 200
TEXT_CHARS_MAX: Final = 2_000
"""Characters of a detail or a source position; whoever reports cuts what is longer."""
NAME_CHARS_MAX: Final = 300

ReporterKind = Literal["agent", "capture", "listener", "backup", "pipeline"]
KINDS: Final[tuple[ReporterKind, ...]] = ("agent", "capture", "listener", "backup", "pipeline")
WorkState = Literal["idle", "moving", "stuck"]
ProcessState = Literal["idle", "moving", "stuck", "ending", "failed"]
ShownState = Literal["idle", "moving", "stuck", "ending", "failed", "gone"]

Fact = Annotated[float, Meta(ge=-1e300, le=1e300)]
ShortText = Annotated[str, Meta(max_length=NAME_CHARS_MAX)]
ErrorCode = Annotated[str, Meta(max_length=64, pattern="^[a-z0-9-]*$")]
LongText = Annotated[str, Meta(max_length=TEXT_CHARS_MAX)]
ReporterName = Annotated[Name, Meta(max_length=NAME_CHARS_MAX)]


class WorkReport(Document, kw_only=True):
    """One thing that a process does without end.

    ``feed``: which it is about, empty for none. ``waiting``: how much waits, 0: nothing. ``source_position``: how far it has
    come, in its source's own words. ``reachable``: whether its source answers; None: not asked yet. ``since``: when it last
    moved, or when it became idle or had something to do again. ``detail``: what keeps it from going on, empty: nothing.
    """

    name: ReporterName
    feed: ShortText = ""
    waiting: U64 = 0
    oldest_waiting_at: ShortText | None = None
    source_position: LongText = ""
    reachable: bool | None = None
    state: WorkState
    since: ShortText
    code: ShortText = ""
    detail: LongText = ""


class ReportIn(Document, kw_only=True):
    """What a process says of itself. ``facts``: numbers of its own, by the key of the metric that they would be.

    ``code`` and ``detail``: the error that it died of, of a process that ``failed``; empty for every other.
    """

    version: ShortText
    host: ShortText
    pid: U64
    started_at: ShortText
    state: ProcessState
    code: ErrorCode = ""
    detail: LongText = ""
    works: Annotated[list[WorkReport], Meta(max_length=WORKS_MAX)]
    facts: Annotated[dict[ShortText, Fact], Meta(max_length=FACTS_MAX)] = msgspec.field(default_factory=dict)


class Reported(Answer):
    """When the server got the report."""

    reported_at: str


class ReportView(Answer):
    """The last that a process said of itself.

    ``state`` is ``gone`` if that is older than 30 seconds; but one that ``failed`` stays that: why it is gone is known.
    """

    kind: str
    name: str
    state: ShownState
    reported_at: str
    report: ReportIn


class ReportList(Answer):
    """``GET /reports``: by kind and name."""

    reports: list[ReportView]
