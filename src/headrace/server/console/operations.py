"""The pages of operators: alarms, and what is known of backups."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import Response

from headrace.runtime.facts import BACKUP_LAG, BACKUP_WINDOW_BEGIN, BACKUP_WINDOW_END
from headrace.server.console.consumers import lag_views
from headrace.server.console.drawing import page
from headrace.server.http.table import Call
from headrace.server.service import Service
from headrace.wire.report_documents import ReportView


class BackupWindow(NamedTuple):
    """What a backup agent says that its archive reaches: seconds since 1970, None where it has not said so.

    ``lag_s``: age of the oldest entry that came to it and is not archived.
    """

    report: ReportView
    begin_s: float | None
    end_s: float | None
    lag_s: float | None


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
        windows=[_window(one) for one in reports],
    )


def _window(report: ReportView) -> BackupWindow:
    facts = report.report.facts
    return BackupWindow(
        report, *(facts.get(one.name) for one in (BACKUP_WINDOW_BEGIN, BACKUP_WINDOW_END, BACKUP_LAG))
    )
