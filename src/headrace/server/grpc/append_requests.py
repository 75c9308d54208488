"""``AppendRequest`` -> one append of the log; what became of it -> ``AppendResponse``. No object is made for an entry."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import HeadraceError, InvalidRequest, TooLarge, refusal_of
from headrace.log.requests import NEXT, Append, Appended, Chain, places_from
from headrace.server.encoding import ENTRIES_MAX, ENTRY_BYTES_MAX, PostTerms, area_of
from headrace.server.workload import run_sized
from headrace.wire.entry import digest
from headrace.wire.generated import log_pb2
from headrace.wire.halves import split_halves

SOURCE_POSITION_BYTES_MAX: Final = 16_384
"""Longest source position, as over HTTP: a GTID set of hundreds of servers."""
INCARNATION_SIZE: Final = 16
"""Bytes of a UUID."""
_ENTRIES_AT_ONCE: Final = 20
"""Halves are split and checked that much faster than JSON entries, so that many more of them are done on the event loop."""


async def append_of(
    request: log_pb2.AppendRequest, request_bytes: int, *, now_ms: int, chain: Chain | None
) -> Append:
    """Return the append that a request of ``request_bytes`` stands for, its entries checked; large ones in a worker thread.

    The halves are slices of the request, and their digest is that of the same entries over HTTP: a retry is recognised
    whichever way it comes. Raises InvalidRequest (with the ``index`` of the entry at fault) and TooLarge.
    """
    size = max(len(request.entry_lengths) // 4, request_bytes // 1024)
    return await run_sized(size // _ENTRIES_AT_ONCE, _append_of, request, now_ms, chain)


def _append_of(request: log_pb2.AppendRequest, now_ms: int, chain: Chain | None) -> Append:
    feed, producer = check_feed_id(request.feed), check_agent_id(request.producer_id, "producer_id")
    if len(request.source_position) > SOURCE_POSITION_BYTES_MAX:
        raise TooLarge(
            f"source_position has {len(request.source_position)} bytes; the most is {SOURCE_POSITION_BYTES_MAX}",
            source_position_bytes_max=SOURCE_POSITION_BYTES_MAX,
        )
    found = split_halves(
        request.entries, request.entry_lengths, entries_max=ENTRIES_MAX, entry_bytes_max=ENTRY_BYTES_MAX
    )
    terms = PostTerms(
        source_position=request.source_position,
        marked_at_ms=request.marked_at_ms or None,
        posted_at_ms=request.posted_at_ms or now_ms,
        traceparent=request.traceparent,
    )
    return Append(
        feed=feed,
        producer=producer,
        halves=found.halves,
        digest=digest(found.halves),
        epoch=request.epoch or None,
        incarnation=_incarnation(request.incarnation),
        expected_offsets=_places(request.expected_offsets, len(found.halves)),
        transaction_ends=found.transaction_ends,
        area=area_of(terms),
        chain=chain,
    )


def appended_response(request: int, appended: Appended) -> bytes:
    """Return the answer to request number ``request`` that stands in the feed now."""
    first_lsn = str(appended.first_lsn)
    return log_pb2.AppendResponse(
        request=request,
        appended=log_pb2.Appended(
            first_sequence_id=appended.first_sequence_id,
            last_sequence_id=appended.last_sequence_id,
            first_lsn=first_lsn,
            last_lsn=first_lsn if appended.last_lsn == appended.first_lsn else str(appended.last_lsn),
            incarnation=uuid_bytes(appended.incarnation),
            duplicate=appended.duplicate,
        ),
    ).SerializeToString()


def refused_response(request: int, error: HeadraceError) -> bytes:
    """Return the answer to request number ``request`` that was refused."""
    return log_pb2.AppendResponse(request=request, refusal=refusal_message(error)).SerializeToString()


def refusal_message(error: HeadraceError) -> log_pb2.Refusal:
    """Return a refusal as its message; the same facts as HTTP's problem document."""
    refusal = refusal_of(error)
    return log_pb2.Refusal(
        index=refusal.index,
        code=refusal.code,
        expected=refusal.expected,
        actual_next=refusal.actual_next,
        retryable=refusal.retryable,
        side_effects=log_pb2.NONE if refusal.side_effects == "none" else log_pb2.POSSIBLE,
        detail=error.detail,
        hint=error.advice,
    )


@lru_cache(maxsize=1024)
def uuid_bytes(incarnation: str) -> bytes:
    """Return an incarnation as the 16 bytes that ``LogAppend`` speaks of."""
    return uuid.UUID(incarnation).bytes


def _incarnation(given: bytes) -> str | None:
    if not given:
        return None
    if len(given) != INCARNATION_SIZE:
        raise InvalidRequest(
            f"incarnation: {len(given)} bytes are no UUID, which has {INCARNATION_SIZE}", member="incarnation"
        )
    return _uuid_text(given)


@lru_cache(maxsize=1024)
def _uuid_text(given: bytes) -> str:
    return str(uuid.UUID(bytes=given))


def _places(offsets: Sequence[int], count: int) -> Sequence[int]:
    """None, one for each entry, or that of the first entry, which the others follow."""
    if not offsets or (len(offsets) == 1 and offsets[0] == NEXT):
        return ()
    if len(offsets) == 1:
        return places_from(offsets[0], count)
    if len(offsets) != count:
        raise InvalidRequest(
            f"expected_offsets: {len(offsets)} places for {count} entries; give none, one, or one for each",
            member="expected_offsets",
        )
    return list(offsets)
