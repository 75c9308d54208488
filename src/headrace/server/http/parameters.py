"""Query strings and headers as documents: one declaration both parses them (clear 400s) and describes them (OpenAPI)."""

from __future__ import annotations

import base64
import binascii
from typing import Annotated, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.datastructures import Headers

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest, UriTooLong
from headrace.server.decoding import convert_text, parse_time, wrong
from headrace.server.encoding import PostTerms
from headrace.server.reading import Known, SinceTime, Start
from headrace.server.rendering import ANSWER_BYTES_MAX, LIMIT_DEFAULT
from headrace.wire.documents import U64, Document, Name, SequenceId
from headrace.wire.filters import EntryFilter, entry_filter

T = TypeVar("T", bound=msgspec.Struct)

LIMIT_MAX: Final = 10_000
TIMEOUT_MS_MAX: Final = 60_000
TIMEOUT_MS_DEFAULT: Final = 30_000
QUERY_BYTES_MAX: Final = 8_192
"""Longest query string; two names of 200 characters, percent-encoded, take less than a fifth of it."""
SEQUENCE_ID_MAX: Final = (1 << 63) - 1
SOURCE_POSITION_BYTES_MAX: Final = 16_384
"""Longest source position, decoded: a GTID set of hundreds of servers."""

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most entries in the answer; left out: 1,000.")]
LimitBytes = Annotated[
    int,
    Meta(
        ge=1,
        le=ANSWER_BYTES_MAX,
        description="Most bytes of entries in the answer, save that it is always one entry.",
    ),
]
TimeoutMs = Annotated[
    int, Meta(ge=0, le=TIMEOUT_MS_MAX, description="How long to wait for an entry, in milliseconds.")
]
After = Annotated[U64, Meta(description="The last sequence id that the listener has; 0: none. Left out: 0.")]
AfterTime = Annotated[
    Name,
    Meta(
        description="Begin with the first entry committed at this time or later, instead of at a sequence id: RFC 3339, or "
        "ms since 1970."
    ),
]
Listener = Annotated[Name, Meta(description="A registered listener.")]


class FilterQuery(Document):
    """Which entries a reader wants. Each condition that is given must hold; control entries always pass."""

    changed: (
        Annotated[
            Name,
            Meta(description="Only entries that changed one of these members (a,b,c), and deletes."),
        ]
        | UnsetType
    ) = UNSET
    key: Annotated[str, Meta(description="Only entries with this key.")] | UnsetType = UNSET
    shard: (
        Annotated[
            Name, Meta(description="Only this part of the keys: 2/8 is the second of eight, by CRC-32C.")
        ]
        | UnsetType
    ) = UNSET

    def wanted(self) -> EntryFilter:
        """Return the filter; InvalidRequest naming the parameter that can't be read."""
        given = (one if one is not UNSET else None for one in (self.changed, self.key, self.shard))
        return entry_filter(*given)


class RangeQuery(FilterQuery, kw_only=True):
    """``GET /feeds/{id}/entries``: an inclusive range."""

    beg_sequence_id: (
        Annotated[SequenceId, Meta(description="First sequence id of the range; this or after-time.")]
        | UnsetType
    ) = UNSET
    end_sequence_id: (
        Annotated[U64, Meta(description="Last sequence id of the range; the head if it is left out.")]
        | UnsetType
    ) = UNSET
    after_time: AfterTime | UnsetType = UNSET
    limit: (
        Annotated[
            Limit,
            Meta(
                description="Most entries; left out: 1,000, and no bound but their bytes for stored frames."
            ),
        ]
        | UnsetType
    ) = UNSET
    limit_bytes: LimitBytes = ANSWER_BYTES_MAX

    def start(self) -> Start:
        """Return where the range begins; InvalidRequest unless it is said, and once."""
        if self.beg_sequence_id is UNSET and self.after_time is UNSET:
            raise wrong("beg-sequence-id", "is missing")
        first = self.beg_sequence_id if self.beg_sequence_id is not UNSET else UNSET
        return _start(first - 1 if first is not UNSET else UNSET, self.after_time, "beg-sequence-id")


class PollQuery(FilterQuery, kw_only=True):
    """``GET /feeds/{id}/poll``."""

    listener_id: Listener
    after_sequence_id: After | UnsetType = UNSET
    after_time: AfterTime | UnsetType = UNSET
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT
    limit: Limit = LIMIT_DEFAULT
    limit_bytes: LimitBytes = ANSWER_BYTES_MAX

    def start(self) -> Start:
        """Return where the listener is."""
        return _start(self.after_sequence_id, self.after_time, "after-sequence-id")


class StreamQuery(FilterQuery, kw_only=True):
    """``GET /feeds/{id}/stream``."""

    listener_id: Listener
    after_sequence_id: After | UnsetType = UNSET
    after_time: AfterTime | UnsetType = UNSET
    incarnation: (
        Annotated[
            str, Meta(description="As the header Headrace-Incarnation, for who can set none: browsers.")
        ]
        | UnsetType
    ) = UNSET

    def start(self, headers: StreamHeaders) -> Start:
        """Return where the listener is. A resumed stream repeats its address, so its Last-Event-ID counts first."""
        last = headers.last_event_id
        if last is UNSET or not last:
            return _start(self.after_sequence_id, self.after_time, "after-sequence-id")
        if not (last.isascii() and last.isdecimal()) or int(last) > SEQUENCE_ID_MAX:
            raise wrong("Last-Event-ID", f"{last[:80]!r} is no sequence id")
        return int(last)

    def known(self, headers: StreamHeaders) -> Known:
        """Return what the listener knows; InvalidRequest where address and header differ."""
        known = headers.known()
        if self.incarnation is UNSET or known.incarnation == self.incarnation:
            return known
        if known.incarnation is not None:
            raise wrong("incarnation", "differs from the header Headrace-Incarnation")
        return Known(self.incarnation, known.lsn)


