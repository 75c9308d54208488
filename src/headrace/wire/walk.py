"""Where every field of every stored entry stands, found for all entries of a buffer at once.

One step reads the next field of every entry, so the cost is a few array operations per field of a layout, not per entry.
What the steps don't know (rare wire types, tags of three bytes, numbers over 63 bits) is left as odd, for protobuf.
Called by :mod:`headrace.wire.columns` and :mod:`headrace.wire.batch_columns`; needs numpy.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.entries.entry import WireOp
from headrace.errors import JournalCorrupt
from headrace.wire.frame import HEADER_SIZE, Frame, FrameKind

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Field number and wire type of everything that becomes a column; other known fields are walked over.
_SLICED: Final = {
    1: "lsn", 3: "tenant_id", 4: "key_prefix", 6: "key", 7: "value", 9: "checksum",
    101: "source_tx", 106: "control", 109: "before",
}  # fmt: skip
_NUMBERS: Final = {
    2: "committed_at", 5: "op", 8: "hlc_ts", 100: "append_end", 102: "tx_index", 103: "tx_last",
    104: "source_time", 105: "copy", 107: "patch",
}  # fmt: skip
_LISTED: Final = {108: "changed", 110: "table"}
_TAGS_MAX: Final = 1 << 14  # tags of one or two bytes
_WALK, _ODD = 0, 1  # what to do at a tag that is no column
PADDING_BYTES: Final = 96
"""How far behind an entry the walk looks."""
_FIELDS_MAX: Final = 256
"""Most fields of one entry that are walked by arrays; an entry with more goes through protobuf."""


def _word(text: str) -> tuple[np.uint64, np.uint64]:
    """Return the mask and value of eight bytes: each given in hex, or ``+`` (0x80 and up), ``-`` (below), ``.`` (any)."""
    known = {"+": (0x80, 0x80), "-": (0x80, 0), ".": (0, 0)}
    pairs = [known.get(one) or (0xFF, int(one, 16)) for one in text.split()]
    mask, value = (int.from_bytes(bytes(part), "little") for part in zip(*pairs, strict=True))
    return np.uint64(mask), np.uint64(value)


_LSN_MASK, _LSN_BEGIN = _word("0A 26 . . . . . .")
_WALL_MASK, _WALL = _word("10 + + + + + - 1A")
_HLC_MASK, _HLC = _word("40 + + + + + + +")
_HLC_END_MASK, _HLC_END = _word(". . . . . . + -")
_LAST_MASK, _LAST = _word("A0 06 01 . . . . .")


def _actions() -> tuple[NDArray[np.int8], list[str]]:
    """Return a table tag -> action, and the columns that actions from 2 up stand for."""
    tags = np.arange(_TAGS_MAX)
    walkable = (tags >= 8) & ((tags & 7 == 0) | (tags & 7 == 2))
    table = np.where(walkable, _WALK, _ODD).astype(np.int8)
    for number, wire in (dict.fromkeys(_NUMBERS, 0) | dict.fromkeys((*_SLICED, *_LISTED), 2)).items():
        table[number << 3 | (2 - wire)] = _ODD  # a known field with the other wire type
    columns: list[str] = []
    for number, name in (_SLICED | _NUMBERS | _LISTED).items():
        wire = 0 if number in _NUMBERS else 2
        table[number << 3 | wire] = len(columns) + 2
        columns.append(name)
    return table, columns


_ACTION, _COLUMNS = _actions()


class Places(NamedTuple):
    """Where entries stand in the buffer (byte offsets), and what their frames' headers say of them."""

    starts: Ints
    ends: Ints
    sequence_ids: Ints
    global_ts: Ints


class Found(NamedTuple):
    """What the walk found: per column (start, size) or number, per element of a list (entry, start, size), odd entries.

    A field that an entry does not have is at its end and has size 0, or -1 for ``before``, which may be there and empty.
    """

    slices: dict[str, tuple[Ints, Ints]]
    numbers: dict[str, Ints]
    lists: dict[str, list[tuple[Ints, Ints, Ints]]]
    odd: Flags


