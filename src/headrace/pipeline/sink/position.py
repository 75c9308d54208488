"""Which batch of which query an append is, kept in the append's own frame: the feed is the sink's checkpoint. Pure.

``docs/formats/sink-position.md`` is its description. The position of a producer's last append decides what becomes of the
next batch (:func:`place_of`): it is new, it is there already, or somebody is confused and nothing may be written.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from headrace.errors import BatchChanged, BatchMissing, BatchSplit, BatchStale, SinkTaken
from headrace.wire.documents import LastFrame
from headrace.wire.versions import SINK_POSITION, check_readable

_U64 = Annotated[int, msgspec.Meta(ge=0)]
_SHOWN_BYTES: Final = 80

BATCH_WRITES: Final = "batch-writes"
"""Stands for the query of all batch writes of an agent id."""


class SinkPosition(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Whose batch an append holds.

    ``query``: the streaming query's id, which its checkpoint keeps, or :data:`BATCH_WRITES`. ``batch``: Spark's batch id, or
    the caller's. ``attempt``: one execution of the batch, the same in all its tasks and their retries. ``task``: the task
    (partition) that the rows came from.
    """

    query: str
    batch: _U64
    attempt: str
    task: _U64


class LastAppend(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What a query itself remembers of its newest append to a feed: the ``batch``, and the entries that it became."""

    batch: _U64
    first_sequence_id: _U64
    rows: _U64


class Settlement(NamedTuple):
    """What an operator decided: the query that this one replaces, and the batch that is kept or written again."""

    replaces: str | None = None
    keep_batch: int | None = None
    repeat_batch: int | None = None


UNSETTLED: Final = Settlement()
"""Nobody has decided anything."""


class Place(NamedTuple):
    """Where a batch stands or shall stand: the expected offset of its first row. ``stored``: it stands there already."""

    first: int
    stored: bool


class _Versions(msgspec.Struct, rename="kebab"):
    readable_from: _U64


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(SinkPosition)
_VERSIONS: Final = msgspec.json.Decoder(_Versions)
_OPENING: Final = b'{"written-as":%d,"readable-from":%d,' % SINK_POSITION


def encode(position: SinkPosition) -> bytes:
    """Return what is kept with an append; equal positions are equal bytes."""
    return _OPENING + _ENCODER.encode(position)[1:]


def decode(data: bytes) -> SinkPosition:
    """Return the position in ``data``; FormatTooNew if a newer version wrote it, SinkTaken if no sink did."""
    try:
        check_readable("the feed's sink position", _VERSIONS.decode(data).readable_from, SINK_POSITION)
        return _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SinkTaken(
            f"the last append of this agent id was not made by Spark's sink: {error}. Its source position begins with "
            f"{data[:_SHOWN_BYTES]!r}",
            hint="Give the query an agent-id that no other producer of the feed has.",
        ) from None


def place_of(
    own: SinkPosition,
    rows: int,
    *,
    feed: str,
    next_sequence_id: int,
    last: LastFrame | None,
    found: SinkPosition | None,
    settled: Settlement,
    kept: LastAppend | None = None,
) -> Place | None:
    """Return where the batch ``own`` of ``rows`` rows belongs; None if what stands there is to be kept unseen.

    ``last`` and ``found`` are the producer's last append and its position, None if there never was one; ``kept`` is what the
    query remembers. Raises SinkTaken, BatchMissing, BatchStale, BatchSplit, and BatchChanged if the batch had another number
    of rows: an append of fewer would be taken for a repeat of the stored one's beginning.
    """
    at_end = Place(next_sequence_id, stored=False)
    if last is None or found is None:
        if kept is not None:
            raise _missing(own, kept, feed, "the feed knows no append of this agent id")
        return at_end
    where = f"the feed {feed}, entries {last.first_sequence_id} to {last.first_sequence_id + last.count - 1}"
    is_there = f"its newest append of this agent id is batch {found.batch} of the query {found.query}"
    if found.query != own.query:
        if settled.replaces == found.query:
            if kept is not None and last.first_sequence_id > kept.first_sequence_id:
                raise _replaced(own, kept, where, found)
            if kept is not None:
                raise _missing(own, kept, feed, is_there)
            return at_end
        raise SinkTaken(
            f"{where}: the last append of this agent id is batch {found.batch} of the query {found.query}, "
            f"this is the query {own.query}"
        )
    # A batch that was repeated stands behind the place that the query noted, until its commit notes the new one.
    if kept is not None and (found.batch, last.first_sequence_id) < (kept.batch, kept.first_sequence_id):
        raise _missing(own, kept, feed, f"{is_there}, as the entries from {last.first_sequence_id} on")
    if found.batch < own.batch:
        return at_end
    if found.batch > own.batch:
        raise BatchStale(
            f"{where}: they are batch {found.batch} of the query {own.query}, this is batch {own.batch}"
        )
    is_own = (found.attempt, found.task) == (own.attempt, own.task)
    if not is_own and settled.keep_batch == own.batch:
        return None
    if not is_own and settled.repeat_batch == own.batch:
        return at_end
    if found.attempt == own.attempt and found.task != own.task:
        raise BatchSplit(
            f"{where}: they are the rows of task {found.task} of batch {own.batch}; "
            f"task {own.task} has rows for the feed too"
        )
    if last.count != rows:
        raise changed(own, rows, feed=feed, last=last)
    return Place(last.first_sequence_id, stored=True)


def changed(own: SinkPosition, rows: int, *, feed: str, last: LastFrame) -> BatchChanged:
    """Return the error of a batch that differs from what the feed holds of it."""
    return BatchChanged(
        f"the feed {feed} holds batch {own.batch} of the query {own.query} as the entries {last.first_sequence_id} to "
        f"{last.first_sequence_id + last.count - 1}; it came again with {rows} rows that are not the same"
    )


def _replaced(own: SinkPosition, kept: LastAppend, where: str, found: SinkPosition) -> SinkTaken:
    last = kept.first_sequence_id + kept.rows - 1
    return SinkTaken(
        f"{where}: they are batch {found.batch} of the query {found.query}, this is the query {own.query}, which was "
        f"replaced since: its own newest batch was {kept.batch}, as the entries {kept.first_sequence_id} to {last}",
        hint="Its checkpoint does not know what the other query wrote: go on with that query's, or with a new one and the "
        "option replaces. To go on with this one all the same, delete headrace-appends.json from its folder.",
    )


def _missing(own: SinkPosition, kept: LastAppend, feed: str, there: str) -> BatchMissing:
    last = kept.first_sequence_id + kept.rows - 1
    return BatchMissing(
        f"the feed {feed} has lost batch {kept.batch} of the query {own.query}, which stood there as the entries "
        f"{kept.first_sequence_id} to {last}: {there}"
    )
