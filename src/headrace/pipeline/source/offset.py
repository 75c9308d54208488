"""A place in a feed as Spark stores it in a checkpoint: which history, which entry was the last. Pure.

``docs/formats/tables.md`` is its description. The first place of a query is written as what was *asked for* ("oldest"), not
as what that meant at the time: Spark asks for it again after a restart while the first batch is uncommitted, does not
store the answer, and would skip entries without a word if it were another one. What it meant then stands in the first
batch's end, which Spark does store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.wire.versions import SPARK_OFFSET, check_readable


class FeedOffset(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=False):
    """All entries up to ``sequence_id`` are done. ``lsn`` is that entry's, empty at the very beginning.

    ``began_after``: only in the first batch's end, the sequence id after which that batch begins.
    """

    feed: str
    incarnation: str
    sequence_id: int
    lsn: str = ""
    began_after: int | None = None
    written_as: int = SPARK_OFFSET.written_as
    readable_from: int = SPARK_OFFSET.readable_from

    @property
    def committed_at_ms(self) -> int:
        """When the last entry was appended, UTC milliseconds; 0 at the very beginning."""
        return Lsn.parse(self.lsn).committed_at_ms if self.lsn else 0


class FeedStart(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Where a query was asked to begin: at the oldest entry retained, or after the newest."""

    feed: str
    begin: Literal["oldest", "head"]
    written_as: int = SPARK_OFFSET.written_as
    readable_from: int = SPARK_OFFSET.readable_from


Place = FeedOffset | FeedStart


def to_json(place: Place) -> dict[str, Any]:
    """Return what Spark stores; equal places give equal JSON, members in one order (Spark compares the text)."""
    document: dict[str, Any] = msgspec.to_builtins(place)
    return {name: document[name] for name in sorted(document) if document[name] is not None}


def from_json(document: Mapping[str, Any], feed: str) -> Place:
    """Return the place that Spark stored for ``feed``.

    Raises FormatTooNew, and InvalidRequest if it is no place, or one in another feed (a checkpoint of another query).
    """
    try:
        check_readable("the Spark checkpoint", int(document.get("readable-from", 1)), SPARK_OFFSET)
        place: Place
        if "begin" in document:
            place = msgspec.convert(dict(document), FeedStart)
        else:
            place = msgspec.convert(dict(document), FeedOffset)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise InvalidRequest(
            f"the checkpoint's offset {dict(document)!r} is none of a feed: {error}"
        ) from None
    if place.feed != feed:
        raise InvalidRequest(
            f"the checkpoint is of the feed {place.feed}, the query reads {feed}",
            hint="Give each query its own checkpoint folder.",
        )
    return place
