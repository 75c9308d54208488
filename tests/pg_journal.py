"""A journal in memory for the tests of what walks along one, and an output that says which entry each record is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, cast

from headrace.access.grants import EVERYTHING
from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import SequenceNotAvailable
from headrace.log.contract import Store
from headrace.log.tail import FeedTail
from headrace.server.guard import StreamRights
from headrace.server.pg.confirming import Confirming
from headrace.server.pg.output.contract import Piece, Rendered
from headrace.server.pg.walking import Chunk, Walk
from headrace.server.streams.selection import Selection
from headrace.wire.entry import digest, encode_half, stamp
from headrace.wire.frame import FIRST_POSITION, Frame, FrameHeader, encode_frame

BEGIN_MS = 1_790_000_000_000


class Wanted(NamedTuple):
    """An entry to write: its transaction (empty for none), whether it is the last one of it, and its key."""

    tx: str = ""
    last: bool = False
    key: str = "k"


class Journal:
    """Frames one after another from the first position on; the part of a store that walks ask for."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.ms = BEGIN_MS
        self._next: dict[int, int] = {}
        self._dropped = 0

    def append(self, feed: int, entries: Sequence[Wanted], *, pause_ms: int = 1) -> Frame:
        """Add an append to a feed, so long after the one before."""
        self.ms += pause_ms
        first = self._next.get(feed, 1)
        halves = [
            encode_half(
                Change(
                    value=f"{feed}/{number}".encode(),
                    key=entry.key.encode(),
                    source_tx=entry.tx.encode(),
                    tx_last=entry.last,
                )
            )
            for number, entry in enumerate(entries, first)
        ]
        global_ts = self.ms << 18
        prefix = f"local:default:feed-{feed}:"
        body, lengths = stamp(
            halves,
            global_ts=global_ts,
            region_id=feed,
            first_sequence_id=first,
            tenant="default",
            key_prefix=prefix,
        )
        header = FrameHeader(
            0, self.end(), first, global_ts, 1, digest(halves), feed, len(halves), 0, len(body), 0
        )
        frame = Frame(encode_frame(header, b"", body, lengths))
        self.frames.append(frame)
        self._next[feed] = first + len(halves)
        return frame

    @property
    def store(self) -> Store:
        """It as the store that it is a part of."""
        return cast("Store", self)

    def end(self) -> int:
        return self.frames[-1].header.end if self.frames else FIRST_POSITION

    def oldest_position(self) -> int:
        return self.frames[self._dropped].header.position if self._dropped < len(self.frames) else self.end()

    def dropped_lsn(self) -> Lsn:
        return self._last_lsn(self.frames[self._dropped - 1]) if self._dropped else ZERO

    def walk(self, position: int, *, bytes_max: int) -> Sequence[Frame]:
        if position < self.oldest_position():
            raise SequenceNotAvailable(f"{position} was dropped")
        found: list[Frame] = []
        size = 0
        for frame in self.frames[self._dropped :]:
            if frame.header.position >= position and (not found or size + frame.header.size <= bytes_max):
                assert found or frame.header.position == position, "a walk begins where a frame does"
                found.append(frame)
                size += frame.header.size
        return found

    def seek(self, global_ts: int) -> int:
        for frame in self.frames[self._dropped :]:
            if frame.header.last_global_ts >= global_ts:
                return frame.header.position
        return self.end()

    def refresh(self) -> None:
        """Nobody else appends."""

    def tails(self) -> Sequence[FeedTail]:
        newest = {frame.header.region_id: str(self._last_lsn(frame)) for frame in self.frames}
        return [
            FeedTail(f"feed-{feed}", feed, "default", f"incarnation-{feed}", "a", "a", 1, newest_lsn=lsn)
            for feed, lsn in newest.items()
        ]

    def drop_up_to(self, place: Lsn) -> None:
        """Drop the frames of which nothing is above ``place``: all that retention may drop."""
        while self._dropped < len(self.frames) and self._last_lsn(self.frames[self._dropped]) <= place:
            self._dropped += 1

    @staticmethod
    def _last_lsn(frame: Frame) -> Lsn:
        return frame.header.lsn(frame.header.count - 1)


