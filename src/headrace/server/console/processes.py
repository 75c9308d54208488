"""The page of processes: what each long-running one last said of itself, and the way to forget one that is gone for good."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from headrace.server.console.drawing import page
from headrace.server.console.forgery import check_pressed
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.documents import Document


class ProcessesQuery(Document):
    """``GET /console/processes``; ``removed``: which process was forgotten a moment ago."""

    removed: Annotated[str, Meta(max_length=300, description="A process.")] = ""


async def list_processes(service: Service, call: Call) -> Response:
    """Show what every long-running process last said of itself."""
    removed = call.query(ProcessesQuery).removed
    reports = (await service.reports.view()).reports
    # Anybody can make a link that says so.
    is_removed = bool(removed) and all(one.name != removed for one in reports)
    return await page(service, call, "processes.html", reports=reports, removed=removed if is_removed else "")


async def remove(service: Service, call: Call) -> Response:
    """Forget a process and clear its alarms, for an admin who pressed the button on our own page."""
    await check_pressed(call)
    name = call.path["name"]
    await service.reports.remove(call.path["kind"], name, call.grant)
    return RedirectResponse(f"/console/processes?removed={quote(name, safe='')}", 303)
