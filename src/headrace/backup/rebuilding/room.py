"""How much room a rebuilt data folder takes, so that a disk that is too small is known before anything is written. Pure.

A frame has two headers and a row of an index, so a journal of small appends is several times as large as the segments it is
made from. How many appends there are stands in no manifest. So there are two answers: what it can be at most, and what it is
once the appends were counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from headrace.backup.rebuilding.appends import StoredAppend
from headrace.log.files.store import SEGMENT_FRAMES_MAX
from headrace.log.metadata.rows import SchemaRow
from headrace.log.tail import JournalState
from headrace.wire.frame import HEADER_SIZE, Area, encode_area
from headrace.wire.kwal_manifest import Manifest
from headrace.wire.segment import INDEX_FOOT_SIZE, INDEX_HEAD_SIZE, ROW, START_SIZE

METADATA_BYTES: Final = 64 << 20
"""Room for the metadata database without its schemas and alarms, with what SQLite needs while it writes, and the mark."""
_SCHEMA_COPIES: Final = 3
"""A row of the metadata database stands in its log, too, until that is written back; and pages are not always full."""
_ALARM_BYTES: Final = 4 << 10
"""Most bytes that the alarm of a feed takes in the database."""
_GROWTH_BYTES: Final = 512
"""By so much the state of a feed may grow while entries are written: longer numbers, its tenant."""
_BLOCK_BYTES: Final = 4 << 10
"""A file system gives room in pieces of such a size."""
_ENTRY_BYTES: Final = 1 + 4 + 4
"""An entry's tag, its length, and its place among the ends of transactions: none of them stands in a segment."""


class Load(NamedTuple):
    """What goes into a journal: so many frames, of so many bytes altogether."""

    frames: int
    frame_bytes: int


def load_at_most(manifests: Iterable[Manifest]) -> Load:
    """Return what the segments of these manifests come to if each of their entries is an append of its own."""
    size = entries = 0
    for one in manifests:
        size, entries = size + one.size, entries + one.entries
    empty_area = len(encode_area({Area.TRANSACTION_ENDS: b"0"})) - 1
    return Load(entries, size + entries * (_ENTRY_BYTES + empty_area + 2 * HEADER_SIZE))


def load_of(appends: Iterable[StoredAppend]) -> Load:
    """Return what these appends come to."""
    frames = size = 0
    for one in appends:
        area = len(encode_area({Area.TRANSACTION_ENDS: one.transaction_ends}))
        frames, size = frames + 1, size + 2 * HEADER_SIZE + area + len(one.body) + len(one.lengths)
    return Load(frames, size)


def room_of(load: Load, state: JournalState, schemas: Sequence[SchemaRow], segment_bytes: int) -> int:
    """Return the bytes that a data folder takes: journal with its indexes, mark, and metadata database.

    ``state``: what the journal begins with; ``segment_bytes``: the size of its segments.
    """
    feeds = len(state.feeds)
    said = len(state.encode()) + feeds * _GROWTH_BYTES
    frames, size = load.frames + feeds, load.frame_bytes + feeds * 2 * HEADER_SIZE + said
    # Two neighbouring segments are together above one of the two limits, else there would be one of them.
    files = 2 * (size // segment_bytes + frames // SEGMENT_FRAMES_MAX) + 2
    per_file = START_SIZE + said + INDEX_HEAD_SIZE + INDEX_FOOT_SIZE + _BLOCK_BYTES
    metadata = METADATA_BYTES + feeds * _ALARM_BYTES + _SCHEMA_COPIES * sum(map(_row_bytes, schemas))
    return size + frames * ROW.size + files * per_file + metadata


def _row_bytes(row: SchemaRow) -> int:
    return len(row.value) + sum(len(str(column).encode()) for column in row[:-1]) + 64
