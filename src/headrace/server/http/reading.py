"""The handlers of what readers ask for: ranges, long polls, streams. Parse, call one use case, render."""

from __future__ import annotations

import sys
from functools import partial

from msgspec import UNSET
from starlette.responses import Response

from headrace.server.decoding import wrong
from headrace.server.guard import claimant_of
from headrace.server.http import parameters
from headrace.server.http.compression import RenderedResponse
from headrace.server.http.event_stream import STREAM_BYTES_MAX, EventStream
from headrace.server.http.table import FEED, Call
from headrace.server.reading import Known, SinceTime, Start
from headrace.server.rendering import LIMIT_DEFAULT, Portion, stored_frames
from headrace.server.service import Service
from headrace.wire.documents import FRAMES_TYPE
from headrace.wire.filters import EVERYTHING

__all__ = ["FEED", "poll", "read", "stream"]


async def read(service: Service, call: Call) -> Response:
    """Answer a range: as JSON, or as stored frames."""
    query = call.query(parameters.RangeQuery)
    start, wanted = query.start(), query.wanted()
    known = _known(call.headers(parameters.PlaceHeaders).known(), start)
    last = query.end_sequence_id if query.end_sequence_id is not UNSET else None
    limit = query.limit if query.limit is not UNSET else None
    feed = call.path[FEED]
    if FRAMES_TYPE not in call.request.headers.get("accept", ""):
        portion = Portion(limit or LIMIT_DEFAULT, query.limit_bytes, wanted)
        return RenderedResponse(await service.entries(feed, start, last, known, portion))
    if wanted != EVERYTHING:
        named = next(name for name in ("changed", "key", "shard") if getattr(query, name) is not UNSET)
        raise wrong(named, "stored frames are whole and can't be filtered; ask for JSON")
    piece = await service.read_range(
        feed, start, last, limit or sys.maxsize, known, bytes_max=query.limit_bytes
    )
    headers = {
        "Headrace-Incarnation": piece.tail.incarnation,
        "Headrace-Head-Sequence-Id": str(piece.tail.head),
        "Headrace-Oldest-Sequence-Id": str(piece.tail.oldest),
    }
    return Response(stored_frames(piece.frames), headers=headers, media_type=FRAMES_TYPE)


async def poll(service: Service, call: Call) -> Response:
    """Answer a long poll."""
    query = call.query(parameters.PollQuery)
    start = query.start()
    feed, portion = call.path[FEED], Portion(query.limit, query.limit_bytes, query.wanted())
    with service.traffic.poll_open():
        rendered = await service.poll(
            feed,
            query.listener_id,
            start,
            timeout_ms=query.timeout_ms,
            known=_known(call.headers(parameters.PlaceHeaders).known(), start),
            portion=portion,
            who=claimant_of(call.grant),
        )
    if await call.request.is_disconnected():  # nobody is given anything
        return RenderedResponse(rendered)
    return RenderedResponse(rendered, partial(service.note_given, feed, query.listener_id, portion, rendered))


async def stream(service: Service, call: Call) -> Response:
    """Answer with the feed as Server-Sent Events; what is refused is refused before the first of them."""
    query = call.query(parameters.StreamQuery)
    headers = call.headers(parameters.StreamHeaders)
    start = query.start(headers)
    follower = await service.follow(
        call.path[FEED],
        query.listener_id,
        start,
        known=_known(query.known(headers), start),
        portion=Portion(bytes_max=STREAM_BYTES_MAX, wanted=query.wanted()),
        who=claimant_of(call.grant),
    )
    return EventStream(follower, call.request, call.streams, service.traffic)


def _known(known: Known, start: Start) -> Known:
    if isinstance(start, SinceTime) and known.lsn is not None:
        raise wrong("Headrace-Lsn", "is the LSN at a sequence id, and after-time names none")
    return known
