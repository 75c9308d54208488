"""Batches of the stream over all feeds (RFC-010's ``WalBatch``): cut from frames, written and read without touching entries.

The server writes a batch's few own fields before its entries, so that a reader finds the entries as one slice: what comes
behind the first ``entries`` tag. Field order on the wire is free, so any protobuf reader takes it as it is.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from google.protobuf.message import DecodeError

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.wire import varint
from headrace.wire.compression import NONE, compress, decompress
from headrace.wire.entry import message_of, slices
from headrace.wire.frame import HEADER_SIZE, Frame, FrameKind
from headrace.wire.generated import wal_pb2

BATCH_ENTRIES_MAX: Final = 1_000
"""Most entries of a batch (RFC-010 §3)."""
BATCH_BYTES_MAX: Final = 3 << 20
"""Most bytes of entries in a batch, save that it is always one: gRPC clients refuse messages above 4 MiB."""

_ENTRIES: Final = 0x0A
_FIRST_LSN, _LAST_LSN = b"\x12", b"\x1a"
_COMPRESSION, _COMPRESSED = varint.tag(4, 0), varint.tag(100, 2)
_LENGTHS, _FIRST_LOCAL, _LAST_LOCAL = varint.tag(101, 2), varint.tag(102, 0), varint.tag(103, 0)
_INCARNATION = varint.tag(104, 2)


class Batch(NamedTuple):
    """Stored entries of neighbouring frames, as slices.

    ``first_position`` and ``last_position``: where the first and last entry begin in the journal (RFC-010's local LSN).
    ``regions``: of which feeds.
    """

    bodies: list[memoryview]
    lengths: list[memoryview]
    size: int
    entries: int
    first_lsn: Lsn
    last_lsn: Lsn
    first_position: int
    last_position: int
    regions: frozenset[int]


class Heartbeat(NamedTuple):
    """Nothing new: everything up to ``lsn`` has been sent. ``rotate``: whoever writes files should begin a new one."""

    lsn: Lsn
    rotate: bool = False


def batches_of(
    frames: Iterable[Frame],
    *,
    start: Lsn = ZERO,
    entries_max: int = BATCH_ENTRIES_MAX,
    bytes_max: int = BATCH_BYTES_MAX,
    runs: Callable[[Frame], Sequence[tuple[int, int]]] | None = None,
) -> Iterator[Batch]:
    """Cut the entries of ``frames`` (in journal order) that are at ``start`` or later into batches.

    Every such entry is in exactly one batch, in order; a frame may be split over several, control frames have none. ``runs``
    tells which entries of a frame are wanted, as ranges of their indexes; without it all are.
    """
    draft = _Draft(entries_max, bytes_max)
    for frame in frames:
        header = frame.header
        if header.kind != FrameKind.ENTRIES or not header.count:
            continue
        floor = 0
        if header.global_ts <= start.global_ts:  # else the whole frame is later
            floor = bisect_left(range(header.count), start, key=header.lsn)
        ends: list[int] = []
        for begin, stop in ((0, header.count),) if runs is None else runs(frame):
            index = max(begin, floor)
            while index < stop:
                taken = draft.take(frame, index, stop, ends)
                index += taken
                if not taken:
                    yield draft.batch()
                    draft = _Draft(entries_max, bytes_max)
    if draft.entries:
        yield draft.batch()


def join(batches: Sequence[Batch]) -> Batch:
    """Return neighbouring batches as one."""
    first, last = batches[0], batches[-1]
    if first is last:
        return first
    return Batch(
        bodies=[body for batch in batches for body in batch.bodies],
        lengths=[lengths for batch in batches for lengths in batch.lengths],
        size=sum(batch.size for batch in batches),
        entries=sum(batch.entries for batch in batches),
        first_lsn=first.first_lsn,
        last_lsn=last.last_lsn,
        first_position=first.first_position,
        last_position=last.last_position,
        regions=frozenset().union(*(batch.regions for batch in batches)),
    )


class _Draft:
    """A batch that is being filled."""

    def __init__(self, entries_max: int, bytes_max: int) -> None:
        self.entries_max = entries_max
        self.bytes_max = bytes_max
        self.bodies: list[memoryview] = []
        self.lengths: list[memoryview] = []
        self.size = 0
        self.entries = 0
        self.first: tuple[Lsn, int] = (ZERO, 0)
        self.last: tuple[Lsn, int] = (ZERO, 0)
        self.regions: set[int] = set()

    def take(self, frame: Frame, index: int, limit: int, ends: list[int]) -> int:
        """Take what fits of the frame's entries from ``index`` to below ``limit``, and return how many those are.

        ``ends``: where the frame's entries end in its body; filled when a frame is split first.
        """
        header = frame.header
        room = self.entries_max - self.entries
        whole = not index and limit == header.count
        if whole and header.count <= room and self.size + header.body_size <= self.bytes_max:
            stop, begin, end = header.count, 0, header.body_size
            self.bodies.append(frame.body)
            self.lengths.append(frame.lengths_bytes)
            last_at = end - int.from_bytes(frame.lengths_bytes[-4:], "little")
        else:
            if not ends:
                ends += (0, *accumulate(frame.lengths))
            begin = ends[index]
            fitting = bisect_right(ends, begin + self.bytes_max - self.size, index) - 1
            stop = max(index, min(fitting, index + room, limit))
            if stop == index and not self.entries:
                stop = index + 1
            if stop == index:
                return 0
            end, last_at = ends[stop], ends[stop - 1]
            self.bodies.append(frame.body[begin:end])
            self.lengths.append(frame.lengths_bytes[4 * index : 4 * stop])
        body_at = header.position + HEADER_SIZE + header.area_size
        if not self.entries:
            self.first = (header.lsn(index), body_at + begin)
        self.last = (header.lsn(stop - 1), body_at + last_at)
        self.size += end - begin
        self.entries += stop - index
        self.regions.add(header.region_id)
        return stop - index

    def batch(self) -> Batch:
        """Return what was taken."""
        (first_lsn, first_position), (last_lsn, last_position) = self.first, self.last
        return Batch(
            self.bodies, self.lengths, self.size, self.entries, first_lsn, last_lsn, first_position, last_position,
            frozenset(self.regions),
        )  # fmt: skip


def encode_batch(
    batch: Batch, *, incarnations: Mapping[int, str], want_lengths: bool, compression: int = NONE
) -> bytes:
    """Return the batch as a serialised ``WalResponse``. ``incarnations``: by region id, of the feeds to be named in it.

    ``compression``: how its entries are compressed, unless that would make them larger.
    """
    head = [
        _FIRST_LSN + b"\x26",
        str(batch.first_lsn).encode(),
        _LAST_LSN + b"\x26",
        str(batch.last_lsn).encode(),
    ]
    bodies: Sequence[bytes | memoryview] = batch.bodies
    if compression != NONE:
        packed = compress(compression, b"".join(bodies))
        if len(packed) < batch.size:
            bodies = (_COMPRESSED + varint.encode(len(packed)), packed)
            head.append(_COMPRESSION + varint.encode(compression))
    if want_lengths:
        head += [_LENGTHS + varint.encode(4 * batch.entries), *map(bytes, batch.lengths)]
    head += [
        _FIRST_LOCAL + varint.encode(batch.first_position),
        _LAST_LOCAL + varint.encode(batch.last_position),
    ]
    for region_id, incarnation in sorted(incarnations.items()):
        named = wal_pb2.Incarnation(region_id=region_id, incarnation=incarnation).SerializeToString()
        head += [_INCARNATION + varint.encode(len(named)), named]
    size = sum(map(len, bodies)) + sum(map(len, head))
    return b"".join((b"\x0a" + varint.encode(size), *head, *bodies))


def encode_heartbeat(heartbeat: Heartbeat) -> bytes:
    """Return the heartbeat as a serialised ``WalResponse``."""
    message = wal_pb2.WalResponse(
        heartbeat=wal_pb2.Heartbeat(current_lsn=str(heartbeat.lsn), rotate=heartbeat.rotate)
    )
    return message.SerializeToString()


def encode_error(text: str) -> bytes:
    """Return a stream's last word as a serialised ``WalResponse``."""
    return wal_pb2.WalResponse(error=text).SerializeToString()


class ReceivedBatch(NamedTuple):
    """A batch as a subscriber gets it: ``body`` holds the ``entries`` fields, ``sizes`` the size of each.

    ``incarnations``: of the feeds that the stream meets first in this batch, by region id.
    """

    first_lsn: Lsn
    last_lsn: Lsn
    first_position: int
    last_position: int
    incarnations: dict[int, str]
    body: memoryview
    sizes: array[int]

    def entries(self) -> Iterator[memoryview]:
        """Yield each entry's stored bytes (an ``entries`` field); nothing is copied."""
        return slices(self.body, self.sizes)

    def messages(self) -> Iterator[wal_pb2.WalEntry]:
        """Yield each entry as a protobuf message: for who needs few of them, not many of them fast."""
        return map(message_of, self.entries())


class StreamError(NamedTuple):
    """The last word of a stream that the server ends."""

    text: str


def decode_response(data: bytes) -> ReceivedBatch | Heartbeat | StreamError:
    """Read a ``WalResponse``; compressed entries are opened. Without ``want_lengths`` each entry's size is looked for.

    Raises JournalCorrupt for what our server does not send, and for entries that don't fit their lengths.
    """
    if data[:1] == b"\x0a":
        size, at = varint.decode(data, 1)
        if at + size != len(data):
            raise JournalCorrupt("a batch has not the size that it says")
        return _decode_batch(memoryview(data)[at:])
    try:
        message = wal_pb2.WalResponse.FromString(data)
    except DecodeError as error:
        raise JournalCorrupt(f"what came is no WalResponse: {error}") from None
    if message.HasField("heartbeat"):
        return Heartbeat(Lsn.parse(message.heartbeat.current_lsn), message.heartbeat.rotate)
    return StreamError(message.error)


def _decode_batch(data: memoryview) -> ReceivedBatch:
    at = 0
    while at < len(data) and data[at] != _ENTRIES:
        tag, at = varint.decode(data, at)
        number, at = varint.decode(data, at)
        if tag & 7 == 2:
            at += number
    try:
        head = wal_pb2.WalBatch.FromString(bytes(data[:at]))
    except DecodeError as error:
        raise JournalCorrupt(f"what came is no WalBatch: {error}") from None
    body = data[at:]
    if head.compression != NONE:
        if body:
            raise JournalCorrupt("a compressed batch has entries that are not")
        body = memoryview(decompress(head.compression, head.compressed_entries))
    return ReceivedBatch(
        first_lsn=Lsn.parse(head.first_lsn),
        last_lsn=Lsn.parse(head.last_lsn),
        first_position=head.first_local_lsn,
        last_position=head.last_local_lsn,
        incarnations={named.region_id: named.incarnation for named in head.incarnations},
        body=body,
        sizes=_sizes_of(head.entry_lengths, body),
    )


def _sizes_of(stated: bytes, body: memoryview) -> array[int]:
    """The size of each ``entries`` field in ``body``: as stated, or found field by field where nothing is."""
    sizes = array("I")
    if not stated:
        at = 0
        while at < len(body):
            size, begin = varint.decode(body, at + 1) if body[at] == _ENTRIES else (0, len(body) + 1)
            sizes.append(begin + size - at)
            at = begin + size
    elif len(stated) % 4 == 0:
        sizes.frombytes(stated)
        if sys.byteorder == "big":
            sizes.byteswap()
    if not sizes or sum(sizes) != len(body):
        raise JournalCorrupt("a batch's entries don't fit the lengths that it says")
    return sizes
