"""Key, value and what stands behind them in stored entries, found by slices: no message object an entry. Pure.

A stored entry (docs/formats/frame.md) is laid out by :func:`headrace.wire.entry.stamp` around a producer's half::

    0A size | 0A 26 lsn(38) | stamped: 10 … 1A … 22 … 40 … | [A0 06 01] | 28 op | 32 key | 3A value | 4A 04 crc(4) | rest

``stamped`` is the same in all entries of a frame. So an entry of a certain size with a key of a certain size has all its
parts at known places: one ``struct`` takes them out, and what must be constant is compared. Others are read part by part,
and what was laid out otherwise is left to protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from struct import Struct
from typing import Any, Final, NamedTuple

from headrace.errors import JournalCorrupt
from headrace.wire import varint
from headrace.wire.frame import Frame

FORMS_MAX: Final = 1 << 14
"""Most pairs of sizes that a :class:`Fields` keeps the places for, 100 bytes each; then it begins anew."""

_LSN_FIELD: Final = 40
_CHECKSUM: Final = b"\x4a\x04"
_STAMPED: Final = {0x10: False, 0x1A: True, 0x22: True, 0x40: False}
"""The tags of what is stamped the same on all entries of a frame, and whether a size follows them."""

Unpack = Callable[[bytes, int], tuple[Any, ...]]


class Fields(NamedTuple):
    """What was found of the chosen entries of one frame, a list for each field.

    ``rests``: the fields behind the checksum, as they are. ``odd``: places in these lists of entries that are laid out
    otherwise; their fields are empty here, and their op is -1.
    """

    keys: list[bytes]
    values: list[bytes]
    ops: list[int]
    rests: list[bytes]
    odd: list[int]


class Finder:
    """Finds the fields of frames, and remembers where they stand in entries of sizes that it has seen."""

    def __init__(self) -> None:
        self._forms: dict[int, tuple[Unpack, bytes] | None] = {}
        self._stamped_size = -1

    def find_plain(
        self, body: bytes, starts: Sequence[int], first: int, last: int
    ) -> tuple[list[bytes], list[bytes]] | None:
        """Return keys and values of the entries ``first`` … ``last``, if all are puts with both and nothing else.

        ``starts``: where each entry of the frame begins in its body, and where the last one ends. None: some are not, or
        that can't be told here.
        """
        stamped = _stamped(body, starts[first])
        forms = self._forms_for(len(stamped))
        opening, key_size_at = stamped + b"\x28\x00\x32", 3 + _LSN_FIELD + len(stamped) + 3
        keys: list[bytes] = []
        values: list[bytes] = []
        add_key, add_value = keys.append, values.append
        # An append's last entry has one field more in front of its half.
        stop = last if last + 2 == len(starts) else last + 1
        try:
            for at, end in pairwise(starts[first : stop + 1]):
                sizes = end - at << 8 | body[at + key_size_at]
                form = forms[sizes] if sizes in forms else self._form(sizes, len(stamped))
                unpack, expected = form  # type: ignore[misc]  # None is a TypeError, which ends this way
                found, key, middle, value, checksum = unpack(body, at)
                if found != opening or middle != expected or checksum != _CHECKSUM:
                    return None
                add_key(key)
                add_value(value)
        except (TypeError, IndexError, struct.error):
            return None
        if stop == last:
            key, value, op, rest = _part_by_part(body, starts[last], starts[last + 1], stamped)
            if op or rest:
                return None
            add_key(key)
            add_value(value)
        return keys, values

    def find(self, body: bytes, starts: Sequence[int], chosen: Sequence[int]) -> Fields:
        """Return the fields of the entries ``chosen``; ``starts`` as above."""
        stamped = _stamped(body, starts[chosen[0]])
        found = [_part_by_part(body, starts[index], starts[index + 1], stamped) for index in chosen]
        return Fields(
            [one[0] for one in found],
            [one[1] for one in found],
            [one[2] for one in found],
            [one[3] for one in found],
            [at for at, one in enumerate(found) if one[2] < 0],
        )

    def _forms_for(self, stamped_size: int) -> dict[int, tuple[Unpack, bytes] | None]:
        if self._stamped_size != stamped_size or len(self._forms) > FORMS_MAX:
            self._forms, self._stamped_size = {}, stamped_size
        return self._forms

    def _form(self, sizes: int, stamped_size: int) -> tuple[Unpack, bytes] | None:
        """Return how an entry of these sizes without a rest is unpacked; None for those that take more steps."""
        size, key_size = sizes >> 8, sizes & 0xFF
        form = None
        # An entry of 128 to 16383 bytes has a size of two bytes in front; a key's size of one byte is below 128.
        if 0x80 <= size - 3 < 0x4000 and key_size < 0x80:
            left = size - (3 + _LSN_FIELD + stamped_size + 4 + key_size + 6)
            for digits in (1, 2):
                value_size = left - 1 - digits
                if value_size > 0 and len(varint.encode(value_size)) == digits:
                    shape = Struct(
                        f"{3 + _LSN_FIELD}x{stamped_size + 3}sx{key_size}s{1 + digits}s{value_size}s2s4x"
                    )
                    form = shape.unpack_from, b"\x3a" + varint.encode(value_size)
        self._forms[sizes] = form
        return form


def starts_of(frame: Frame) -> list[int]:
    """Return where each entry of a frame begins in its body, and where the last one ends; JournalCorrupt if not there."""
    starts = list(accumulate(frame.lengths, initial=0))
    if starts[-1] != frame.header.body_size:
        raise JournalCorrupt(
            f"the entry lengths add up to {starts[-1]} bytes, the body has {frame.header.body_size}",
            position=frame.header.position,
        )
    return starts


def _stamped(body: bytes, at: int) -> bytes:
    """Return what the server stamped on the entry at ``at``, behind its LSN; empty if that is laid out otherwise."""
    _, begin = varint.decode(body, at + 1)
    begin += _LSN_FIELD
    end = begin
    try:
        while (is_sized := _STAMPED.get(body[end])) is not None:
            number, end = varint.decode(body, end + 1)
            end += number if is_sized else 0
    except (IndexError, JournalCorrupt):
        return b""
    return body[begin:end]


def _part_by_part(body: bytes, at: int, end: int, stamped: bytes) -> tuple[bytes, bytes, int, bytes]:
    """Return key, value, op and rest of the entry at ``at``; op -1 if it is laid out otherwise.

    The size in front and the LSN are passed over: what is stamped would not be found if they were laid out otherwise.
    """
    size = end - at
    at += 1 + _LSN_FIELD + (1 if size < 0x82 else 2 if size < 0x4003 else len(varint.encode(size - 4)))
    try:
        if not stamped or not body.startswith(stamped, at):
            return _ODD
        at += len(stamped)
        if body[at] == 0xA0:
            at += 3
        key = value = b""
        has_key = body[at] == 0x32  # stamped as well where the producer named none: it is the sequence id
        if has_key:
            key, at = _sized(body, at + 1)
            at += 6
        if body[at] != 0x28 or (op := body[at + 1]) > 1:
            return _ODD
        at += 2
        if not has_key:
            if body[at] != 0x32:
                return _ODD
            key, at = _sized(body, at + 1)
        if at < end and body[at] == 0x3A:
            value, at = _sized(body, at + 1)
        if not has_key:
            if body[at : at + 2] != _CHECKSUM:
                return _ODD
            at += 6
        # Every field of a rest has a tag of two bytes.
        if at != end and (at + 1 >= end or body[at + 1] < 6):
            return _ODD
    except (IndexError, JournalCorrupt):
        return _ODD
    return key, value, op, body[at:end]


_ODD: Final = (b"", b"", -1, b"")


def _sized(body: bytes, at: int) -> tuple[bytes, int]:
    size = body[at]
    at += 1
    if size >= 0x80:
        more = body[at]
        at += 1
        if more >= 0x80:
            size, at = varint.decode(body, at - 2)
        else:
            size += (more - 1) << 7
    return body[at : at + size], at + size
