"""The handler of what people ask about one entry."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace.server.decoding import wrong
from headrace.server.http.bodies import JSON_TYPE
from headrace.server.http.reading import FEED
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.documents import Document, SequenceId


class TraceQuery(Document):
    """``GET /feeds/{id}/trace``: exactly one of the two."""

    sequence_id: Annotated[SequenceId, Meta(description="The entry.")] | UnsetType = UNSET
    key: (
        Annotated[str, Meta(description="The newest entry with this key, by a bounded search.")] | UnsetType
    ) = UNSET


async def trace(service: Service, call: Call) -> Response:
    """Answer what became of an entry."""
    query, feed = call.query(TraceQuery), call.path[FEED]
    if (query.sequence_id is UNSET) == (query.key is UNSET):
        raise wrong("sequence-id", "give this or key, and not both")
    if query.sequence_id is not UNSET:
        found = await service.trace(feed, query.sequence_id, call.grant)
    elif query.key is not UNSET and query.key:
        found = await service.trace_key(feed, query.key.encode(), call.grant)
    else:
        raise wrong("key", "is empty")
    return Response(msgspec.json.encode(found), media_type=JSON_TYPE)