def find_places(data: bytes | memoryview, first: int, last: int, where: str) -> Places:
    """Find all entries of ``data``'s frames whose sequence id is in ``first`` … ``last``.

    Every frame is verified; JournalCorrupt, naming ``where``, if one is damaged or its lengths don't add up.
    """
    at = 0
    bodies: list[tuple[int, int, int, int, int]] = []  # place, size, count, first sequence id, global_ts
    lengths: list[memoryview] = []
    while at < len(data):
        frame = Frame(data, at, where=where)
        header = frame.header
        if header.kind == FrameKind.ENTRIES and header.count:
            body = at + HEADER_SIZE + header.area_size
            bodies.append((body, header.body_size, header.count, header.first_sequence_id, header.global_ts))
            lengths.append(frame.lengths_bytes)
        at += header.size
    if not bodies:
        none = np.empty(0, np.int64)
        return Places(none, none, none, none)
    body_at, body_size, count, first_id, stamp = np.asarray(bodies, np.int64).T
    sizes = np.frombuffer(b"".join(lengths), "<u4").astype(np.int64)
    before = np.cumsum(count) - count  # index of each frame's first entry
    if (np.add.reduceat(sizes, before) != body_size).any():
        raise JournalCorrupt(f"{where or 'a buffer'}: a frame's entry lengths don't add up to its body")
    ends = np.cumsum(sizes)
    ends += np.repeat(body_at - (ends[before] - sizes[before]), count)
    index = np.arange(len(sizes), dtype=np.int64) - np.repeat(before, count)
    first_ids = np.repeat(first_id, count)
    # global_ts grows by one where raft_index, the low half of the sequence id, wraps inside an append.
    wraps = ((first_ids & 0xFFFFFFFF) + index) >> 32
    ids = first_ids + index
    places = Places(ends - sizes, ends, ids, np.repeat(stamp, count) + wraps)
    inside = (ids >= first) & (ids <= last)
    return places if inside.all() else Places(*(part[inside] for part in places))


def walk(buffer: NDArray[np.uint8], places: Places, *, stamps: bool = False, bare: bool = False) -> Found:
    """Read every field of every entry, one field of all entries a step.

    ``buffer`` is the whole one that the places were found in, with :data:`PADDING_BYTES` behind the last entry (a frame's
    second header is so large). ``stamps``: ``committed_at`` and ``hlc_ts`` are wanted; else they may stay 0. ``bare``: the
    entries are WalEntry messages as KWAL segments have them, without the tag and the size of an ``entries`` field.
    """
    total = len(places.starts)
    found = Found(
        {name: (places.ends.copy(), np.zeros(total, np.int64)) for name in _SLICED.values()},
        {name: np.zeros(total, np.int64) for name in _NUMBERS.values()},
        {name: [] for name in _LISTED.values()},
        np.zeros(total, np.bool_),
    )
    found.slices["before"][1][:] = -1
    if not total:
        return found
    at = places.starts
    if not bare:
        size, at = _varints(buffer, at + 1)
        found.odd[:] = (buffer[places.starts] != 0x0A) | (at + size != places.ends)
    at = _pass_server_half(buffer, at, places.ends, found, stamps=stamps)
    rows = np.flatnonzero(~found.odd & (at < places.ends))
    at = at[rows]
    for _ in range(_FIELDS_MAX):
        if not len(rows):
            break
        rows, at = _step(buffer, rows, at, places.ends, found)
    found.odd[rows] = True
    found.odd[:] |= (found.slices["lsn"][1] == 0) | (found.numbers["op"] > max(WireOp))
    return found


def _pass_server_half(buffer: NDArray[np.uint8], at: Ints, ends: Ints, found: Found, *, stamps: bool) -> Ints:
    """Take LSN and tenant of the entries that are laid out as our server stamps them; return where to walk on.

    That is ``0A 26 lsn(38) | 10 varint(6) | 1A len tenant | 22 len key_prefix | 40 varint(9)``. Other entries keep their
    place: the walk reads them from the start.
    """
    # At most 96 bytes past an entry are looked at, and those are there.
    words = words_of(buffer)
    tenant = at + 49
    tenant_size = buffer[at + 48].astype(np.int64)
    prefix = np.minimum(tenant + tenant_size, ends) + 1
    prefix_size, after = _varints(buffer, prefix)
    clock = np.minimum(after + np.minimum(prefix_size, 1 << 20), ends)
    # A varint ends at its first byte below 0x80: the ones before it must all be above.
    ours = (words[at] & _LSN_MASK == _LSN_BEGIN) & (words[at + 40] & _WALL_MASK == _WALL)
    ours &= (tenant_size < 0x80) & (buffer[prefix - 1] == 0x22) & (words[clock] & _HLC_MASK == _HLC)
    ours &= (words[clock + 2] & _HLC_END_MASK == _HLC_END) & (clock + 10 <= ends) & ~found.odd
    everywhere = bool(ours.all())
    for name, start, size in (
        ("lsn", at + 2, np.full(len(at), 38)),
        ("tenant_id", tenant, tenant_size),
        ("key_prefix", after, prefix_size),
    ):
        if everywhere:
            found.slices[name] = (start, size)
            continue
        starts, sizes = found.slices[name]
        np.copyto(starts, start, where=ours)
        np.copyto(sizes, size, where=ours)
    if stamps:
        for name, start in (("committed_at", at + 41), ("hlc_ts", clock + 1)):
            np.copyto(found.numbers[name], _varints(buffer, start)[0], where=ours)
    at = clock + 10 if everywhere else np.where(ours, clock + 10, at)
    # Every append's last entry has one field more here; left to the walk it would put its steps out of line.
    ending = ours & (words[at] & _LAST_MASK == _LAST) & (at + 3 <= ends)
    found.numbers["append_end"][ending] = 1
    at[ending] += 3
    return at


