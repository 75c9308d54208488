"""The handlers of what a consumer asks about the schemas of a feed's tables."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.server.http.bodies import JSON_TYPE
from headrace.server.http.reading import FEED
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.documents import U64, Document

LIMIT_MAX: Final = 1_000


class SchemasQuery(Document):
    """``GET /feeds/{id}/schemas``."""

    after: Annotated[
        U64, Meta(description="Only those above this sequence id: of the last one of the page before.")
    ] = 0
    limit: Annotated[int, Meta(ge=1, le=LIMIT_MAX, description="Most schemas in the answer.")] = LIMIT_MAX


async def list_schemas(service: Service, call: Call) -> Response:
    """Answer which schemas there are."""
    query = call.query(SchemasQuery)
    document = await service.schemas.newest(call.path[FEED], query.after, query.limit)
    return Response(msgspec.json.encode(document), media_type=JSON_TYPE)


async def read_schema(service: Service, call: Call) -> Response:
    """Answer one schema, byte for byte as it stands in the feed."""
    database, table, version = (call.path[name] for name in ("database", "table", "version"))
    return Response(
        await service.schemas.value(call.path[FEED], database, table, version), media_type=JSON_TYPE
    )
