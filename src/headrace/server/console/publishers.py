"""The page of publishers: who owns each feed, what waits at its agent, who stands in quarantine, and the way out of it."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, NamedTuple
from urllib.parse import quote

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from headrace.server.console.drawing import page
from headrace.server.console.forgery import check_pressed
from headrace.server.http.table import Call
from headrace.server.publishing import PublisherState
from headrace.server.service import Service
from headrace.wire.documents import Document, rfc3339
from headrace.wire.report_documents import ReportView, WorkReport


class PublishersQuery(Document):
    """``GET /console/publishers``; ``released``: whose quarantine was lifted a moment ago."""

    released: Annotated[str, Meta(max_length=300, description="A publisher.")] = ""


class Backlog(NamedTuple):
    """What an agent or a capture said of its work at a feed. ``state``: of the process if that is gone, else of the work."""

    reporter: str
    state: str
    work: WorkReport
    reported_at: str


class ShownPublisher(NamedTuple):
    """A publisher as it is shown. ``quarantined_at``: RFC 3339, None if it is not."""

    state: PublisherState
    quarantined_at: str | None
    backlog: Backlog | None


async def list_publishers(service: Service, call: Call) -> Response:
    """Show who appends to the feeds that the caller may see; what waits at them is an admin's to know."""
    released = call.query(PublishersQuery).released
    states = await service.publishers(call.grant)
    reports = (await service.reports.view()).reports if call.grant.may_administer() else []
    backlogs = _backlogs(reports)
    shown = [_shown(one, backlogs) for one in states]
    own = [one for one in states if one.agent_id == released]
    # Anybody can make a link that says so.
    is_released = bool(own) and all(one.quarantine is None for one in own)
    return await page(
        service,
        call,
        "publishers.html",
        publishers=shown,
        quarantined=[one for one in shown if one.quarantined_at is not None],
        released=released if is_released else "",
    )


async def release(service: Service, call: Call) -> Response:
    """Lift a publisher's quarantine, for an admin who pressed the button on our own page."""
    await check_pressed(call)
    done = await service.release(call.path["agent-id"], call.grant)
    return RedirectResponse(f"/console/publishers?released={quote(done.agent_id, safe='')}", 303)


def _shown(state: PublisherState, backlogs: dict[str, list[Backlog]]) -> ShownPublisher:
    at = rfc3339(state.quarantine.at_ms) if state.quarantine is not None else None
    found = backlogs.get(state.feed, [])
    own = next((one for one in found if one.reporter == state.agent_id), None)
    # An agent may report under another name than it publishes with, as a capture does: of an owned feed there is but one.
    alone = found[0] if len(found) == 1 and state.owns else None
    return ShownPublisher(state, at, own or alone)


def _backlogs(reports: list[ReportView]) -> dict[str, list[Backlog]]:
    found: dict[str, list[Backlog]] = defaultdict(list)
    for one in reports:
        if one.kind not in {"agent", "capture"}:
            continue
        for work in one.report.works:
            state = one.state if one.state in {"gone", "ending", "failed"} else work.state
            found[work.feed].append(Backlog(one.name, state, work, one.reported_at))
    return found