def words_of(buffer: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return the eight bytes at each place of the buffer as one number, the first byte lowest; nothing is copied."""
    count = max(0, len(buffer) - 7)
    return np.ndarray((count,), "<u8", buffer, 0, (1,))


def _step(buffer: NDArray[np.uint8], rows: Ints, at: Ints, ends: Ints, found: Found) -> tuple[Ints, Ints]:
    """Read the field at ``at`` of the entries ``rows``; return those that have another one, and where it stands."""
    low, high = buffer[at], buffer[at + 1]
    if low[0] < 0x80 and (low == low[0]).all():
        action, wire, after_tag = int(_ACTION[low[0]]), int(low[0] & 7), at + 1
    elif low[0] >= 0x80 > high[0] and (low == low[0]).all() and (high == high[0]).all():
        tag = int(low[0] & 0x7F) | int(high[0]) << 7
        action, wire, after_tag = int(_ACTION[tag]), tag & 7, at + 2
    else:
        return _mixed_step(buffer, rows, at, ends, found)
    number, after = _varints(buffer, after_tag)
    limit = ends[rows]
    following = after + number if wire == 2 else after
    if action == _ODD or (number < 0).any() or (following > limit).any() or (following < after).any():
        return _mixed_step(buffer, rows, at, ends, found)
    _keep(action, rows, number, after, found)
    more = following < limit
    return (rows, following) if more.all() else (rows[more], following[more])


def _mixed_step(
    buffer: NDArray[np.uint8], rows: Ints, at: Ints, ends: Ints, found: Found
) -> tuple[Ints, Ints]:
    """Do what :func:`_step` does where the entries don't all have the same field here, or one of them is odd."""
    low, high = buffer[at].astype(np.int64), buffer[at + 1].astype(np.int64)
    long_tag = low >= 0x80
    tag = np.where(long_tag, (low & 0x7F) | (high << 7), low)
    odd = long_tag & (high >= 0x80)
    action = _ACTION[np.where(odd, 0, tag)]
    number, after = _varints(buffer, at + 1 + long_tag)
    limit = ends[rows]
    following = after + np.where(tag & 7 == 2, number, 0)
    odd |= (action == _ODD) | (number < 0) | (following > limit) | (following < after)
    found.odd[rows[odd]] = True
    action[odd] = _ODD
    for kind in np.flatnonzero(np.bincount(action, minlength=2)[2:]) + 2:
        here = action == kind
        _keep(int(kind), rows[here], number[here], after[here], found)
    more = (following < limit) & ~odd
    return rows[more], following[more]


def _keep(action: int, rows: Ints, number: Ints, start: Ints, found: Found) -> None:
    """Note what the field that ``action`` stands for holds in these entries."""
    if action < 2:
        return
    name = _COLUMNS[action - 2]
    if name in found.lists:
        found.lists[name].append((rows, start, number))
    elif len(rows) == len(found.odd):  # all of them, in order
        if name in found.numbers:
            found.numbers[name] = number
        else:
            found.slices[name] = (start, number)
    elif name in found.numbers:
        found.numbers[name][rows] = number
    else:
        starts, sizes = found.slices[name]
        starts[rows] = start
        sizes[rows] = number


def _varints(buffer: NDArray[np.uint8], at: Ints) -> tuple[Ints, Ints]:
    """Read the varints at ``at``: (values, where they end). One of more than 9 bytes or 63 bits is given as -1."""
    byte = buffer[at]
    values = (byte & 0x7F).astype(np.int64)
    after = at + 1
    more = np.flatnonzero(byte >= 0x80)
    shift = 7
    while len(more) and shift < 63:
        byte = buffer[after[more]]
        values[more] |= (byte & 0x7F).astype(np.int64) << shift
        after[more] += 1
        more = more[byte >= 0x80]
        shift += 7
    values[more] = -1
    return values, after
