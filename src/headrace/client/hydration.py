"""What a listener asks the server for beyond entries: the hydration lease, and where the publisher serves its snapshot."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

import httpx
import msgspec

from headrace import errors
from headrace.client.http import FeedClient
from headrace.wire.hydration_documents import HydrationLease, TakeHydration

TEMPORARY_REDIRECT: Final = 307


class HydrationClient(FeedClient):
    """A :class:`~headrace.client.http.FeedClient` of a listener that can take snapshots."""

    async def take_hydration(
        self, listener_id: str, feed: str, snapshot_id: str | None = None, sequence_id: int | None = None
    ) -> HydrationLease:
        """Take or renew the lease: retention stays from the oldest entry on, or from behind ``sequence_id`` once named."""
        body = TakeHydration()
        if snapshot_id is not None and sequence_id is not None:
            body = TakeHydration(snapshot_id=snapshot_id, sequence_id=sequence_id)
        return await self._json(
            "POST", _lease(listener_id, feed), HydrationLease, content=msgspec.json.encode(body)
        )

    async def end_hydration(self, listener_id: str, feed: str) -> None:
        """Give the lease back; idempotent."""
        await self._call("DELETE", _lease(listener_id, feed))

    async def snapshot_address(
        self, feed: str, listener_id: str, *, at_least: int | None = None, snapshot_id: str | None = None
    ) -> str:
        """Return the publisher's address with a ticket in it. Nothing is fetched from there, and no token is sent there.

        NoSnapshot, SnapshotForbidden, and what every call can raise.
        """
        given = {"listener-id": listener_id, "at-least": at_least, "snapshot-id": snapshot_id}
        params = {name: value for name, value in given.items() if value is not None}
        answer = await self._send("GET", f"/feeds/{quote(feed, safe='')}/snapshot", params=params)
        if answer.status_code >= 400:
            raise self.problem(answer)
        location = answer.headers.get("Location", "")
        if answer.status_code != TEMPORARY_REDIRECT or not location.startswith(("http://", "https://")):
            raise errors.ServerUnreachable(
                f"{self.server}: status {answer.status_code} to {location[:80]!r} is no address of a snapshot",
                hint="Is this address a Headrace server?",
            )
        try:
            return str(httpx.URL(location))
        except httpx.InvalidURL as error:
            raise errors.SnapshotBroken(f"the publisher's snapshot-url is no address: {error}") from None


def _lease(listener_id: str, feed: str) -> str:
    return f"/listeners/{quote(listener_id, safe='')}/feeds/{quote(feed, safe='')}/hydration"
