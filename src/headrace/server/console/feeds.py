"""The pages of feeds: all of them with rate and head, and one with its live tail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, NamedTuple

from msgspec import Meta
from starlette.responses import Response

from headrace.errors import HeadraceError
from headrace.server.console.consumers import lag_views
from headrace.server.console.drawing import page
from headrace.server.console.signing import check_session
from headrace.server.console.tail import SHOWN_MAX, ShownEntry, events_of, portion_of, shown_list
from headrace.server.http.event_stream import EventStream
from headrace.server.http.table import FEED, Call
from headrace.server.reading import Known
from headrace.server.service import Service
from headrace.wire.documents import U64, Document, FeedView

FEEDS_MAX: Final = 500
"""Feeds on one page; the search finds the others."""

_Key = Annotated[str, Meta(max_length=2_000, description="Only entries with this key.")]


class FeedsQuery(Document):
    """``GET /console``."""

    search: Annotated[str, Meta(max_length=200, description="A part of the names.")] = ""


class FeedQuery(Document):
    """``GET /console/feeds/{id}``."""

    key: _Key = ""


class TailQuery(Document):
    """``GET /console/feeds/{id}/tail``."""

    after: U64
    key: _Key = ""


class ListedFeed(NamedTuple):
    """A feed in the list. ``rate``: entries a second, None if not known yet. ``furthest``: the largest lag in entries."""

    view: FeedView
    rate: float | None
    furthest: int | None


class Newest(NamedTuple):
    """A feed's newest entries, newest first. ``after``: where its tail goes on. ``scanned_from``: the oldest sequence id
    that was looked at for a key. ``trouble``: why there are none.
    """

    entries: Sequence[ShownEntry]
    after: int
    scanned_from: int | None = None
    trouble: HeadraceError | None = None


async def list_feeds(service: Service, call: Call) -> Response:
    """Show all feeds that the caller may see."""
    search = call.query(FeedsQuery).search
    views = (await service.feeds(call.grant)).feeds
    found = [one for one in views if search.lower() in one.change_feed_id.lower()]
    found.sort(key=lambda one: one.change_feed_id)
    listed = [_listed(service, view) for view in found[:FEEDS_MAX]]
    return await page(
        service,
        call,
        "feeds.html",
        feeds=listed,
        found=len(found),
        total=len(views),
        search=search,
    )


async def show_feed(service: Service, call: Call) -> Response:
    """Show one feed, and its newest entries if the caller may read it; of a key, those that a search finds."""
    key, feed = call.query(FeedQuery).key, call.path[FEED]
    view = await service.feed(feed, call.grant)
    reads = call.grant.may_listen(feed, view.tenant_id)
    newest = await _found(service, call, view, key) if reads else Newest([], view.head_sequence_id)
    return await page(
        service,
        call,
        "feed.html",
        view=view,
        rate=_listed(service, view).rate,
        key=key,
        reads=reads,
        newest=newest,
        consumers=lag_views(service, [view]),
        publishers=[one for one in await service.publishers(call.grant) if one.feed == feed],
    )


async def tail(service: Service, call: Call) -> Response:
    """Answer with what is appended, as it comes, while the session lasts."""
    query = call.query(TailQuery)
    follower = await service.watch(call.path[FEED], query.after, portion_of(query.key))
    check = partial(check_session, call)
    return EventStream(
        follower, call.request, call.streams, service.traffic, events_of=events_of, check=check
    )


def _listed(service: Service, view: FeedView) -> ListedFeed:
    listeners = [one.lag_entries for one in view.listeners if one.lag_entries is not None]
    lags = [*listeners, *(one.lag_entries for one in view.subscribers)]
    return ListedFeed(view, service.rate_of(view), max(lags, default=None))


async def _found(service: Service, call: Call, view: FeedView, key: str) -> Newest:
    """What can't be read is said on the page: the rest of it stands."""
    try:
        return await (_newest_with(service, call, view, key) if key else _newest(service, view))
    except HeadraceError as error:
        return Newest([], view.head_sequence_id, trouble=error)


async def _newest(service: Service, view: FeedView) -> Newest:
    head = view.head_sequence_id
    after = max(view.oldest_sequence_id - 1, head - SHOWN_MAX)
    rendered = await service.entries(view.change_feed_id, after, head, Known(), portion_of(""))
    return Newest(shown_list(rendered.content)[::-1], rendered.last_sequence_id)


async def _newest_with(service: Service, call: Call, view: FeedView, key: str) -> Newest:
    feed = view.change_feed_id
    trace = await service.trace_key(feed, key.encode(), call.grant)
    entries: list[ShownEntry] = []
    for place in trace.same_key:
        rendered = await service.entries(feed, place - 1, place, Known(), portion_of(""))
        entries += shown_list(rendered.content)
    return Newest(entries, trace.head_sequence_id, scanned_from=trace.scanned_from)
