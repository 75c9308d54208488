"""JSON entries -> one append of the log: the producer's halves, their places and what else the frame carries.

The value of a JSON entry is the bytes of ``changes`` exactly as they came (design rule "an entry is encoded once").
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from msgspec import UNSET

from headrace.entries.entry import CONTROL_PREFIX, Change, Op
from headrace.entries.feed import check_agent_id
from headrace.errors import TooLarge
from headrace.log.requests import NEXT, Append
from headrace.log.tail import FeedSettings
from headrace.server.decoding import NAME_CHARS_SHOWN_MAX, parse_time, wrong
from headrace.wire.documents import EntryIn
from headrace.wire.entry import digest, encode_half
from headrace.wire.frame import Area

ENTRY_BYTES_MAX: Final = 1 << 20
"""Largest entry as its producer's half: gRPC batches are at most 3 MiB, and one entry must fit into one."""

ENTRIES_MAX: Final = 50_000
"""Most entries of one append: bounds how long its encoding holds up every other request (tenths of a second)."""

MS = struct.Struct("<Q")
"""A time in a frame's area: UTC milliseconds, u64 little-endian."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class PostTerms:
    """What a post says beside its entries (the ``Headrace-`` headers): conditions, and what its frame carries along.

    ``epoch`` None: judged as the epoch of that agent's last registration. Times are UTC milliseconds.
    """

    epoch: int | None = None
    incarnation: str | None = None
    source_position: bytes = b""
    marked_at_ms: int | None = None
    posted_at_ms: int | None = None
    traceparent: str = ""


def append_of(feed: str, settings: FeedSettings, entries: Sequence[EntryIn], terms: PostTerms) -> Append:
    """Return the append that a post stands for.

    Raises InvalidRequest (naming member and entry) and TooLarge; nothing is judged here that depends on the log's state.
    """
    if not entries:
        raise wrong("entries", "there is none in this post")
    if len(entries) > ENTRIES_MAX:
        raise TooLarge(
            f"{len(entries)} entries in one post; the most is {ENTRIES_MAX}", entries_max=ENTRIES_MAX
        )
    producer = _producer(feed, entries)
    halves = [_half(entry, index, settings) for index, entry in enumerate(entries)]
    expected_offsets, sequence_ids = _places(entries)
    return Append(
        feed=feed,
        producer=producer,
        halves=halves,
        digest=digest(halves),
        epoch=terms.epoch,
        incarnation=terms.incarnation,
        expected_offsets=expected_offsets,
        sequence_ids=sequence_ids,
        transaction_ends=[index for index, entry in enumerate(entries) if entry.tx_last is True],
        area=area_of(terms),
    )


def change_of(entry: EntryIn, index: int, settings: FeedSettings) -> Change:
    """Return the change that an entry describes: design §3 and §5 say what each member becomes."""
    value = bytes(entry.changes)
    if not value.startswith(b"{"):
        raise wrong("changes", "expected an object", index)
    unnamed = Op.PATCH if settings.changes == "delta" else Op.PUT
    return Change(
        value=value,
        key=_key(entry, value, index, settings.key_field),
        op=Op(entry.op) if entry.op is not UNSET else unnamed,
        source_tx=entry.tx.encode() if entry.tx is not UNSET else b"",
        tx_index=entry.tx_index if entry.tx_index is not UNSET else 0,
        tx_last=entry.tx_last is True,
        source_time_ms=(
            parse_time(entry.source_time, "source-time", index) if entry.source_time is not UNSET else 0
        ),
        copy=entry.copy is True,
        control=entry.control if entry.control is not UNSET else "",
        changed=tuple(entry.changed) if entry.changed is not UNSET else (),
        before=bytes(entry.before) if entry.before is not UNSET else None,
        table=tuple(entry.table) if entry.table is not UNSET else (),
    )


def _producer(feed: str, entries: Sequence[EntryIn]) -> str:
    """The one agent that all entries of the post name; each ``change-feed-id`` must be that of the address."""
    agent_id = entries[0].agent_id
    for index, entry in enumerate(entries):
        if entry.agent_id is UNSET:
            raise wrong("agent-id", "is missing", index)
        if entry.agent_id != agent_id:
            raise wrong("agent-id", "differs from that of the first entry; a post has one publisher", index)
        if entry.change_feed_id is not UNSET and entry.change_feed_id != feed:
            named = entry.change_feed_id[:NAME_CHARS_SHOWN_MAX]
            raise wrong("change-feed-id", f"{named!r} is not the feed of this address, {feed!r}", index)
    return check_agent_id(str(agent_id))


def _half(entry: EntryIn, index: int, settings: FeedSettings) -> bytes:
    half = encode_half(change_of(entry, index, settings))
    if len(half) > ENTRY_BYTES_MAX:
        raise TooLarge(
            f"entries[{index}] takes {len(half)} bytes; the most is {ENTRY_BYTES_MAX}",
            index=index,
            entry_bytes_max=ENTRY_BYTES_MAX,
        )
    return half


def _key(entry: EntryIn, value: bytes, index: int, key_field: str) -> bytes | None:
    key = entry.key.encode() if entry.key is not UNSET else _key_in(value, key_field)
    reserved = key is not None and key.startswith(CONTROL_PREFIX)
    if entry.control is not UNSET and not reserved:
        raise wrong("key", "a control entry's key begins with \\u0000", index)
    if entry.control is UNSET and reserved:
        raise wrong("key", "only a control entry's key may begin with \\u0000", index)
    return key


def _key_in(value: bytes, key_field: str) -> bytes | None:
    """The key that ``changes`` itself holds: a string's text, a number's JSON text; None (the sequence id) for all else."""
    raw = bytes(_members.decode(value).get(key_field, b""))
    if raw.startswith(b'"'):
        return _text.decode(raw).encode()
    if raw[:1] in b"-0123456789":
        return raw or None
    return None


def _places(entries: Sequence[EntryIn]) -> tuple[Sequence[int], Sequence[int]]:
    """The places that entries name: KAFKA-2260's expected offsets, and RFD 5's sequence ids. The log judges them."""
    offsets = [NEXT if entry.expected_offset is UNSET else entry.expected_offset for entry in entries]
    sequence_ids = [NEXT if entry.sequence_id is UNSET else entry.sequence_id for entry in entries]
    return _named(offsets), _named(sequence_ids)


def _named(places: Sequence[int]) -> Sequence[int]:
    return places if any(place != NEXT for place in places) else ()


def area_of(terms: PostTerms) -> dict[Area, bytes]:
    """Return what a frame carries along. A broken trace parent is left out, as the W3C recommendation asks."""
    found: dict[Area, bytes] = {}
    if terms.source_position:
        found[Area.SOURCE_POSITION] = terms.source_position
    if terms.traceparent and _TRACEPARENT.fullmatch(terms.traceparent):
        found[Area.TRACEPARENT] = terms.traceparent.encode()
    if terms.marked_at_ms is not None:
        found[Area.MARKED_AT_MS] = MS.pack(terms.marked_at_ms)
    if terms.posted_at_ms is not None:
        found[Area.POSTED_AT_MS] = MS.pack(terms.posted_at_ms)
    return found
