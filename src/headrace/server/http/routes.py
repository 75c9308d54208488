"""The change feed API's route table (RFD 5), and the handlers: parse, call one use case, render."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from headrace import errors
from headrace.access.grants import EVERYTHING
from headrace.runtime.exposition import METRICS_TYPE
from headrace.runtime.runbook import PAGE_TYPE
from headrace.server.decoding import decode_entries
from headrace.server.guard import May, claimant_of
from headrace.server.http import parameters, reading, reports, runbook, schemas, snapshots, tracing
from headrace.server.http.bodies import BODY_BYTES_MAX, JSON_TYPE, NDJSON_TYPE, content_type
from headrace.server.http.event_stream import EVENTS_TYPE
from headrace.server.http.openapi import openapi_document
from headrace.server.http.table import Call, Route
from headrace.server.service import Service
from headrace.server.workload import run_sized
from headrace.wire import documents as doc
from headrace.wire.hydration_documents import HydrationLease, TakeHydration
from headrace.wire.report_documents import Reported, ReportIn, ReportList
from headrace.wire.retention_documents import RetentionView, Rotated
from headrace.wire.schema_documents import SchemaList
from headrace.wire.trace_documents import Trace

_ENTRY_BYTES: Final = 512
"""A guess at an entry's size, before anything is decoded."""


async def _register_publisher(service: Service, call: Call) -> Response:
    ask = await call.document(doc.RegisterPublisher)
    return _document(await service.register_publisher(ask, call.grant))


async def _append(service: Service, call: Call) -> Response:
    try:
        terms = call.headers(parameters.PostHeaders).terms()
        media_type = content_type(call.request, JSON_TYPE, NDJSON_TYPE)
        body = await call.body()
        entries = await run_sized(
            len(body) // _ENTRY_BYTES, decode_entries, body, ndjson=media_type == NDJSON_TYPE
        )
        return _document(await service.append(call.path[reading.FEED], entries, terms))
    except errors.HeadraceError as refusal:  # what is no append, too, says what may be thought of it
        raise errors.complete_refusal(refusal) from None


async def _tail(service: Service, call: Call) -> Response:
    producer = call.query(parameters.TailQuery).producer
    return _document(
        await service.tail(call.path[reading.FEED], producer if producer is not msgspec.UNSET else None)
    )


async def _settings(service: Service, call: Call) -> Response:
    return _document(await service.settings(call.path[reading.FEED]))


async def _put_settings(service: Service, call: Call) -> Response:
    return _document(
        await service.configure(call.path[reading.FEED], await call.document(doc.ChangeSettings))
    )


async def _register_listener(service: Service, call: Call) -> Response:
    ask = await call.document(doc.RegisterListener)
    await call.check_feed(service, ask.change_feed_id)
    return _document(await service.register_listener(ask, claimant_of(call.grant)))


async def _put_position(service: Service, call: Call) -> Response:
    place = await call.document(doc.PositionIn)
    who = claimant_of(call.grant)
    return _document(
        await service.put_position(call.path["listener-id"], call.path[reading.FEED], place, who)
    )


async def _feeds(service: Service, call: Call) -> Response:
    return _document(await service.feeds(call.grant))


async def _feed(service: Service, call: Call) -> Response:
    return _document(await service.feed(call.path[reading.FEED], call.grant))


async def _retention(service: Service, call: Call) -> Response:
    return _document(await service.explain_retention())


async def _rotate(service: Service, call: Call) -> Response:
    return _document(service.rotate_streams())


async def _metrics(service: Service, call: Call) -> Response:
    return Response(await service.metrics(), headers={"Content-Type": METRICS_TYPE})


async def _alarms(service: Service, call: Call) -> Response:
    return _document(await service.alarms())


async def _release(service: Service, call: Call) -> Response:
    return _document(await service.release(call.path["agent-id"], call.grant))


async def _healthz(service: Service, call: Call) -> Response:
    return _document(service.health())


async def _readyz(service: Service, call: Call) -> Response:
    health = service.readiness()
    return _document(health, 200 if health.status == "ok" else 503)


async def _openapi(service: Service, call: Call) -> Response:
    document = openapi_document(ROUTES, authenticated=call.grant != EVERYTHING)
    return _json(msgspec.json.encode(document))


def _document(document: msgspec.Struct, status: int = 200) -> Response:
    return _json(msgspec.json.encode(document), status)


def _json(content: bytes, status: int = 200) -> Response:
    return Response(content, status, media_type=JSON_TYPE)


