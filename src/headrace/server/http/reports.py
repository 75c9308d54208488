"""The handlers of what processes report of themselves."""

from __future__ import annotations

import msgspec
from starlette.responses import Response

from headrace.server.http.bodies import JSON_TYPE
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.report_documents import ReportIn


async def put_report(service: Service, call: Call) -> Response:
    """Keep what a process says of itself."""
    report = await call.document(ReportIn)
    kept = await service.reports.keep(call.path["kind"], call.path["name"], report, call.grant)
    return Response(msgspec.json.encode(kept), media_type=JSON_TYPE)


async def remove_report(service: Service, call: Call) -> Response:
    """Forget a process that is gone for good, and clear its alarms."""
    await service.reports.remove(call.path["kind"], call.path["name"], call.grant)
    return Response(status_code=204)


async def list_reports(service: Service, call: Call) -> Response:
    """Answer what every process said last."""
    return Response(msgspec.json.encode(await service.reports.view()), media_type=JSON_TYPE)
