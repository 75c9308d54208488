"""The calls of the change feed API that are about no entries: retention, alarms, reports. A part of ``client.http``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from headrace.wire import documents as doc
from headrace.wire.report_documents import Reported, ReporterKind, ReportIn, ReportList, ReportView
from headrace.wire.retention_documents import RetentionView, Rotated

T = TypeVar("T")


def encoded(body: msgspec.Struct) -> bytes:
    """Return a document as JSON."""
    return msgspec.json.encode(body)


class OperatorCalls(ABC):
    """What people and their tools ask a server for, one method a call."""

    @abstractmethod
    async def _json(self, method: str, path: str, kind: type[T], **options: Any) -> T:
        """Send one request and return the document that is answered; raises what the answer says."""

    @abstractmethod
    async def _call(self, method: str, path: str, **options: Any) -> Any:
        """Send one request and return its answer; raises what the answer says."""

    async def retention(self) -> RetentionView:
        """Return what retention keeps and would drop now, and why."""
        return await self._json("GET", "/retention", RetentionView)

    async def rotate_streams(self) -> int:
        """Ask the subscribers of this server's open streams to begin a new file; returns how many streams there are."""
        return (await self._json("POST", "/streams/rotate", Rotated)).streams

    async def alarms(self) -> list[doc.AlarmView]:
        """Return the alarms, raised ones first."""
        return (await self._json("GET", "/alarms", doc.AlarmList)).alarms

    async def report(
        self, kind: ReporterKind, name: str, report: ReportIn, *, timeout_s: float = 5.0
    ) -> None:
        """Say how this process stands. Forbidden for a token that is not good for what the process does."""
        path = f"/reports/{kind}/{quote(name, safe='')}"
        await self._json("PUT", path, Reported, content=encoded(report), timeout_s=timeout_s)

    async def reports(self) -> list[ReportView]:
        """Return what every process last said of itself, by kind and name."""
        return (await self._json("GET", "/reports", ReportList)).reports

    async def remove_report(self, kind: ReporterKind, name: str) -> None:
        """Forget a process that is gone for good, and clear its alarms; nothing happens if nothing is known of it."""
        await self._call("DELETE", f"/reports/{kind}/{quote(name, safe='')}")

    async def release(self, agent_id: str) -> list[str]:
        """Lift the quarantine of ``agent_id``; returns the feeds concerned."""
        path = f"/publishers/{quote(agent_id, safe='')}/release"
        return (await self._json("POST", path, doc.Released)).feeds