_WRITE: Final = (errors.WriterStopped, errors.ClockLead, errors.DiskReserve)
_START: Final = (
    errors.FeedNotFound, errors.FeedRecreated, errors.BeyondHead, errors.SequenceNotAvailable, errors.JournalCorrupt,
)  # fmt: skip
_READ: Final = (*_START, errors.SequenceLost)
"""A stream that comes to what is lost has begun: it says so by an event."""
_LISTENER: Final = (errors.NotRegistered, errors.ListenerTaken, errors.MetadataCorrupt)

ROUTES: Final = (
    Route(
        method="POST", path="/publishers/register", may=May.PUBLISH, handler=_register_publisher,
        summary="Claim a feed for a publisher; the feed is made if it isn't there",
        bodies=(doc.RegisterPublisher,), answer=doc.PublisherRegistered,
        refusals=(errors.FeedOwned, errors.JournalCorrupt, errors.MetadataCorrupt, *_WRITE),
    ),
    Route(
        method="POST", path="/publishers/{agent-id}/release", may=May.ADMINISTER, handler=_release,
        summary="Lift a publisher's quarantine and clear its alarm",
        answer=doc.Released, refusals=(errors.NotRegistered, *_WRITE),
    ),
    Route(
        method="POST", path="/feeds/{change-feed-id}/entries", may=May.PUBLISH, handler=_append,
        summary="Append one or several entries atomically; answered once they are durable",
        headers=parameters.PostHeaders, bodies=(doc.EntryIn, doc.EntriesIn), ndjson=True, body_bytes_max=BODY_BYTES_MAX,
        answer=doc.Appended,
        refusals=(
            errors.FeedNotFound, errors.NotRegistered, errors.Fenced, errors.Quarantined, errors.DuplicateEntry,
            errors.SequenceGap, errors.OffsetMismatch, errors.ExpectedOffsetRequired, errors.FeedRecreated,
            errors.JournalCorrupt, *_WRITE,
        ),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/entries", may=May.LISTEN, handler=reading.read,
        summary="An inclusive range of entries, as JSON or as stored frames",
        query=parameters.RangeQuery, headers=parameters.PlaceHeaders, answer=doc.ChangesList, frames=True,
        refusals=_READ,
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/tail", may=May.SEE, handler=_tail,
        summary="Where a feed ends, and a producer's last append",
        query=parameters.TailQuery, answer=doc.Tail, refusals=(errors.FeedNotFound, errors.JournalCorrupt),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/settings", may=May.SEE, handler=_settings, answer=doc.FeedSettings,
        summary="A feed's settings", refusals=(errors.FeedNotFound, errors.JournalCorrupt),
    ),
    Route(
        method="PUT", path="/feeds/{change-feed-id}/settings", may=May.PUBLISH, handler=_put_settings,
        summary="Change a feed's settings; what is left out stays as it is",
        bodies=(doc.ChangeSettings,), answer=doc.FeedSettings,
        refusals=(errors.FeedNotFound, errors.JournalCorrupt, *_WRITE),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/poll", may=May.LISTEN, handler=reading.poll,
        summary="Long poll: the entries after a sequence id, as soon as there are any",
        query=parameters.PollQuery, headers=parameters.PlaceHeaders, answer=doc.ChangesList,
        refusals=(*_READ, *_LISTENER),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/stream", may=May.LISTEN, handler=reading.stream,
        summary="The entries after a sequence id as Server-Sent Events, then each as it comes",
        query=parameters.StreamQuery, headers=parameters.StreamHeaders, answer=None, media_type=EVENTS_TYPE,
        refusals=(*_START, *_LISTENER),
    ),
    Route(
        method="POST", path="/listeners/register", may=May.LISTEN, handler=_register_listener,
        summary="Register a listener with a feed",
        bodies=(doc.RegisterListener,), answer=doc.ListenerRegistered,
        refusals=(
            errors.FeedNotFound, errors.ListenersTooMany, errors.ListenerTaken,
            errors.JournalCorrupt, errors.MetadataCorrupt,
        ),
    ),
    Route(
        method="PUT", path="/listeners/{listener-id}/feeds/{change-feed-id}/position", may=May.LISTEN, handler=_put_position,
        summary="Report a listener's durable place",
        bodies=(doc.PositionIn,), answer=doc.Position,
        refusals=(
            errors.FeedNotFound, errors.FeedRecreated, errors.BeyondHead, errors.JournalCorrupt, *_LISTENER,
        ),
    ),
    Route(
        method="POST", path="/listeners/{listener-id}/feeds/{change-feed-id}/hydration", may=May.LISTEN,
        handler=snapshots.take_hydration, bodies=(TakeHydration,), answer=HydrationLease,
        summary="Take or renew a hydration lease: retention keeps what the listener needs next",
        refusals=(errors.FeedNotFound, errors.JournalCorrupt, *_LISTENER),
    ),
    Route(
        method="DELETE", path="/listeners/{listener-id}/feeds/{change-feed-id}/hydration", may=May.LISTEN,
        handler=snapshots.end_hydration, answer=None, status=204, summary="End a hydration lease",
        refusals=(errors.FeedNotFound, errors.JournalCorrupt, errors.ListenerTaken, errors.MetadataCorrupt),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/snapshot", may=May.LISTEN, handler=snapshots.find_snapshot, answer=None,
        status=307, query=snapshots.SnapshotQuery, summary="Where the publisher serves its snapshot, with a ticket for it",
        refusals=(
            errors.FeedNotFound, errors.NoSnapshot, errors.SnapshotForbidden, errors.JournalCorrupt,
            errors.MetadataCorrupt,
        ),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/schemas", may=May.SEE, handler=schemas.list_schemas,
        query=schemas.SchemasQuery, answer=SchemaList, summary="The newest schema of each table, dropped or not",
        refusals=(errors.FeedNotFound, errors.JournalCorrupt),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/schemas/{database}/{table}/{version}", may=May.SEE,
        handler=schemas.read_schema, answer=None, summary="A table's schema as it stands in the feed, dropped or not",
        refusals=(errors.FeedNotFound, errors.SchemaNotFound, errors.JournalCorrupt, errors.MetadataCorrupt),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}/trace", may=May.LISTEN, handler=tracing.trace, query=tracing.TraceQuery,
        answer=Trace, summary="One entry's life: when it was appended, durable, delivered to whom, and acknowledged",
        refusals=(errors.FeedNotFound, errors.JournalCorrupt, errors.ServerBusy),
    ),
    Route(
        method="GET", path="/feeds", may=May.LIST, handler=_feeds, answer=doc.FeedList,
        summary="All feeds: bounds, owner, listeners and subscribers with their lag",
        refusals=(errors.JournalCorrupt,),
    ),
    Route(
        method="GET", path="/feeds/{change-feed-id}", may=May.SEE, handler=_feed, answer=doc.FeedView,
        summary="One feed: bounds, owner, listeners and subscribers with their lag",
        refusals=(errors.FeedNotFound, errors.JournalCorrupt),
    ),
    Route(
        method="GET", path="/retention", may=May.ADMINISTER, handler=_retention, answer=RetentionView,
        summary="What retention keeps and would drop now, who holds it, and when the rest goes",
    ),
    Route(
        method="POST", path="/streams/rotate", may=May.ADMINISTER, handler=_rotate, answer=Rotated, from_memory=True,
        summary="Ask the subscribers of this server's open streams to begin a new file",
    ),
    Route(
        method="GET", path="/alarms", may=May.ADMINISTER, handler=_alarms, answer=doc.AlarmList,
        summary="What needs a person: the alarms that stand, then the newest cleared ones",
    ),
    Route(
        method="PUT", path="/reports/{kind}/{name}", may=May.LIST, handler=reports.put_report,
        bodies=(ReportIn,), answer=Reported, summary="What a long-running process says of itself, every few seconds",
    ),
    Route(
        method="DELETE", path="/reports/{kind}/{name}", may=May.ADMINISTER, handler=reports.remove_report, answer=None,
        status=204, summary="Forget a process that is gone for good, and clear its alarms",
    ),
    Route(
        method="GET", path="/reports", may=May.ADMINISTER, handler=reports.list_reports, answer=ReportList,
        summary="What every agent, capture, listener, backup and pipeline last said of itself",
    ),
    Route(
        method="GET", path="/healthz", may=May.OPEN, handler=_healthz, answer=doc.Health, summary="The process answers",
    ),
    Route(
        method="GET", path="/readyz", may=May.OPEN, handler=_readyz, answer=doc.Health, not_ready=True,
        summary="Whether appends are taken, and if not, why",
    ),
    Route(
        method="GET", path="/metrics", may=May.ADMINISTER, handler=_metrics, answer=None, media_type=METRICS_TYPE,
        summary="Metrics in Prometheus' text format", refusals=(errors.JournalCorrupt,),
    ),
    Route(
        method="GET", path="/runbook/{code}", may=May.OPEN, handler=runbook.get_page, answer=None, media_type=PAGE_TYPE,
        summary="What a code of an error or an alarm means, and what to do", refusals=(errors.RouteNotFound,),
    ),
    Route(
        method="GET", path="/openapi.json", may=May.OPEN, handler=_openapi, answer=None, summary="This description",
    ),
)  # fmt: skip
"""Every call. One more is one line here (and its handler): dispatch and OpenAPI both read this table."""
