"""The position that each record of a frame is sent with: what makes a client's greatest position safe to confirm. Pure.

Only the last record *sent* of a frame carries the frame's end. Every other one carries a position inside it: that of its
entry's first byte, or of an entry before it, so that positions never go back. A transaction that spans frames is sent when
its last frame is reached, and all its records carry positions inside that frame. So whoever has seen the end of a frame was
sent all of it, and whoever has seen less begins with that frame again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from headrace.entries.lsn import Lsn
from headrace.server.pg.output.contract import Piece, Rendered
from headrace.server.pg.transactions import Part, Transaction
from headrace.wire.frame import HEADER_SIZE, Frame

PIECE_ENTRIES_MAX: Final = 1_000
"""Entries that are rendered at once: bounds what is in memory of a large append."""


MARKS_MAX: Final = 10_000
"""Ends of frames that are remembered until they are confirmed. Beyond them every second one is forgotten: what is held then
moves on in longer steps."""


class Named(NamedTuple):
    """What a feed's records say of it."""

    feed: str
    incarnation: str


class Record(NamedTuple):
    """What one XLogData message carries."""

    position: int
    payload: bytes


_new_record: Final = partial(tuple.__new__, Record)


class Mark(NamedTuple):
    """At a frame's ``end``, a position: up to ``walked`` all was sent or passed over, up to ``hold`` nothing is needed.

    Both are LSNs; ``hold`` is below ``walked`` while transactions are open.
    """

    end: int
    hold: Lsn
    walked: Lsn


class Marks:
    """The ends of frames that were sent and not confirmed yet, in order."""

    def __init__(self, marks_max: int = MARKS_MAX) -> None:
        self._marks: deque[Mark] = deque()
        self._marks_max = marks_max

    def __len__(self) -> int:
        """How many there are."""
        return len(self._marks)

    def add(self, marks: Iterable[Mark]) -> None:
        """Note further ends, ascending. Of too many every second one is forgotten, but never the newest."""
        self._marks.extend(marks)
        if len(self._marks) > self._marks_max:
            kept = list(self._marks)
            self._marks = deque([*kept[:-1:2], kept[-1]])

    def confirm(self, position: int) -> Mark | None:
        """Take away what is confirmed up to ``position``, and return the last of it; None if that is nothing new.

        A position inside a frame confirms those before it alone.
        """
        passed: Mark | None = None
        while self._marks and self._marks[0].end <= position:
            passed = self._marks.popleft()
        return passed


def entry_positions(frame: Frame) -> list[int]:
    """Return the position of the first byte of each entry of a frame: all are inside it, and ascend."""
    first = frame.header.position + HEADER_SIZE + frame.header.area_size
    return list(accumulate(frame.lengths[:-1], initial=first))


def records_of(
    frame: Frame,
    ended: Sequence[Transaction],
    *,
    name: Callable[[int], Named],
    read: Callable[[int], Frame],
    render: Callable[[Piece], Rendered],
) -> Iterator[list[Record]]:
    """Yield the records that are sent when ``frame`` is reached, in order, a list for each piece that is rendered.

    ``ended``: the transactions that end in it. ``name`` names a feed by its region id, ``read`` reads the frame at a
    position, ``render`` is the slot's output.
    """
    places = entry_positions(frame)
    at = places[0] if places else frame.header.position + HEADER_SIZE
    last: Record | None = None
    for transaction in ended:
        for piece in _pieces(transaction, frame, name, read):
            rendered = render(piece)
            payloads = rendered.payloads
            if not payloads:
                continue
            if piece.frame is frame:
                positions = list(accumulate([places[entry] for entry in rendered.entries], max, initial=at))[
                    1:
                ]
                at = positions[-1]
            else:
                positions = [at] * len(payloads)
            # Made in one step each, without the constructor's own Python: one for every entry that is sent.
            found = list(map(_new_record, zip(positions, payloads, strict=True)))
            if last is not None:
                found.insert(0, last)
            last = found.pop()
            if found:
                yield found
    if last is not None:
        yield [Record(frame.header.end, last.payload)]


def _pieces(
    transaction: Transaction, frame: Frame, name: Callable[[int], Named], read: Callable[[int], Frame]
) -> Iterator[Piece]:
    """Yield a transaction piece by piece; parts in earlier frames are read again, one at a time."""
    feed, incarnation = name(transaction.region_id)
    for number, part in enumerate(transaction.parts):
        is_last = number == len(transaction.parts) - 1
        source = frame if part.position == frame.header.position else read(part.position)
        for first in range(part.first, part.last + 1, PIECE_ENTRIES_MAX):
            last = min(part.last, first + PIECE_ENTRIES_MAX - 1)
            yield Piece(
                feed,
                incarnation,
                source,
                first,
                last,
                begins=number == 0 and first == part.first,
                ends=is_last and last == part.last,
                xid=transaction.xid,
                wanted=_between(part, first, last),
                sent_by=frame.header.end,
            )


def _between(part: Part, first: int, last: int) -> Sequence[int] | None:
    if part.wanted is None:
        return None
    return [index for index in part.wanted if first <= index <= last]
