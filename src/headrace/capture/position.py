"""Where in the source a feed stands, as it is kept with every append: the log itself is capture's checkpoint. Pure.

``docs/formats/capture-position.md`` is its description. What it says is durable together with the entries that it is about,
so a restart asks the feed for its last append and goes on from there: nothing twice, nothing missing.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from headrace.capture.binlog.event import Gtid, GtidPosition
from headrace.errors import BinlogInvalid, FeedUnfit, TooLarge
from headrace.simple.message import Timestamp
from headrace.wire.versions import CAPTURE_POSITION, check_readable

POSITION_BYTES_MAX: Final = 16_384
"""Longest position: what the server takes as an append's source position."""

_REASON_CHARS: Final = (60, 0)
_SHOWN_BYTES: Final = 80
_U64 = Annotated[int, msgspec.Meta(ge=0)]

RawKey = tuple[str | Timestamp | None, ...]
"""A handle key's raw values, in the key's order."""


class CopyProgress(msgspec.Struct, frozen=True, rename="kebab", omit_defaults=True):
    """How far the rows of one table are copied.

    ``number``: what its copy-begin and copy-end entries have in their keys. ``last``: the greatest handle key that is in the
    feed, None before the first chunk. ``rows``: copied so far. ``reason``: the initial snapshot, or somebody asked for it.
    ``id``: the request's, ``""`` for the initial snapshot.
    """

    table: tuple[str, str]
    number: _U64 = 0
    last: RawKey | None = None
    rows: _U64 = 0
    reason: Literal["initial", "asked"] = "initial"
    id: str = ""


class SourcePosition(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Everything up to ``gtid`` is wholly in the feed, and of the transaction after it the first ``parts`` parts.

    ``gtid``: MariaDB's text of a position, one GTID for each domain. ``file`` and ``offset``: the same place in the binlog
    of the server ``server_id``. ``parts``: rows events of the transaction ``under_way`` that are done (and statements, if
    rows follow them), counted as they stand in the binlog; ``rows``: how many of the next one, of those that go out;
    ``entries``: how many entries of it the feed holds.
    ``under_way``: its GTID, ``""`` if nothing of it is done. ``commit_ts``: the last one given, that of the transaction
    under way if there is one. ``table_id``: the last one given. ``time_s``: the source's time at ``offset``, in seconds
    since 1970, 0 if that is not known. ``copies``: the initial snapshot and the copies under way. ``whole``: no rows are
    still to be copied. ``waiting``: tables that are, though the feed has a schema of that name. ``left_out``: ranges of
    table ids, of tables that the settings left out and that were not copied since. ``stopped``: ``database.table`` -> why
    it is not captured.
    """

    gtid: str
    file: str
    offset: _U64
    server_id: _U64
    commit_ts: _U64
    table_id: int
    parts: _U64 = 0
    rows: _U64 = 0
    entries: _U64 = 0
    under_way: str = ""
    time_s: _U64 = 0
    copies: tuple[CopyProgress, ...] = ()
    whole: bool = True
    waiting: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[int, int], ...] = ()
    stopped: dict[str, str] = {}


class _Versions(msgspec.Struct, rename="kebab"):
    readable_from: _U64


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(SourcePosition)
_VERSIONS: Final = msgspec.json.Decoder(_Versions)
_OPENING: Final = b'{"written-as":%d,"readable-from":%d,' % CAPTURE_POSITION


def encode(position: SourcePosition) -> bytes:
    """Return what is kept with an append: equal positions are equal bytes, at most :data:`POSITION_BYTES_MAX` of them.

    Where they would be more, the reasons in ``stopped`` are cut; TooLarge if the names of tables alone are too many.
    """
    data = _OPENING + _ENCODER.encode(position)[1:]
    for chars in _REASON_CHARS:
        if len(data) <= POSITION_BYTES_MAX:
            break
        data = _OPENING + _ENCODER.encode(_shortened(position, chars))[1:]
    if len(data) <= POSITION_BYTES_MAX:
        return data
    raise TooLarge(
        f"the source position has {len(data)} bytes: {len(position.copies)} copies and {len(position.stopped)} tables "
        f"that are stopped; the most is {POSITION_BYTES_MAX}",
        hint="Capture fewer tables with this feed: leave out those that can't be captured, or give some their own.",
    )


def decode(data: bytes) -> SourcePosition:
    """Return the position in ``data``; FormatTooNew if a newer version wrote it, FeedUnfit if it is none."""
    try:
        check_readable("the feed's source position", _VERSIONS.decode(data).readable_from, CAPTURE_POSITION)
        position = _DECODER.decode(data)
        GtidPosition.parse(position.gtid)
        if position.under_way:
            Gtid.parse(position.under_way)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, BinlogInvalid) as error:
        raise _unfit(data, str(error)) from None
    if bool(position.parts or position.entries) != bool(position.under_way):
        raise _unfit(data, "under-way must stand with parts or entries, and they with it")
    return position


def _shortened(position: SourcePosition, chars: int) -> SourcePosition:
    stopped = {table: reason[:chars] for table, reason in position.stopped.items()}
    return msgspec.structs.replace(position, stopped=stopped)


def _unfit(data: bytes, why: str) -> FeedUnfit:
    return FeedUnfit(
        f"the feed's source position is none of capture's: {why}. It begins with {data[:_SHOWN_BYTES]!r}"
    )
