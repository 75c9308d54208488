"""Where a stream over all feeds begins, what it reads next, and where it can go on behind damage. Everything here blocks."""

from __future__ import annotations

import heapq
from functools import partial
from typing import Final, NamedTuple

from headrace.entries.hlc import from_ms
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import (
    BeyondHead,
    JournalCorrupt,
    LsnNotAvailable,
    MetadataCorrupt,
    SequenceLost,
    SequenceNotAvailable,
)
from headrace.log.contract import Store
from headrace.log.history import first_sequence_at
from headrace.log.tail import FeedTail
from headrace.server.streams.selection import Selection
from headrace.wire.batch import Batch, batches_of
from headrace.wire.frame import Frame, FrameKind
from headrace.wire.segment import FramePlace

CHUNK_BYTES: Final = 1 << 20
"""Read at a time, or one frame, if that is larger."""
GLANCE_BYTES: Final = 1 << 16
"""Read at a time to find the oldest entry behind control frames."""


class Start(NamedTuple):
    """Where a walk begins. Entries below ``lsn`` are left out; everything up to ``walked`` is behind the stream.

    ``below``: the place of a subscriber that begins there, so that it holds everything from the start on.
    """

    position: int
    lsn: Lsn
    walked: Lsn
    below: Lsn


def head_of(store: Store) -> Lsn:
    """Return the newest LSN of all feeds; ZERO on an empty log. Answers from memory."""
    return Lsn.parse(max((tail.newest_lsn for tail in store.tails()), default=str(ZERO)))


def oldest_of(store: Store) -> Lsn:
    """Return the oldest retained LSN; ZERO on an empty log, the newest dropped one where nothing is retained.

    Behind damage: the first one that can be read.
    """
    at = store.oldest_position()
    try:
        while frames := store.walk(at, bytes_max=GLANCE_BYTES):
            for frame in frames:
                if frame.header.kind == FrameKind.ENTRIES:
                    return frame.header.lsn(0)
            at = frames[-1].header.end
    except SequenceNotAvailable:  # dropped meanwhile
        return oldest_of(store)
    except (JournalCorrupt, SequenceLost):
        return first_intact_after(store, at) or store.dropped_lsn()
    return store.dropped_lsn()


def find_start(store: Store, lsn: Lsn | None) -> Start:
    """Return where a stream from ``lsn`` on (None: the oldest retained entry) begins.

    Raises LsnNotAvailable if something at or above ``lsn`` was dropped, or was lost when the journal was rebuilt from a
    backup, and BeyondHead: whoever names such an LSN has seen more than this log holds.
    """
    dropped = store.dropped_lsn()
    if lsn is None:
        return Start(store.oldest_position(), ZERO, dropped, dropped)
    if lsn < dropped:
        raise not_available(store, lsn)
    if _was_lost(store, lsn):
        oldest, head = oldest_of(store), head_of(store)
        raise LsnNotAvailable(
            f"lsn_not_available: start_lsn={lsn} was lost: the log was rebuilt from a backup without it "
            f"(oldest_lsn={oldest}); perform a base snapshot and restart from head_lsn={head}",
            start_lsn=str(lsn),
            oldest_lsn=str(oldest),
            head_lsn=str(head),
        )
    head = head_of(store)
    # Of a feed whose state is damaged the head does not know, but its entries are there.
    if lsn > head and store.seek(lsn.global_ts + 1) == store.end():
        raise BeyondHead(f"beyond_head: start_lsn={lsn} is above head_lsn={head}", head_lsn=str(head))
    # Who begins at the newest dropped entry has lost nothing, and must not look as if: that would hold nothing.
    return Start(store.seek(lsn.global_ts), lsn, dropped, max(_just_below(lsn), dropped))


def _was_lost(store: Store, lsn: Lsn) -> bool:
    """Tell whether what had this LSN is not in a rebuilt journal: who has seen it would go on as if nothing had happened."""
    told = (lost for tail in store.tails() for lost in tail.lost_by_rebuilds)
    return any(Lsn.parse(lost.after) < lsn < Lsn.parse(lost.before) for lost in told)


def find_start_at(store: Store, time_ms: int) -> Start:
    """Return where a stream begins that gets what was committed at ``time_ms`` (since 1970) or later, perhaps nothing yet.

    Raises LsnNotAvailable if something of that time or later was dropped.
    """
    lsn = Lsn(from_ms(time_ms), 0, 0)
    dropped = store.dropped_lsn()
    if lsn < dropped:
        raise not_available(store, lsn)
    below = max(min(_just_below(lsn), head_of(store)), dropped)
    return Start(store.seek(lsn.global_ts), lsn, below, below)


