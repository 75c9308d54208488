"""What people ask the server about one entry."""

from __future__ import annotations

from urllib.parse import quote

from headrace.client.http import FeedClient
from headrace.wire.trace_documents import Trace


class TraceClient(FeedClient):
    """A :class:`~headrace.client.http.FeedClient` that asks what became of entries."""

    async def trace(self, feed: str, sequence_id: int) -> Trace:
        """Return one entry's life; an entry that is not there is an answer too. FeedNotFound."""
        return await self._trace(feed, {"sequence-id": str(sequence_id)})

    async def trace_key(self, feed: str, key: str) -> Trace:
        """Return the life of the newest entry with this key. FeedNotFound."""
        return await self._trace(feed, {"key": key})

    async def _trace(self, feed: str, params: dict[str, str]) -> Trace:
        return await self._json("GET", f"/feeds/{quote(feed, safe='')}/trace", Trace, params=params)
