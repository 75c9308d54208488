"""The handlers of what a listener asks for that takes a snapshot: the lease, and where the snapshot is."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace.server.guard import claimant_of
from headrace.server.http.bodies import JSON_TYPE
from headrace.server.http.reading import FEED
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.server.snapshots import SnapshotAsk
from headrace.wire.documents import U64, Document, Name
from headrace.wire.hydration_documents import TakeHydration

LISTENER = "listener-id"


class SnapshotQuery(Document):
    """``GET /feeds/{id}/snapshot``."""

    listener_id: Annotated[Name, Meta(description="Who takes it; the ticket is good for it alone.")]
    at_least: (
        Annotated[U64, Meta(description="The least sequence id that it must stand for.")] | UnsetType
    ) = UNSET
    snapshot_id: (
        Annotated[Name, Meta(description="Exactly this one: how a fetch that was cut goes on.")] | UnsetType
    ) = UNSET


async def take_hydration(service: Service, call: Call) -> Response:
    """Take or renew a lease."""
    ask = await call.document(TakeHydration)
    who = claimant_of(call.grant)
    lease = await service.hydrations.take(call.path[LISTENER], call.path[FEED], ask, who)
    return Response(msgspec.json.encode(lease), media_type=JSON_TYPE)


async def end_hydration(service: Service, call: Call) -> Response:
    """End a lease."""
    await service.hydrations.end(call.path[LISTENER], call.path[FEED], claimant_of(call.grant))
    return Response(status_code=204)


async def find_snapshot(service: Service, call: Call) -> Response:
    """Answer with the publisher's own address."""
    query = call.query(SnapshotQuery)
    ask = SnapshotAsk(
        query.listener_id,
        query.at_least if query.at_least is not UNSET else None,
        query.snapshot_id if query.snapshot_id is not UNSET else None,
    )
    address = await service.snapshots.address(call.path[FEED], ask)
    return Response(status_code=307, headers={"Location": address, "Cache-Control": "no-store"})
