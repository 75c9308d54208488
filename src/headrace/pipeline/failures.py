"""A query's failure -> our own error again. Errors cross from Python workers to the driver as text in a JVM exception.

Called wherever a query or a job is waited for.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import (
    FeedRecreated,
    HeadraceError,
    QueryFailed,
    SequenceLost,
    SequenceNotAvailable,
    SparkBusy,
    every_error,
)
from headrace.pipeline.source.offset import Offset, read_offset

# A traceback's last line: "headrace.errors.ValueUnfit: feed f, sequence id 7, ...".
_LINE: Final = re.compile(r"\bheadrace\.[a-z_.]+\.([A-Z]\w+): ([^\n]+)")
# What Spark tells of a query that failed: "Current Committed Offsets: {SOURCE: OFFSET}".
_COMMITTED: Final = re.compile(r"Current Committed Offsets: \{[^{}]*?: (\{.*\})\}")
_AVAILABLE: Final = re.compile(r"Current Available Offsets: \{[^{}]*?: (\{.*\})\}")

_NO_WORKER: Final = "Python worker failed to connect back"
"""What Spark says when a Python process did not report within ten seconds, which no setting of it makes longer."""

CAUSE_CHARS_MAX: Final = 500
"""Of a cause that Spark tells; plans and rows can make it endless."""

_HINTS: Final[dict[type[HeadraceError], str]] = {
    FeedRecreated: "The feed was made anew or restored. Start the job anew: an empty folder and a new checkpoint.",
    SequenceLost: "Name an archive that holds these entries, or start the job anew, behind them or from a new copy.",
    SequenceNotAvailable: "Retention has passed the job. Name an archive that holds these entries, or start the job anew "
    "in an empty folder, with a new checkpoint.",
}
"""What to do about a query, where the class's own hint speaks to a listener."""


def error_of(failure: BaseException) -> HeadraceError:
    """Return what failed as one of our errors: the one that a worker or the source raised, else QueryFailed;
    SparkBusy if no worker could be had.

    QueryFailed names the feeds, and the sequence ids of the batch that it happened in, where Spark tells them.
    """
    if isinstance(failure, HeadraceError):
        return failure
    text = str(failure)
    known = {kind.__name__: kind for kind in every_error()}
    found = [(known[name], detail) for name, detail in _LINE.findall(text) if name in known]
    if found:
        kind, detail = found[-1]
        where = _batch_in(text) if kind is QueryFailed else ""
        return kind(detail.strip() + where, hint=_HINTS.get(kind))
    if _NO_WORKER in text:
        return SparkBusy()
    return QueryFailed(f"{_cause_in(text) or type(failure).__name__}{_batch_in(text)}")


def failed_at(failure: BaseException, where: str) -> HeadraceError:
    """Return :func:`error_of` of a failure; QueryFailed says in addition ``where`` it happened, such as a table's name."""
    error = error_of(failure)
    return QueryFailed(f"{where}: {error.detail}") if isinstance(error, QueryFailed) else error


def _cause_in(text: str) -> str:
    """Return the innermost exception's line, else Spark's own words, without plans and stacks; empty if there is neither."""
    said = re.split(r"^(?:=== Streaming Query ===|JVM stacktrace:)", text, maxsplit=1, flags=re.MULTILINE)[0]
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    causes = [line for line in lines if re.search(r"(Error|Exception)\b.*: ", line)]
    if causes:
        return causes[-1].lstrip(": ")[:CAUSE_CHARS_MAX]
    # An error class in brackets begins Spark's words; what follows is the plan.
    named = [line for line in lines if re.match(r"\[[A-Z_.]+\] ", line)]
    return (named[:1] or lines[-1:] or [""])[0][:CAUSE_CHARS_MAX]


def _batch_in(text: str) -> str:
    """Return `` (feed shop, entries 13 to 24, after LSN …)`` of the batch that failed; nothing if it is not known."""
    before, after = (_offset_in(pattern, text) for pattern in (_COMMITTED, _AVAILABLE))
    told = []
    for feed, end in after.feeds.items() if after is not None else ():
        start = before.feeds.get(feed) if before is not None else None
        first = start.sequence_id + 1 if start is not None else (end.began_after or 0) + 1
        if first <= end.sequence_id:
            told.append(f"feed {feed}, entries {first} to {end.sequence_id}, up to LSN {end.lsn}")
        else:
            told.append(f"feed {feed}, after entry {end.sequence_id}, LSN {end.lsn}")
    return f" ({'; '.join(told)})" if told else ""


def _offset_in(pattern: re.Pattern[str], text: str) -> Offset | None:
    found = pattern.search(text)
    if found is None:
        return None
    try:
        offset = read_offset(found[1])
    except HeadraceError:  # of another source, or of a newer Headrace: it is only told
        return None
    return offset if isinstance(offset, Offset) else None