def _just_below(lsn: Lsn) -> Lsn:
    return Lsn.from_int(int(lsn) - 1) if any(lsn) else ZERO


def not_available(store: Store, start: Lsn) -> LsnNotAvailable:
    """Return the answer to who asks for what retention has dropped, in the words of RFC-010 §4.3."""
    oldest, head = oldest_of(store), head_of(store)
    return LsnNotAvailable(
        f"lsn_not_available: start_lsn={start} older than oldest_lsn={oldest}; "
        f"perform a base snapshot and restart from head_lsn={head}",
        start_lsn=str(start),
        oldest_lsn=str(oldest),
        head_lsn=str(head),
    )


class Chunk(NamedTuple):
    """A stretch of the journal as batches. ``end``: the position behind it; ``walked``: the last LSN up to there."""

    batches: list[Batch]
    end: int
    walked: Lsn


def read_chunk(
    store: Store,
    position: int,
    walked: Lsn,
    *,
    start: Lsn,
    entries_max: int,
    bytes_max: int,
    selection: Selection,
) -> Chunk:
    """Return the entries from ``position`` on that are at ``start`` or later and that ``selection`` lets pass.

    In batches of ``entries_max`` entries and ``bytes_max`` bytes at most. Raises as :func:`read_on` does, and
    MetadataCorrupt where nobody can say whether a feed's entries are to pass.
    """
    frames = read_on(store, position, walked)
    with_entries = (frame.header for frame in reversed(frames) if frame.header.count)
    last = next(with_entries, None)
    cut = partial(batches_of, frames, start=start, entries_max=entries_max, bytes_max=bytes_max)
    try:
        batches = list(cut()) if selection.is_everything else list(map(_copied, cut(runs=selection.runs)))
    except MetadataCorrupt as damage:
        raise MetadataCorrupt(f"data_loss: after lsn={walked}: {damage.detail}") from damage
    return Chunk(
        batches=batches,
        end=frames[-1].header.end if frames else position,
        walked=last.lsn(last.count - 1) if last is not None else walked,
    )


def _copied(batch: Batch) -> Batch:
    """The batch without the frames of which it takes a part: they need not stay in memory for it."""
    bodies, lengths = b"".join(batch.bodies), b"".join(batch.lengths)
    return batch._replace(bodies=[memoryview(bodies)], lengths=[memoryview(lengths)])


def read_on(store: Store, position: int, walked: Lsn) -> list[Frame]:
    """Return the frames from ``position`` on, at least one if there is any; ``walked`` is the last LSN before them.

    Raises LsnNotAvailable if entries between were dropped, and JournalCorrupt, or SequenceLost where a repair
    skipped something, saying from which LSN one can go on.
    """
    try:
        return list(store.walk(position, bytes_max=CHUNK_BYTES))
    except SequenceNotAvailable:
        oldest = store.oldest_position()
        if walked < store.dropped_lsn():
            raise not_available(store, walked) from None
        # Only what this stream had already, and control frames, were dropped.
        return read_on(store, oldest, walked) if oldest > position else []
    except (JournalCorrupt, SequenceLost) as damage:
        following = first_intact_after(store, position)
        on = (
            f"go on from start_lsn={following}"
            if following is not None
            else "nothing readable stands behind it yet"
        )
        raise type(damage)(
            f"data_loss: after lsn={walked} the journal is damaged at position {position:#x}; {on}: {damage.detail}",
            position=position,
            resume_lsn=str(following) if following is not None else None,
        ) from damage


def first_intact_after(store: Store, position: int) -> Lsn | None:
    """Return the LSN of the first entry above the frame at ``position`` that can be read; None if there is none.

    Asks the indexes, because behind damage nobody can say where the next frame begins.
    """
    waiting: list[tuple[int, FramePlace, FeedTail]] = []

    def look(tail: FeedTail, sequence_id: int) -> None:
        places = store.places(tail.region_id, sequence_id, tail.head, frames_max=1)
        if places:
            heapq.heappush(waiting, (places[0].position, places[0], tail))

    for tail in store.tails():
        if tail.first_sequence_id:
            look(tail, first_sequence_at(store, tail, position + 1))
    while waiting:
        _, place, tail = heapq.heappop(waiting)
        try:
            return store.read([place])[0].header.lsn(0)
        except (JournalCorrupt, SequenceNotAvailable):
            look(tail, place.first_sequence_id + place.count)
    return None
