"""The handler of the runbook's pages, to which ``type`` of every problem document points."""

from __future__ import annotations

import asyncio

from starlette.responses import Response

from headrace.errors import RouteNotFound
from headrace.runtime.runbook import PAGE_TYPE, runbook_page
from headrace.server.http.table import Call
from headrace.server.service import Service


async def get_page(service: Service, call: Call) -> Response:
    """Answer the page of a code as Markdown; RouteNotFound for a code that this version doesn't know."""
    code = call.path["code"]
    page = await asyncio.to_thread(runbook_page, code)
    if page is None:
        raise RouteNotFound(f"the runbook has no page for the code {code[:80]!r}")
    return Response(page, headers={"Content-Type": PAGE_TYPE})
