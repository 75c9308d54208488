"""The page of one entry's life: why has a listener not seen it?"""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from headrace.entries.feed import check_feed_id
from headrace.errors import InvalidRequest
from headrace.server.console.drawing import feed_path, page
from headrace.server.http.parameters import SEQUENCE_ID_MAX
from headrace.server.http.table import FEED, Call
from headrace.server.service import Service
from headrace.wire.documents import Document

_KEY_CHARS_MAX = 2_000


class TraceQuery(Document):
    """``GET /console/feeds/{id}/trace``: the entry, or else the newest with this key. Text, as a form's fields are."""

    sequence_id: Annotated[str, Meta(max_length=30, description="The entry.")] = ""
    key: Annotated[str, Meta(max_length=_KEY_CHARS_MAX, description="The newest entry with this key.")] = ""


class AskQuery(TraceQuery):
    """``GET /console/trace``: what its form sends."""

    feed: Annotated[str, Meta(max_length=300, description="The feed.")] = ""


async def ask_trace(service: Service, call: Call) -> Response:
    """Ask which entry's life is to be shown, or lead there."""
    query = call.query(AskQuery)
    if query.feed and (query.sequence_id.strip() or query.key):
        answer = RedirectResponse(f"{feed_path(check_feed_id(query.feed))}/trace", 303)
        asked = (
            {"sequence-id": query.sequence_id.strip()} if query.sequence_id.strip() else {"key": query.key}
        )
        answer.headers["Location"] += f"?{urlencode(asked)}"
        return answer
    views = (await service.feeds(call.grant)).feeds
    names = sorted(
        one.change_feed_id for one in views if call.grant.may_listen(one.change_feed_id, one.tenant_id)
    )
    return await page(service, call, "trace_ask.html", feeds=names, query=query)


async def show_trace(service: Service, call: Call) -> Response:
    """Show what became of an entry."""
    query, feed = call.query(TraceQuery), call.path[FEED]
    if query.sequence_id.strip():
        trace = await service.trace(feed, _sequence_id(query.sequence_id.strip()), call.grant)
    elif query.key:
        trace = await service.trace_key(feed, query.key.encode(), call.grant)
    else:
        return RedirectResponse(f"/console/trace?{urlencode({'feed': feed})}", 303)
    return await page(service, call, "trace.html", trace=trace, query=query)


def _sequence_id(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= SEQUENCE_ID_MAX):
        raise InvalidRequest(f"{text[:40]!r} is no sequence id", hint="Write a whole number from 1 on.")
    return int(text)
