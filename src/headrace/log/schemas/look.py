"""One look over the journal for schemas, which goes on from call to call: see ``index``, which is the only one to use it."""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

from headrace.errors import JournalCorrupt, SequenceLost, SequenceNotAvailable, StoreUnavailable
from headrace.log.contract import Store
from headrace.log.history import first_sequence_at
from headrace.log.metadata.contract import Metadata, SchemaMark, SchemaRow
from headrace.log.metadata.rows import JOURNAL, SCHEMA
from headrace.log.schemas.entries import schemas_of
from headrace.log.schemas.spans import Spans
from headrace.runtime.logs import get_logger
from headrace.wire.frame import Frame

logger = get_logger("log")

WALK_BYTES: Final = 1 << 20
"""Read back at a time, or one frame if that is larger; so much of schemas is held at once."""
MARK_BYTES: Final = 64 << 20
"""The mark is written at least so often: what a start after a crash has to read back, at most."""

_Last = tuple[int, int]
"""Position and timestamp of the frame that ends at a place."""
_NONE: Final[_Last] = (0, 0)


class Hole(NamedTuple):
    """A stretch of the journal that can't be read: nobody knows which schemas it holds."""

    start: int
    end: int


class Look:
    """Begins where the mark stands. ``at``: up to where the journal was looked over; ``holes``: where it could not be."""

    def __init__(self, store: Store, metadata: Metadata, spans: Spans) -> None:
        """Begin; a mark that is not of this journal, or none, means to begin with all that is retained."""
        self._store, self._rows, self._spans = store, metadata.schemas, spans
        self.holes: tuple[Hole, ...] = ()
        self._found: list[SchemaRow] = []
        self._feeds: dict[int, str] = {}
        mark, oldest = self._rows.mark(), store.oldest_position()
        self.at = self._since = oldest
        self._last = _NONE
        self._anew_below = 0
        if mark is None:
            self._rows.begin(oldest)
        elif (fits := _fits(store, mark)) is False:
            logger.warning("the journal is another one than schemas were kept of; it is looked over again")
            self._rows.begin(oldest, forget_above=str(store.dropped_lsn()))
        else:
            self._since = mark.position
            hurt = any(damage.table == SCHEMA.name for damage in metadata.damages.standing())
            if fits and not hurt and mark.position > oldest:
                self.at, self._last = mark.position, (mark.frame_position, mark.global_ts)
            else:
                self._anew_below = mark.position
        self._kept = self.at

    def read_up_to(self, position: int) -> bool:
        """Go on to ``position``, or to the visible end; what was found is durable then. StoreUnavailable.

        False if the journal is to be looked over from further back: this look is of no use any more.
        """
        self._look_into_holes()
        if self._store.several_servers:
            self._go_by_mark()
        while self.at < position:
            span = self._spans.covering(self.at)
            if span is not None:
                self.at, self._last = span.end, (span.frame, span.global_ts)
            elif not self._step():
                break
            if self._found and not self.keep():
                return False
        if self._found:  # of a call that failed
            return self.keep()
        if self.at - self._kept >= MARK_BYTES:
            try:
                return self.keep()
            except StoreUnavailable as error:  # a full disk must not keep retention from making room
                logger.warning("the mark of the schemas can't be written", reason=error.detail)
        return True

    def keep(self) -> bool:
        """Write what was found, and the mark; False as :meth:`read_up_to`. With holes the mark stays where it is."""
        mark = SchemaMark(JOURNAL, self.at, *self._last) if not self.holes else None
        if not self._found and (mark is None or self.at == self._kept):
            return True
        if not self._rows.keep(self._found, self._since, mark):
            return False
        self._found, self._kept = [], self.at
        return True

    def _go_by_mark(self) -> None:
        """What another server has looked over need not be read here, unless it is to be found anew."""
        mark = self._rows.mark() if self.at >= self._anew_below else None
        if mark is not None and mark.position > self.at:
            self.at, self._last = mark.position, (mark.frame_position, mark.global_ts)

    def _step(self) -> bool:
        """Look over what stands at the place; False if nothing does yet."""
        before = self.at
        try:
            self.at, self._last = self._read(before)
        except JournalCorrupt as damage:
            self.at, self._last = self._past(before), _NONE
            self.holes = (*self.holes, Hole(before, self.at))
            logger.error(
                "a damaged part of the journal can't be looked over for schemas",
                position=f"{before:#x}",
                reason=damage.detail,
            )
        return self.at > before

    def _look_into_holes(self) -> None:
        """Damage may have been mended or dropped meanwhile."""
        left: list[Hole] = []
        for hole in self.holes:
            at = max(hole.start, self._store.oldest_position())
            try:
                while at < hole.end and (following := self._read(at)[0]) > at:
                    at = following
            except JournalCorrupt:
                left.append(Hole(at, hole.end))
        self.holes = tuple(left)

    def _read(self, at: int) -> tuple[int, _Last]:
        """Look over some frames from ``at`` on, at least one if there is any; returns where they end, and the last of them.

        JournalCorrupt if the first can't be read, or nobody can say whose it is.
        """
        try:
            frames = self._store.walk(at, bytes_max=WALK_BYTES)
        except SequenceNotAvailable:
            if (oldest := self._store.oldest_position()) > at:
                return oldest, _NONE
            raise StoreUnavailable(f"the journal can't be read at position {at:#x}") from None
        except SequenceLost as lost:
            return int(lost.members["resume-position"]), _NONE
        end, last = at, _NONE
        for frame in frames:
            try:
                self._take(frame)
            except JournalCorrupt:
                if frame is frames[0]:
                    raise
                break
            end, last = frame.header.end, (frame.header.position, frame.header.global_ts)
        return end, last

    def _take(self, frame: Frame) -> None:
        for name, sequence_id, lsn, value in schemas_of(frame):
            feed = self._feed_of(frame.header.region_id)
            self._found.append(SchemaRow(feed, *name, sequence_id, lsn, value))

    def _feed_of(self, region_id: int) -> str:
        if region_id not in self._feeds:
            self._store.refresh()
            self._feeds = {tail.region_id: tail.name for tail in self._store.tails()}
        if region_id not in self._feeds:
            raise JournalCorrupt(f"the state of the feed with region {region_id} is damaged")
        return self._feeds[region_id]

    def _past(self, position: int) -> int:
        """Return where the first frame with entries behind the one at ``position`` begins; else the end."""
        found = [self._store.end()]
        try:
            for tail in self._store.tails():
                first = first_sequence_at(self._store, tail, position + 1)
                found += [
                    place.position
                    for place in self._store.places(tail.region_id, first, tail.head, frames_max=1)
                    if place.position > position
                ]
        except JournalCorrupt:  # the index of the segment is hurt as well
            found += [one.end for one in self._store.segments() if one.end > position]
        return min(found)


def _fits(store: Store, mark: SchemaMark) -> bool | None:
    """Return whether the frame that ends at the mark is the one that was looked over; None if that can't be told."""
    store.refresh()
    if mark.position > store.end():
        return False
    if not store.oldest_position() <= mark.frame_position < mark.position:
        return True  # none was looked at, or it was dropped
    try:
        header = store.walk(mark.frame_position, bytes_max=1)[0].header
    except (SequenceLost, SequenceNotAvailable):
        return True
    except JournalCorrupt:  # it is damaged, or no frame begins there
        with contextlib.suppress(JournalCorrupt):
            return None if store.seek(mark.global_ts) == mark.frame_position else False
        return None
    return (header.end, header.global_ts) == (mark.position, mark.global_ts)
