"""The change feed API's route table (RFD 5), and the handlers: parse, call one use case, render."""

from __future__ import annotations

import sys
from typing import Final

import msgspec
from starlette.responses import Response

from headrace import errors
from headrace.server import rendering
from headrace.server.decoding import decode_entries
from headrace.server.http import parameters
from headrace.server.http.bodies import JSON_TYPE, NDJSON_TYPE, content_type, read_body
from headrace.server.http.openapi import openapi_document
from headrace.server.http.table import Call, Route
from headrace.server.metrics.exposition import METRICS_TYPE
from headrace.server.reading import Piece
from headrace.server.service import Service
from headrace.server.workload import run_sized
from headrace.wire import documents as doc
from headrace.wire.retention_documents import RetentionView

_FEED: Final = "change-feed-id"
_ENTRY_BYTES: Final = 512
"""A guess at an entry's size, before anything is decoded."""


async def _register_publisher(service: Service, call: Call) -> Response:
    return _document(await service.register_publisher(await call.document(doc.RegisterPublisher)))


async def _append(service: Service, call: Call) -> Response:
    try:
        terms = call.headers(parameters.PostHeaders).terms()
        media_type = content_type(call.request, JSON_TYPE, NDJSON_TYPE)
        body = await read_body(call.request)
        entries = await run_sized(
            len(body) // _ENTRY_BYTES, decode_entries, body, ndjson=media_type == NDJSON_TYPE
        )
        return _document(await service.append(call.path[_FEED], entries, terms))
    except errors.HeadraceError as refusal:  # what is no append, too, says what may be thought of it
        raise errors.complete_refusal(refusal) from None


async def _read(service: Service, call: Call) -> Response:
    query = call.query(parameters.RangeQuery)
    known = call.headers(parameters.PlaceHeaders).known()
    last = query.end_sequence_id if query.end_sequence_id is not msgspec.UNSET else None
    as_frames = doc.FRAMES_TYPE in call.request.headers.get("accept", "")
    limit = sys.maxsize if as_frames else parameters.LIMIT_DEFAULT
    if query.limit is not msgspec.UNSET:
        limit = query.limit
    piece = await service.read_range(call.path[_FEED], query.beg_sequence_id, last, limit, known)
    if not as_frames:
        return await _changes_list(piece, limit)
    headers = {
        "Headrace-Incarnation": piece.tail.incarnation,
        "Headrace-Head-Sequence-Id": str(piece.tail.head),
        "Headrace-Oldest-Sequence-Id": str(piece.tail.oldest),
    }
    return Response(rendering.stored_frames(piece.frames), headers=headers, media_type=doc.FRAMES_TYPE)


async def _tail(service: Service, call: Call) -> Response:
    producer = call.query(parameters.TailQuery).producer
    return _document(
        await service.tail(call.path[_FEED], producer if producer is not msgspec.UNSET else None)
    )


async def _settings(service: Service, call: Call) -> Response:
    return _document(await service.settings(call.path[_FEED]))


async def _put_settings(service: Service, call: Call) -> Response:
    return _document(await service.configure(call.path[_FEED], await call.document(doc.ChangeSettings)))


async def _register_listener(service: Service, call: Call) -> Response:
    return _document(await service.register_listener(await call.document(doc.RegisterListener)))


async def _poll(service: Service, call: Call) -> Response:
    query = call.query(parameters.PollQuery)
    piece = await service.poll(
        call.path[_FEED],
        query.listener_id,
        query.after_sequence_id,
        timeout_ms=query.timeout_ms,
        limit=query.limit,
        known=call.headers(parameters.PlaceHeaders).known(),
    )
    return await _changes_list(piece, query.limit)


async def _put_position(service: Service, call: Call) -> Response:
    place = await call.document(doc.PositionIn)
    return _document(await service.put_position(call.path["listener-id"], call.path[_FEED], place))


async def _feeds(service: Service, call: Call) -> Response:
    return _document(await service.feeds())


async def _feed(service: Service, call: Call) -> Response:
    return _document(await service.feed(call.path[_FEED]))


async def _retention(service: Service, call: Call) -> Response:
    return _document(await service.explain_retention())


async def _metrics(service: Service, call: Call) -> Response:
    return Response(await service.metrics(), headers={"Content-Type": METRICS_TYPE})


async def _alarms(service: Service, call: Call) -> Response:
    return _document(await service.alarms())


async def _release(service: Service, call: Call) -> Response:
    return _document(await service.release(call.path["agent-id"]))


async def _healthz(service: Service, call: Call) -> Response:
    return _document(service.health())


async def _readyz(service: Service, call: Call) -> Response:
    health = service.readiness()
    return _document(health, 200 if health.status == "ok" else 503)


async def _openapi(service: Service, call: Call) -> Response:
    return _json(msgspec.json.encode(openapi_document(ROUTES)))


async def _changes_list(piece: Piece, limit: int) -> Response:
    entries = min(limit, sum(frame.header.count for frame in piece.frames))
    return _json(await run_sized(entries, rendering.changes_list, piece, limit))


def _document(document: msgspec.Struct, status: int = 200) -> Response:
    return _json(msgspec.json.encode(document), status)


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type=JSON_TYPE)


