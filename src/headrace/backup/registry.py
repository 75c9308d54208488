"""The server's feeds, as its admin face tells them: each segment's manifest says what they were."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final

from headrace.backup.following import patiently
from headrace.client.http import FeedClient
from headrace.errors import Forbidden, HeadraceError
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock
from headrace.runtime.logs import get_logger
from headrace.runtime.shutdown import wait_for_stop
from headrace.wire.documents import FeedView

logger = get_logger("backup")

CHECK_EVERY_S: Final = 60.0
"""How often it is asked whether the token is still an admin's: of any other one the stream would leave feeds out."""
ASK_PAUSE_S: Final = 1.0
"""Between two questions for new feeds: many that are made at once are learnt together."""


class Registry:
    """The feeds of one server, by region id, as they were told last."""

    def __init__(self, http: FeedClient, clock: Clock) -> None:
        self._http = http
        self._clock = clock
        self._checked_s: float | None = None
        self.known: Mapping[int, FeedView] = {}
        self._earlier: Mapping[int, FeedView] = {}
        self._is_held = False
        self._is_due = False
        self._asking: asyncio.Task[None] | None = None

    def meet(self, incarnations: Mapping[int, str]) -> None:
        """Have the server asked now, beside all else, if it told nothing of these histories so far.

        The entries of a feed that nobody was told of can't be archived: whoever asks only then may find no server any more.
        """
        told = _incarnations(self.known, incarnations)
        if self._is_held or told == dict(incarnations):
            return
        self._is_due = True
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="headrace feeds")

    async def _ask(self) -> None:
        try:
            while self._is_due:
                self._is_due = False
                await patiently(self.asked)
                logger.info("the server has told of its new feeds", feeds=len(self.known))
                await asyncio.sleep(ASK_PAUSE_S)
        except HeadraceError as error:
            logger.warning("the server does not tell of its new feeds", code=error.code, detail=error.detail)
        finally:
            self._asking = None

    async def close(self) -> None:
        """End what goes on beside."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    async def asked(self) -> list[FeedView]:
        """Return the feeds as they are now; raises as :meth:`FeedClient.feeds`."""
        feeds = await self._http.feeds()
        fresh = {one.region_id: one for one in feeds}
        if not self._is_held:
            if _incarnations(fresh, self.known) != _incarnations(self.known, fresh):
                self._earlier = self.known
            self.known = fresh
        return feeds

    def hold(self, incarnations: Mapping[int, str]) -> None:
        """Keep to what was told while feeds had these histories: what the server has now is another log."""
        self._is_held = True
        for told in (self.known, self._earlier):
            found = _incarnations(told, incarnations)
            if found and all(incarnations[region] == one for region, one in found.items()):
                self.known = told
                return

    async def checked(self) -> None:
        """Learn the feeds as they are now. Forbidden if the token is not an admin's, who alone is given all of them."""
        now_s = self._clock.monotonic()
        if self._checked_s is None or now_s >= self._checked_s + CHECK_EVERY_S:
            await self._http.retention()
            self._checked_s = now_s
        await self.asked()

    async def for_segment(
        self, suffices: Callable[[Mapping[int, FeedView]], bool], stop: asyncio.Event, *, patient: bool = True
    ) -> Mapping[int, FeedView]:
        """Return the feeds as they are now; where the server does not answer, as they were told last, if that ``suffices``.

        What it does not know is waited for, unless ``patient`` is off, until it is time to stop: then why it did not answer
        is raised. Forbidden.
        """
        if self._is_held and suffices(self.known):
            return self.known
        backoff = Backoff()
        while True:
            try:
                await self.checked()
            except HeadraceError as error:
                if isinstance(error, Forbidden):
                    raise
                if suffices(self.known):
                    logger.warning(
                        "the server does not say what feeds it has; the manifest has them as they were before",
                        detail=error.detail,
                    )
                    return self.known
                if stop.is_set() or not patient or not error.retryable:
                    raise
                await wait_for_stop(stop, backoff.next_delay())
            else:
                return self.known


def _incarnations(told: Mapping[int, FeedView], regions: Collection[int]) -> dict[int, str]:
    return {region: one.incarnation for region, one in told.items() if region in regions}
