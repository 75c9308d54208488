"""Every page of the console: address, who may see it, and what makes it. One more is one line here, and its handler."""

from __future__ import annotations

from functools import partial
from typing import Final

from headrace.server.console import (
    consumers,
    feeds,
    operations,
    processes,
    publishers,
    runbook,
    signing,
    static_files,
    tracing,
)
from headrace.server.guard import May
from headrace.server.http.event_stream import EVENTS_TYPE
from headrace.server.http.table import Route

_page: Final = partial(Route, method="GET", answer=None, media_type="text/html")
_form: Final = partial(Route, method="POST", answer=None, media_type="text/html", status=303)

PAGES: Final = (
    _page(path="/console", may=May.LIST, handler=feeds.list_feeds, summary="All feeds", query=feeds.FeedsQuery),
    _page(path="/console/", may=May.OPEN, handler=signing.go_home, summary="The same"),
    _page(
        path="/console/feeds/{change-feed-id}", may=May.SEE, handler=feeds.show_feed, query=feeds.FeedQuery,
        summary="One feed, with its live tail",
    ),
    Route(
        method="GET", path="/console/feeds/{change-feed-id}/tail", may=May.LISTEN, handler=feeds.tail, answer=None,
        media_type=EVENTS_TYPE, query=feeds.TailQuery, summary="What is appended, as it comes",
    ),
    _page(
        path="/console/feeds/{change-feed-id}/trace", may=May.LISTEN, handler=tracing.show_trace,
        query=tracing.TraceQuery, summary="One entry's life",
    ),
    _page(
        path="/console/trace", may=May.LIST, handler=tracing.ask_trace, query=tracing.AskQuery,
        summary="Which entry's life is to be shown",
    ),
    _page(
        path="/console/publishers", may=May.LIST, handler=publishers.list_publishers, query=publishers.PublishersQuery,
        summary="Who appends",
    ),
    _form(
        path="/console/publishers/{agent-id}/release", may=May.ADMINISTER, handler=publishers.release,
        summary="Lift a publisher's quarantine",
    ),
    _page(
        path="/console/consumers", may=May.LIST, handler=consumers.list_consumers,
        summary="Listeners and subscribers, and how far behind they are",
    ),
    _page(
        path="/console/processes", may=May.ADMINISTER, handler=processes.list_processes,
        query=processes.ProcessesQuery, summary="What processes say",
    ),
    _form(
        path="/console/processes/{kind}/{name}/remove", may=May.ADMINISTER, handler=processes.remove,
        summary="Forget a process",
    ),
    _page(path="/console/backup", may=May.ADMINISTER, handler=operations.backup, summary="What is known of backups"),
    _page(path="/console/alarms", may=May.ADMINISTER, handler=operations.alarms, summary="What needs a person"),
    _page(
        path="/console/runbook/{code}", may=May.LIST, handler=runbook.show_runbook, summary="What a code means",
    ),
    _page(
        path="/console/sign-in", may=May.OPEN, handler=signing.show_form, query=signing.SignInQuery, summary="Sign in",
    ),
    _form(path="/console/sign-in", may=May.OPEN, handler=signing.sign_in, summary="Begin a session"),
    _form(path="/console/sign-out", may=May.LIST, handler=signing.sign_out, summary="End the session"),
    Route(
        method="GET", path="/console/static/{name}", may=May.OPEN, handler=static_files.serve, answer=None,
        media_type="application/octet-stream", summary="Style sheet, scripts, icon",
    ),
)  # fmt: skip
"""Nothing here is a part of the API: it is in no description, and may change at any time."""