_WRITE: Final = (errors.StoreUnavailable, errors.WriterStopped, errors.ClockLead)
_READ: Final = (
    errors.FeedNotFound, errors.FeedRecreated, errors.BeyondHead, errors.SequenceNotAvailable, errors.JournalCorrupt,
)  # fmt: skip

ROUTES: Final = (
    Route(
        method="POST", path="/publishers/register", handler=_register_publisher,
        summary="Claim a feed for a publisher; the feed is made if it isn't there",
        bodies=(doc.RegisterPublisher,), answer=doc.PublisherRegistered,
        refusals=(errors.FeedOwned, errors.TooLarge, *_WRITE),
    ),
    Route(
        method="POST", path="/publishers/{agent-id}/release", handler=_release,
        summary="Lift a publisher's quarantine and clear its alarm",
        answer=doc.Released, refusals=(errors.NotRegistered, *_WRITE),
    ),
    Route(
        method="POST", path="/feeds/{change-feed-id}/entries", handler=_append,
        summary="Append one or several entries atomically; answered once they are durable",
        headers=parameters.PostHeaders, bodies=(doc.EntryIn, doc.EntriesIn), ndjson=True, answer=doc.Appended,
        refusals=(
            errors.FeedNotFound, errors.NotRegistered, errors.Fenced, errors.Quarantined, errors.DuplicateEntry,
            errors.SequenceGap, errors.OffsetMismatch, errors.ExpectedOffsetRequired, errors.FeedRecreated,
            errors.TooLarge, errors.JournalCorrupt, *_WRITE,
        ),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/entries", handler=_read,
        summary="An inclusive range of entries, as JSON or as stored frames",
        query=parameters.RangeQuery, headers=parameters.PlaceHeaders, answer=doc.ChangesList, frames=True,
        refusals=_READ,
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/tail", handler=_tail,
        summary="Where a feed ends, and a producer's last append",
        query=parameters.TailQuery, answer=doc.Tail, refusals=(errors.FeedNotFound, errors.JournalCorrupt),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/settings", handler=_settings, answer=doc.FeedSettings,
        summary="A feed's settings", refusals=(errors.FeedNotFound,),
    ),
    Route(
        method="PUT", path="/feeds/{change-feed-id}/settings", handler=_put_settings,
        summary="Change a feed's settings; what is left out stays as it is",
        bodies=(doc.ChangeSettings,), answer=doc.FeedSettings,
        refusals=(errors.FeedNotFound, errors.TooLarge, *_WRITE),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/poll", handler=_poll,
        summary="Long poll: the entries after a sequence id, as soon as there are any",
        query=parameters.PollQuery, headers=parameters.PlaceHeaders, answer=doc.ChangesList,
        refusals=(*_READ, errors.NotRegistered, errors.MetadataCorrupt),
    ),
    Route(
        method="POST", path="/listeners/register", handler=_register_listener,
        summary="Register a listener with a feed",
        bodies=(doc.RegisterListener,), answer=doc.ListenerRegistered,
        refusals=(errors.FeedNotFound, errors.TooLarge),
    ),
    Route(
        method="PUT", path="/listeners/{listener-id}/feeds/{change-feed-id}/position", handler=_put_position,
        summary="Report a listener's durable place",
        bodies=(doc.PositionIn,), answer=doc.Position,
        refusals=(
            errors.FeedNotFound, errors.NotRegistered, errors.FeedRecreated, errors.BeyondHead, errors.TooLarge,
            errors.JournalCorrupt, errors.MetadataCorrupt,
        ),
    ),
    Route(
        method="GET", path="/feeds", handler=_feeds, answer=doc.FeedList,
        summary="All feeds: bounds, owner, listeners and subscribers with their lag",
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}", handler=_feed, answer=doc.FeedView,
        summary="One feed: bounds, owner, listeners and subscribers with their lag", refusals=(errors.FeedNotFound,),
    ),
    Route(
        method="GET", path="/retention", handler=_retention, answer=RetentionView,
        summary="What retention keeps and would drop now, who holds it, and when the rest goes",
        refusals=(errors.StoreUnavailable, errors.JournalCorrupt),
    ),
    Route(
        method="GET", path="/alarms", handler=_alarms, answer=doc.AlarmList,
        summary="What needs a person: the alarms that stand, then the newest cleared ones",
    ),
    Route(
        method="GET", path="/healthz", handler=_healthz, answer=doc.Health, summary="The process answers",
    ),
    Route(
        method="GET", path="/readyz", handler=_readyz, answer=doc.Health, not_ready=True,
        summary="Whether appends are taken, and if not, why",
    ),
    Route(
        method="GET", path="/metrics", handler=_metrics, answer=None, media_type=METRICS_TYPE,
        summary="Metrics in Prometheus' text format", refusals=(errors.StoreUnavailable, errors.JournalCorrupt),
    ),
    Route(
        method="GET", path="/openapi.json", handler=_openapi, answer=None, summary="This description",
    ),
)  # fmt: skip
"""Every call. One more is one line here (and its handler): dispatch and OpenAPI both read this table."""
