"""A hydration lease, renewed until it is ended: while it stands, retention keeps what the listener will need next."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from headrace.client.hydration import HydrationClient
from headrace.errors import HeadraceError
from headrace.listener.events import Lease, Leased
from headrace.runtime.logs import get_logger
from headrace.wire.documents import ms_of_rfc3339
from headrace.wire.hydration_documents import HydrationLease

logger = get_logger("listener")

RENEW_S_MAX: Final = 60.0
"""A lease is renewed at least so often, however long it lasts: clocks differ."""
RENEW_S_MIN: Final = 1.0
END_TRIES: Final = 3
"""How often giving it back is tried; after that it ends by itself."""
END_PAUSE_S: Final = 1.0


class LeaseKeeper:
    """One listener's lease on one feed."""

    def __init__(self, client: HydrationClient, listener_id: str, feed: str) -> None:
        self._client = client
        self._listener_id = listener_id
        self._feed = feed
        self._renewing: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def take(self, lease: Lease) -> Leased:
        """Take or renew it, and go on renewing it as ``lease`` says until :meth:`end`. Raises what the call raises."""
        await self._stop_renewing()
        taken = await self._take(lease)
        self._renewing = asyncio.create_task(self._renew(lease, taken))
        return Leased(taken.incarnation, taken.oldest_sequence_id, taken.head_sequence_id)

    def end(self) -> None:
        """Give it back, in the background."""
        self._ending = asyncio.create_task(self._end())

    async def close(self) -> None:
        """Stop renewing; wait for an :meth:`end` that is under way."""
        await self._stop_renewing()
        if self._ending is not None:
            await asyncio.wait({self._ending})

    async def _take(self, lease: Lease) -> HydrationLease:
        return await self._client.take_hydration(
            self._listener_id, self._feed, lease.snapshot_id, lease.sequence_id
        )

    async def _renew(self, lease: Lease, taken: HydrationLease) -> None:
        while True:
            await asyncio.sleep(_pause_s(taken))
            try:
                taken = await self._take(lease)
            except HeadraceError as error:
                logger.warning("the hydration lease was not renewed", code=error.code, detail=error.detail)

    async def _end(self) -> None:
        await self._stop_renewing()
        for _ in range(END_TRIES):
            try:
                await self._client.end_hydration(self._listener_id, self._feed)
            except HeadraceError as error:
                logger.warning("the hydration lease was not ended", code=error.code, detail=error.detail)
                if not error.may_pass:
                    return
                await asyncio.sleep(END_PAUSE_S)
            else:
                return

    async def _stop_renewing(self) -> None:
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await asyncio.wait({renewing})


def _pause_s(taken: HydrationLease) -> float:
    """A third of what is left, so that two renewals may fail; the server's clock is only roughly ours."""
    try:
        left = ms_of_rfc3339(taken.expires_at) / 1000 - time.time()
    except ValueError:
        return RENEW_S_MAX
    return min(RENEW_S_MAX, max(RENEW_S_MIN, left / 3))