class Naming:
    """An output: ``B xid``, then ``feed/sequence id`` of each entry that is wanted, then ``C xid``."""

    def render(self, piece: Piece) -> Rendered:
        header, found = piece.frame.header, Rendered([], [])
        if piece.begins:
            found.payloads.append(f"B {piece.xid}".encode())
            found.entries.append(piece.first)
        wanted = piece.wanted if piece.wanted is not None else range(piece.first, piece.last + 1)
        for index in wanted:
            found.payloads.append(f"{header.region_id}/{header.first_sequence_id + index}".encode())
            found.entries.append(index)
        if piece.ends:
            found.payloads.append(f"C {piece.xid}".encode())
            found.entries.append(piece.last)
        return found


class Sent(NamedTuple):
    """A message of a stream: a record, or a keepalive where ``payload`` is None."""

    position: int
    payload: bytes | None


class Seen(NamedTuple):
    """What a stream may carry: feeds (None: all), and the start of keys."""

    feeds: tuple[int, ...] | None = None
    key_prefix: str = ""


class Slot:
    """What the server keeps of a slot, and streams over it."""

    def __init__(self, journal: Journal, position: int = FIRST_POSITION, place: Lsn = ZERO) -> None:
        self.journal = journal
        self.position = position
        self.place = place
        self._confirming = Confirming(position, position)

    def stream(self, seen: Seen = Seen(), *, chunk_bytes: int = 200) -> list[Sent]:  # noqa: B008  # it is frozen
        """All that a stream sends that begins now, with a keepalive wherever one may be said."""
        found: list[Sent] = []
        for messages in self.steps(seen, chunk_bytes=chunk_bytes):
            found += messages
        return found

    def steps(self, seen: Seen = Seen(), *, chunk_bytes: int = 200) -> Iterator[list[Sent]]:  # noqa: B008  # it is frozen
        """The same, a chunk at a time: what was sent up to there may be confirmed then."""
        walk = Walk(
            self.journal.store,
            self.place,
            self.position,
            rights=rights_of(self.journal, seen),
            selection=Selection(key_prefix=seen.key_prefix),
            output=Naming(),
            chunk_bytes=chunk_bytes,
        )
        self._confirming = Confirming(self.position, self.position, marks_max=8)
        for chunk in walk.chunks():
            self._confirming.note(chunk.sent, chunk.marks)
            yield [*messages_of(chunk), Sent(self._confirming.tell(0.0), None)]
            if chunk.caught_up:
                return

    def confirm(self, position: int) -> None:
        """Keep what a client confirms, as a stream does it."""
        confirmed = self._confirming.hear(position)
        if confirmed is not None:
            self.position = confirmed.position
            if confirmed.mark is not None:
                self.place = max(self.place, confirmed.mark.hold)


def rights_of(journal: Journal, seen: Seen) -> StreamRights | None:
    """The rights of a token for these feeds alone."""
    if seen.feeds is None:
        return None
    grant = EVERYTHING.narrowed(feeds=[f"feed-{feed}" for feed in seen.feeds])
    return StreamRights(journal.store, grant)


def messages_of(chunk: Chunk) -> list[Sent]:
    """The records in a chunk's bytes."""
    found: list[Sent] = []
    at = 0
    while at < len(chunk.data):
        size = int.from_bytes(chunk.data[at + 1 : at + 5], "big")
        assert chunk.data[at : at + 1] == b"d"
        assert chunk.data[at + 5 : at + 6] == b"w"
        position = int.from_bytes(chunk.data[at + 6 : at + 14], "big")
        found.append(Sent(position, chunk.data[at + 30 : at + 1 + size]))
        at += 1 + size
    return found