class TailQuery(Document):
    """``GET /feeds/{id}/tail``."""

    producer: Annotated[Name, Meta(description="Also answer this agent's last append.")] | UnsetType = UNSET


class PlaceHeaders(msgspec.Struct, rename="kebab"):
    """What a reader sends of the place it names; an answer of another history is refused then."""

    headrace_incarnation: (
        Annotated[str, Meta(description="Incarnation that the reader has read from.")] | UnsetType
    ) = UNSET
    headrace_lsn: (
        Annotated[str, Meta(description="LSN of the entry before the first one asked for.")] | UnsetType
    ) = UNSET

    def known(self) -> Known:
        """Return them as the service takes them; InvalidRequest if the LSN is none."""
        incarnation = self.headrace_incarnation
        lsn = self.headrace_lsn
        return Known(
            incarnation if incarnation is not UNSET else None, Lsn.parse(lsn) if lsn is not UNSET else None
        )


class StreamHeaders(PlaceHeaders, rename="kebab"):
    """What a reader of a stream sends: the place is the one of the last event that it got."""

    last_event_id: (
        Annotated[
            str, Meta(description="Sequence id of the last event; browsers send it when they connect again.")
        ]
        | UnsetType
    ) = UNSET


class PostHeaders(msgspec.Struct, rename="kebab"):
    """What a publisher sends beside its entries."""

    headrace_epoch: (
        Annotated[
            int, Meta(ge=0, le=(1 << 63) - 1, description="Epoch of the registration; default: the last.")
        ]
        | UnsetType
    ) = UNSET
    headrace_incarnation: (
        Annotated[str, Meta(description="Incarnation that the publisher registered with.")] | UnsetType
    ) = UNSET
    headrace_marked_at: (
        Annotated[str, Meta(description="When the entries were marked: RFC 3339, or ms since 1970.")]
        | UnsetType
    ) = UNSET
    headrace_source_position: (
        Annotated[str, Meta(description="Place in the source, base64; the tail gives it back.")] | UnsetType
    ) = UNSET
    traceparent: Annotated[str, Meta(description="W3C trace context.")] | UnsetType = UNSET

    def terms(self) -> PostTerms:
        """Return them as the service takes them; InvalidRequest naming the header that is malformed."""
        position, marked_at, incarnation = (
            self.headrace_source_position,
            self.headrace_marked_at,
            self.headrace_incarnation,
        )
        return PostTerms(
            epoch=self.headrace_epoch if self.headrace_epoch is not UNSET else None,
            incarnation=incarnation if incarnation is not UNSET else None,
            source_position=_base64(position, "Headrace-Source-Position") if position is not UNSET else b"",
            marked_at_ms=parse_time(marked_at, "Headrace-Marked-At") if marked_at is not UNSET else None,
            traceparent=self.traceparent if self.traceparent is not UNSET else "",
        )


def parse_query(query: bytes, kind: type[T]) -> T:
    """Return the query string as ``kind``; InvalidRequest for unknown, repeated, missing or out of bounds parameters.

    UriTooLong if there are too many bytes of them.
    """
    if len(query) > QUERY_BYTES_MAX:
        raise UriTooLong(f"the query string has {len(query)} bytes; the most is {QUERY_BYTES_MAX}")
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, strict_parsing=True, errors="strict")
    except ValueError:
        if query:
            raise InvalidRequest(
                "the query string is malformed", hint="Write name=value&name=value."
            ) from None
        pairs = []
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise wrong(name[:80], "is given twice")
        values[name] = value
    return convert_text(values, kind)


def parse_headers(headers: Headers, kind: type[T]) -> T:
    """Return the headers that ``kind`` names; InvalidRequest for one that is repeated or malformed. Others pass."""
    values: dict[str, str] = {}
    for name in (str(field.encode_name) for field in msgspec.structs.fields(kind)):
        given = headers.getlist(name)
        if len(given) > 1:
            raise wrong(name, "is given twice")
        if given:
            values[name] = given[0]
    return convert_text(values, kind)


def _start(after: int | UnsetType, after_time: str | UnsetType, member: str) -> Start:
    if after_time is UNSET:
        return after if after is not UNSET else 0
    if after is not UNSET:
        raise wrong("after-time", f"is given beside {member}: a reader begins at one of the two")
    return SinceTime(parse_time(after_time, "after-time"))


def _base64(text: str, header: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise wrong(header, "is not base64") from None
    if len(data) > SOURCE_POSITION_BYTES_MAX:
        raise wrong(header, f"has {len(data)} bytes; the most is {SOURCE_POSITION_BYTES_MAX}")
    return data
