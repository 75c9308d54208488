"""The pages of operators: alarms, what processes say of themselves, and what is known of backups."""

from __future__ import annotations

from starlette.responses import Response

from headrace.server.console.consumers import lag_views
from headrace.server.console.drawing import page
from headrace.server.http.table import Call
from headrace.server.service import Service


async def alarms(service: Service, call: Call) -> Response:
    """Show what needs a person, and what did."""
    found = (await service.alarms()).alarms
    return await page(
        service,
        call,
        "alarms.html",
        standing_alarms=[one for one in found if one.cleared_at is None],
        cleared=[one for one in found if one.cleared_at is not None],
    )


async def processes(service: Service, call: Call) -> Response:
    """Show what every long-running process last said of itself."""
    return await page(service, call, "processes.html", reports=(await service.reports.view()).reports)


async def backup(service: Service, call: Call) -> Response:
    """Show what this server can know of backups: its subscribers, what backup agents say, and what retention keeps.

    What an archive holds and reaches is not known here: the page says so, and which command knows.
    """
    retention = await service.explain_retention()
    reports = [one for one in (await service.reports.view()).reports if one.kind == "backup"]
    lags = lag_views(service, (await service.feeds(call.grant)).feeds)
    return await page(
        service,
        call,
        "backup.html",
        retention=retention,
        subscribers=[one for one in retention.consumers if one.kind == "subscriber"],
        lags=[one for one in lags if one.kind == "subscriber"],
        reports=reports,
    )
