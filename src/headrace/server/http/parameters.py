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
from headrace.errors import InvalidRequest
from headrace.server.decoding import convert_text, parse_time, wrong
from headrace.server.encoding import PostTerms
from headrace.server.reading import Known
from headrace.wire.documents import U64, Document, Name, SequenceId

T = TypeVar("T", bound=msgspec.Struct)

LIMIT_MAX: Final = 10_000
LIMIT_DEFAULT: Final = 1_000
TIMEOUT_MS_MAX: Final = 60_000
TIMEOUT_MS_DEFAULT: Final = 30_000
QUERY_BYTES_MAX: Final = 8_192
"""Longest query string; two names of 200 characters, percent-encoded, take less than a fifth of it."""
SOURCE_POSITION_BYTES_MAX: Final = 16_384
"""Longest source position, decoded: a GTID set of hundreds of servers."""

Limit = Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most entries in the answer.")]
TimeoutMs = Annotated[
    int, Meta(ge=0, le=TIMEOUT_MS_MAX, description="How long to wait for an entry, in milliseconds.")
]


_RANGE_LIMIT: Final = "Most entries; left out: 1,000, and no bound but their bytes for stored frames."


class RangeQuery(Document):
    """``GET /feeds/{id}/entries``: an inclusive range."""

    beg_sequence_id: Annotated[SequenceId, Meta(description="First sequence id of the range.")]
    end_sequence_id: (
        Annotated[U64, Meta(description="Last sequence id of the range; the head if it is left out.")]
        | UnsetType
    ) = UNSET
    limit: Annotated[Limit, Meta(description=_RANGE_LIMIT)] | UnsetType = UNSET


class PollQuery(Document):
    """``GET /feeds/{id}/poll``."""

    listener_id: Annotated[Name, Meta(description="A registered listener.")]
    after_sequence_id: Annotated[
        U64, Meta(description="The last sequence id that the listener has; 0: none.")
    ] = 0
    timeout_ms: TimeoutMs = TIMEOUT_MS_DEFAULT
    limit: Limit = LIMIT_DEFAULT


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
    """Return the query string as ``kind``; InvalidRequest for unknown, repeated, missing or out of bounds parameters."""
    if len(query) > QUERY_BYTES_MAX:
        raise InvalidRequest(f"the query string has {len(query)} bytes; the most is {QUERY_BYTES_MAX}")
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


def _base64(text: str, header: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise wrong(header, "is not base64") from None
    if len(data) > SOURCE_POSITION_BYTES_MAX:
        raise wrong(header, f"has {len(data)} bytes; the most is {SOURCE_POSITION_BYTES_MAX}")
    return data
