"""The plugin ``headrace``: one JSON line an entry, as ``docs/formats/pg-output.md`` describes it. Pure.

A line is the entry as HTTP gives it (:func:`headrace.wire.rendering.entry_out`), with ``feed`` and ``local-lsn`` in front.
Most are put together here from slices of the stored bytes; entries of another layout go the way of HTTP. Both ways lead to
the same bytes.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

from headrace.server.pg.output import options
from headrace.server.pg.output.contract import Piece, Rendered, Schemas
from headrace.server.pg.output.fields import Fields, Finder, starts_of
from headrace.server.pg.output.numerals import GROUP, GROUPS, lsn_texts
from headrace.server.pg.output.tails import NO_LINE_ENDS, tail_of
from headrace.wire.entry import message_of
from headrace.wire.frame import HEADER_SIZE, Frame, FrameHeader
from headrace.wire.rendering import entry_out, time_text

_encode = msgspec.json.Encoder().encode
_raw = msgspec.json.Decoder(msgspec.Raw).decode
_NEEDS_ESCAPE: Final = re.compile(rb"[^ !#-\[\]-~]")
_OPS: Final = (b',"op":"put"', b',"op":"delete"')
_U32_MAX: Final = (1 << 32) - 1
_GROUPED_MIN: Final = 1_000
"""From here on the last three digits of a number may be zeros."""


class EntryLines:
    """The output of one stream. Options: ``include-transaction`` (off) adds a line where a transaction begins and ends."""

    def __init__(self, given: Mapping[str, str], schemas: Schemas) -> None:
        """InvalidRequest for an option that there is not."""
        options.check_names("headrace", given, {"include-transaction"})
        self._transactions = options.switch(given, "include-transaction", unless_given=False)
        self._finder = Finder()

    def render(self, piece: Piece) -> Rendered:
        """Return a line for each entry that is wanted, and for each bound of a transaction of which any may be.

        JournalCorrupt for what is no entry.
        """
        chosen: Sequence[int] = (
            piece.wanted if piece.wanted is not None else range(piece.first, piece.last + 1)
        )
        if not chosen and (not self._transactions or (piece.begins and piece.ends)):
            return Rendered([], [])
        # A piece of which nothing is wanted still bounds what other pieces of its transaction have.
        lines = self._lines(piece.feed, piece.frame, chosen) if chosen else []
        entries = list(chosen)
        if self._transactions and piece.begins:
            lines.insert(0, _bound(piece, "begin"))
            entries.insert(0, piece.first)
        if self._transactions and piece.ends:
            lines.append(_bound(piece, "commit"))
            entries.append(piece.last)
        return Rendered(lines, entries)

    def _lines(self, feed: str, frame: Frame, chosen: Sequence[int]) -> list[bytes]:
        header, body, starts = frame.header, bytes(frame.body), starts_of(frame)
        begin = header.position + HEADER_SIZE + header.area_size
        first_id = header.first_sequence_id
        if (
            header.last_global_ts != header.global_ts
        ):  # raft_index wraps: once in four thousand million entries
            form = _form_of(feed, header, b"")
            return [
                _line_of(form, b"%X/%X" % divmod(begin + starts[index], 1 << 32), stored, first_id + index)
                for index in chosen
                if (stored := body[starts[index] : starts[index + 1]])
            ]
        first, last = chosen[0], chosen[-1]
        if (
            last - first + 1 == len(chosen)
            and _GROUPED_MIN <= first_id + first <= first_id + last <= _U32_MAX
        ):
            plain = self._finder.find_plain(body, starts, first, last)
            if plain is not None and _are_json(plain[1]) and _are_plain(plain[0]):
                positions = list(accumulate(frame.lengths[first:last], initial=begin + starts[first]))
                head, local = lsn_texts(positions)
                return _plain_lines(_form_of(feed, header, head), local, first_id + first, *plain)
        head, local = lsn_texts([begin + starts[index] for index in chosen])
        form = _form_of(feed, header, head)
        found = self._finder.find(body, starts, chosen)
        lines = _any_lines(form, local, [first_id + index for index in chosen], found)
        for at in found.odd:
            index = chosen[at]
            stored = body[starts[index] : starts[index + 1]]
            lines[at] = _line_of(form, local[at], stored, first_id + index)
        return lines


class _Form(NamedTuple):
    """What the lines of a frame have in common: up to the position, the id, ``raft_index``, and behind that."""

    opening: bytes
    before_id: bytes
    before_raft: bytes
    behind: bytes


def _form_of(feed: str, header: FrameHeader, local_head: bytes) -> _Form:
    return _Form(
        _opening(feed) + local_head,
        b'","sequence-id":',
        b',"lsn":"%016x.%010d.' % (header.global_ts, header.region_id),
        b'","committed-at":"%b"' % time_text(header.global_ts >> 18).encode(),
    )


@lru_cache(maxsize=256)
def _opening(feed: str) -> bytes:
    return b'{"feed":' + _encode(feed) + b',"local-lsn":"'


def _plain_lines(
    form: _Form, local: list[bytes], first_id: int, keys: list[bytes], values: list[bytes]
) -> list[bytes]:
    """The lines of puts of JSON in a row that have nothing but key and value. ``raft_index`` is the sequence id here."""
    opening, before_id, before_raft, behind = (part.replace(b"%", b"%%") for part in form)
    values = _on_lines(values)
    lines: list[bytes] = []
    while len(lines) < len(keys):
        begin = len(lines)
        thousands, at = divmod(first_id + begin, GROUP)
        groups = GROUPS[at : at + len(keys) - begin]
        line = b"".join(
            (
                opening, b"%b", before_id, b"%d%%b" % thousands, before_raft, b"%07d%%b" % thousands, behind,
                b',"changes":%b,"op":"put","key":"%b"}',
            )
        )  # fmt: skip
        stop = begin + len(groups)
        rows = zip(local[begin:stop], groups, values[begin:stop], keys[begin:stop], strict=True)
        lines += [line % (position, group, group, value, key) for position, group, value, key in rows]
    return lines


def _any_lines(form: _Form, local: list[bytes], ids: list[int], found: Fields) -> list[bytes]:
    """The lines of all entries whose fields were found; those of odd ones are empty."""
    opening, before_id, before_raft, behind = form
    lines: list[bytes] = []
    are_json = _are_json([value for value in found.values if value])
    values = _on_lines(found.values) if are_json else found.values
    rows = zip(local, ids, found.keys, values, found.ops, found.rests, strict=True)
    for position, sequence_id, key, value, op, rest in rows:
        tail = tail_of(rest) if op >= 0 else None
        if tail is None:
            if op >= 0:
                found.odd.append(len(lines))
            lines.append(b"")
            continue
        changes, instead = (b',"changes":' + value, b"") if are_json and value else _changes(value)
        lines.append(
            b"".join(
                (
                    opening, position, before_id, b"%d" % sequence_id,
                    before_raft, b"%010d" % (sequence_id & _U32_MAX), behind, changes,
                    b',"op":"patch"' if tail.is_patch else _OPS[op], _key(key), instead, tail.members, b"}",
                )
            )
        )  # fmt: skip
    return lines


def _line_of(form: _Form, local: bytes, stored: bytes, sequence_id: int) -> bytes:
    """The line of an entry of any layout."""
    entry = _encode(entry_out(message_of(memoryview(stored)), sequence_id)).translate(NO_LINE_ENDS)
    return b'%b%b",%b' % (form.opening, local, entry[1:])


def _changes(value: bytes) -> tuple[bytes, bytes]:
    """The member that a value is, and the one that stands in for it, behind the key, where it is no JSON."""
    try:
        value.decode()
        _raw(value)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return b"", b',"changes-base64":"%b"' % base64.b64encode(value)
    return b',"changes":' + value.translate(NO_LINE_ENDS), b""


def _key(key: bytes) -> bytes:
    try:
        return b',"key":' + _encode(key.decode())
    except UnicodeDecodeError:
        return b',"key-base64":"%b"' % base64.b64encode(key)


def _are_json(values: list[bytes]) -> bool:
    try:
        b"".join(values).decode()  # a JSON text begins and ends with an ASCII character: none is cut in two
        deque(map(_raw, values), maxlen=0)
    except (UnicodeDecodeError, msgspec.DecodeError, RecursionError):
        return False
    return True


def _on_lines(values: list[bytes]) -> list[bytes]:
    joined = b"".join(values)
    if b"\n" not in joined and b"\r" not in joined:
        return values
    return [value.translate(NO_LINE_ENDS) for value in values]


def _are_plain(keys: list[bytes]) -> bool:
    return _NEEDS_ESCAPE.search(b"".join(keys)) is None


def _bound(piece: Piece, which: str) -> bytes:
    """The line of a transaction's begin or commit."""
    return _encode(
        {"feed": piece.feed, "transaction": which, "xid": piece.xid, "incarnation": piece.incarnation}
    )
