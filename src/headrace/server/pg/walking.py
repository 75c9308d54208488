"""What a slot's stream carries: frames along the journal -> messages, and what may be confirmed with them. Blocks.

It begins where the oldest transaction that was open at the slot's position began, and sends from that position on.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from headrace.entries.hlc import from_ms, to_ms
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt, MetadataCorrupt, SequenceLost, SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.history import position_past
from headrace.server.guard import StreamRights
from headrace.server.pg.lsn import lsn_text
from headrace.server.pg.messages import clock_us, xlog_data
from headrace.server.pg.output.contract import Output
from headrace.server.pg.positions import Mark, Named, records_of
from headrace.server.pg.transactions import PAUSE_MAX_MS, Transaction, Transactions
from headrace.server.streams.selection import Runs, Selection
from headrace.server.streams.walking import head_of, not_available, read_on
from headrace.wire.frame import Frame, FrameKind

LOOK_BACK_BYTES: Final = 64 << 20
"""Where a slot is made, so much of the journal before it is looked over for transactions that have not ended."""
LOOK_BYTES: Final = 1 << 20
"""Read of that at a time."""


@dataclass(slots=True)
class Chunk:
    """Messages to send, and what may be said once they are.

    ``sent``: the greatest position in them, 0 for none. ``marks``: of the frames that end with them, ascending.
    ``caught_up``: nothing more is there at this moment; ``at`` is the position to wait for more at.
    """

    data: bytes = b""
    sent: int = 0
    marks: list[Mark] = field(default_factory=list)
    caught_up: bool = False
    at: int = 0


class Walk:
    """One stream's way along the journal; :meth:`chunks` is read from one thread at a time."""

    def __init__(
        self,
        store: Store,
        place: Lsn,
        start: int,
        *,
        rights: StreamRights | None,
        selection: Selection,
        output: Output,
        chunk_bytes: int,
    ) -> None:
        """``place``: the slot's; what lies behind it is retained. ``start``: frames that end at or below it are not sent.

        ``rights`` None: all feeds. ``selection``: of the permitted feeds' entries.
        """
        self._store = store
        self._place = place
        self._start = start
        self._rights = rights
        self._selection = selection
        self._output = output
        self._chunk_bytes = chunk_bytes
        self._names: dict[int, Named] = {}

    def chunks(self) -> Iterator[Chunk]:
        """Yield what is to be sent next, without end; after one that is ``caught_up`` ask again once there is more.

        Raises LsnNotAvailable, JournalCorrupt, SequenceLost, MetadataCorrupt, StoreUnavailable.
        """
        open_now = Transactions(self._place)
        at = position_past(self._store, self._place)
        if is_lost(
            self._store, self._place
        ):  # it was dropped since the slot was taken: ``at`` is behind a gap
            raise not_available(self._store, self._place)
        while True:
            try:
                frames = read_on(self._store, at, open_now.walked)
            except SequenceLost as lost:
                at = self._behind(lost)
                open_now.skip(_walked_at(lost))
                continue
            if not frames:
                yield Chunk(caught_up=True, at=at)
                continue
            yield from self._sent(frames, open_now)
            at = frames[-1].header.end

    def _behind(self, lost: SequenceLost) -> int:
        """Return where to go on behind what a repair skipped, if the client has said that it starts there.

        Else SequenceLost, with the command that says so.
        """
        at = readable_behind(self._store, lost)
        if at is None:
            raise lost
        if at > self._start:
            raise SequenceLost(
                lost.detail,
                hint="Keep what was sent before. To go on without what is lost: "
                f'START_REPLICATION SLOT "…" LOGICAL {lsn_text(at)}',
                position=lost.members.get("position"),
                resume_position=at,
            ) from lost
        return at

    def _sent(self, frames: Sequence[Frame], open_now: Transactions) -> Iterator[Chunk]:
        chunk, parts, size = Chunk(), list[bytes](), 0
        for frame in frames:
            ended = self._follow(frame, open_now)
            if ended:
                found = records_of(frame, ended, name=self._name, read=self._read, render=self._output.render)
                for records in found:
                    parts.append(xlog_data(records, clock_us(time.time_ns() // 1000)))
                    size += len(parts[-1])
                    chunk.sent = records[-1].position
                    if size >= self._chunk_bytes:
                        chunk.data = b"".join(parts)
                        yield chunk
                        chunk, parts, size = Chunk(), [], 0
            chunk.marks.append(Mark(frame.header.end, open_now.hold, open_now.walked))
        chunk.data = b"".join(parts)
        yield chunk

    def _follow(self, frame: Frame, open_now: Transactions) -> Sequence[Transaction]:
        """Move past a frame; return what is to be sent with it. Transactions of a permitted feed are followed whole.

        The frame of another feed ends them by its time, as it does for a stream that may see it.
        """
        header = frame.header
        if header.kind != FrameKind.ENTRIES or not header.count:
            return ()
        if self._rights is not None and not self._rights.permits(header.region_id):
            ended = open_now.pass_by(frame)
        elif self._selection.is_everything:
            ended = open_now.follow(frame)
        else:
            ended = open_now.follow(frame, indices_of(self._selection.runs(frame), header.count))
        return ended if header.end > self._start else ()

    def _name(self, region_id: int) -> Named:
        if region_id not in self._names:
            self._look()
        if region_id not in self._names:
            self._store.refresh()
            self._look()
        if region_id not in self._names:  # sent under no name it would be confirmed, and never come again
            raise MetadataCorrupt(
                f"the state of the feed with region {region_id} is damaged, so it can't be told whose entries these are"
            )
        return self._names[region_id]

    def _look(self) -> None:
        self._names |= {tail.region_id: Named(tail.name, tail.incarnation) for tail in self._store.tails()}

    def _read(self, position: int) -> Frame:
        return frame_at(self._store, position)


def indices_of(runs: Runs, count: int) -> Sequence[int] | None:
    """Return the indices of a frame's entries that pass, ascending, in little memory; None: all ``count`` of them."""
    if len(runs) == 1:
        ((first, stop),) = runs
        return None if stop - first == count else range(first, stop)
    return array("I", (index for first, stop in runs for index in range(first, stop)))


def readable_behind(store: Store, lost: SequenceLost) -> int | None:
    """Return the position behind what a repair skipped, and what it skipped right behind that; None if nobody says it."""
    at: int | None = None
    damage: BaseException | None = lost
    while (
        damage is not None and at is None
    ):  # the store's own error names it, what it was wrapped in does not
        at = damage.members.get("resume-position") if isinstance(damage, SequenceLost) else None
        damage = damage.__cause__
    while at is not None:
        try:
            store.walk(at, bytes_max=1)
        except SequenceLost as again:
            following = again.members.get("resume-position")
            if following is None or following <= at:
                return at
            at = following
        except (JournalCorrupt, SequenceNotAvailable):
            return at
        else:
            return at
    return None


def _walked_at(lost: SequenceLost) -> Lsn:
    """Return the last LSN before what can be read again; ZERO where nothing can yet."""
    resume = lost.members.get("resume-lsn")
    return lsn_below(Lsn.parse(resume)) if isinstance(resume, str) else ZERO


def frame_at(store: Store, position: int) -> Frame:
    """Return the frame at a position that a walk has met before; LsnNotAvailable if it was dropped, JournalCorrupt."""
    try:
        frames = store.walk(position, bytes_max=1)
    except SequenceNotAvailable:
        raise not_available(store, store.dropped_lsn()) from None
    if not frames or frames[0].header.position != position:
        raise JournalCorrupt(f"there is no frame at position {position:#x}", position=position)
    return frames[0]


class Beginning(NamedTuple):
    """Where a new slot begins: at the journal's end; ``hold``: what begins behind it is needed of open transactions.

    ``is_whole``: nothing may be open there that began before what was looked over.
    """

    position: int
    hold: Lsn
    is_whole: bool = True


def find_beginning(store: Store, rights: StreamRights | None) -> Beginning:
    """Return where a slot that is made now begins. Transactions open there began within the last ten minutes of the journal,
    or its last :data:`LOOK_BACK_BYTES`: older ones are sent as far as they stand behind that.
    """
    store.refresh()
    newest = head_of(store)
    end = store.end()
    at, is_whole = _look_from(store, newest, end)
    found: Transactions | None = None
    try:
        while at < end and (frames := store.walk(at, bytes_max=LOOK_BYTES)):
            for frame in frames:
                header = frame.header
                if header.position >= end:
                    break
                if header.kind != FrameKind.ENTRIES or not header.count:
                    continue
                found = found or Transactions(max(lsn_below(header.lsn(0)), store.dropped_lsn()))
                if rights is None or rights.permits(header.region_id):
                    found.follow(frame)
                else:
                    found.pass_by(frame)
            at = frames[-1].header.end
    except (JournalCorrupt, SequenceLost, SequenceNotAvailable):
        found, is_whole = None, False  # behind damage nothing is open that could be sent whole
    return Beginning(end, newest if found is None else found.hold, is_whole)


def lsn_below(lsn: Lsn) -> Lsn:
    """Return the LSN right below another; ZERO of ZERO."""
    return Lsn.from_int(int(lsn) - 1) if any(lsn) else ZERO


def _look_from(store: Store, newest: Lsn, end: int) -> tuple[int, bool]:
    """Return the start of a frame, at most so long and so many bytes before the end; False: the bytes cut the time short."""
    newest_ms = to_ms(newest.global_ts)
    span_ms = PAUSE_MAX_MS
    while True:
        at = store.seek(from_ms(max(0, newest_ms - span_ms)))
        if end - at <= LOOK_BACK_BYTES or span_ms < 1:
            return at, span_ms == PAUSE_MAX_MS
        span_ms //= 2


def is_lost(store: Store, place: Lsn) -> bool:
    """Tell whether something above a slot's place was dropped: it can't be followed without a gap any more."""
    return place < store.dropped_lsn()
