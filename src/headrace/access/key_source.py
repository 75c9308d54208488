"""The key set that tokens are checked with, kept fresh: fetched at the start, again and again, and for an unknown key.

While the set can't be had, the one that is known goes on, up to a bound: then no token is accepted, because a key that was
withdrawn meanwhile could not be told from a good one.
"""

from __future__ import annotations

import asyncio
from typing import Final, Self

import msgspec
from jwt import PyJWK

from headrace.access.key_fetch import FetchFailed, FileKeyFetch, KeyFetch
from headrace.access.key_set import KeySet, parse_key_set
from headrace.errors import KeysUnavailable
from headrace.runtime.backoff import Backoff
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.logs import get_logger

logger = get_logger("access")

FILE_REFRESH_S: Final = 5.0
"""A file costs nothing to read, so a key taken out of it is soon known."""
ABSENT_MAX: Final = 1_000
"""Most names of keys that are remembered as not being there."""


class KeyTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How fresh keys are kept, in seconds.

    ``refresh_s``: the pause between two fetches. ``retry_s_max``: the longest pause after one that failed.
    ``unknown_pause_s``: the least pause between two fetches because of a token whose key is not known; such tokens cost
    nothing to make up. ``age_s_max``: for how long keys are believed that can't be fetched any more: long enough for most
    outages, and the longest that a withdrawn key can go on.
    """

    refresh_s: float = 300.0
    retry_s_max: float = 30.0
    unknown_pause_s: float = 10.0
    age_s_max: float = 6 * 3600.0


class KeySource:
    """The newest key set of one place. Use as ``async with``, or call :meth:`start` and :meth:`close`."""

    def __init__(self, fetch: KeyFetch, *, terms: KeyTerms | None = None, clock: Clock | None = None) -> None:
        """Keep what ``fetch`` gets. Nothing is fetched before :meth:`start`."""
        self._fetch = fetch
        self._terms = terms or KeyTerms()
        self._clock = clock or SystemClock()
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._asked_at: float | None = None
        self._begun = self._got = 0
        """The number of the newest fetch that was begun, and of the newest that got keys."""
        self._absent: dict[str | None, float] = {}
        """Names that the set was fetched for and did not have, and when."""
        self.failed: str | None = "it was not fetched yet"
        """Why the last fetch got nothing; None if it did."""
        self._fetching: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self.generation = 0
        """Grows whenever the keys change: what was concluded from older ones must be checked again."""

    async def start(self) -> None:
        """Fetch the keys once and keep them fresh from now on; if they can't be had yet, say so loudly and try again."""
        try:
            await asyncio.shield(self._begin_fetch())
        except asyncio.CancelledError:
            await self.close()
            raise
        self._refreshing = asyncio.create_task(self._refresh())

    async def close(self) -> None:
        """Stop fetching."""
        tasks = [task for task in (self._refreshing, self._fetching) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._fetch.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def current(self) -> KeySet:
        """Return the keys that are believed now; KeysUnavailable if there are none, or if they are too old."""
        if self._keys is None:
            raise KeysUnavailable(f"the keys of {self._fetch.place} can't be had: {self.failed}")
        if self._clock.monotonic() - self._fetched_at > self._terms.age_s_max:
            raise KeysUnavailable(
                f"the keys of {self._fetch.place} could not be fetched for {self._terms.age_s_max:g} s: {self.failed}"
            )
        return self._keys

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """Return the key that a token names; None only if a set that was fetched since it was first named does not have it.

        Raises KeysUnavailable as :meth:`current` does, and where the key is not known and the set can't be fetched, or was
        asked for a moment ago: it may be a key of just now, and whoever is told that a token is bad throws it away.
        """
        found = self.current().find(kid, algorithm)
        if found is not None or self.current().names(kid) or self._is_absent(kid):
            return found
        before = self._begun
        while found is None and self._got <= before:
            await self._fetch_for_unknown()
            found = self.current().find(kid, algorithm)
        if found is None and len(self._absent) < ABSENT_MAX:
            self._absent[kid] = self._clock.monotonic()
        return found

    def _is_absent(self, kid: str | None) -> bool:
        """Whether the set was fetched for this name a moment ago, and did not have it."""
        now = self._clock.monotonic()
        self._absent = {
            name: at for name, at in self._absent.items() if now - at < self._terms.unknown_pause_s
        }
        return kid in self._absent

    async def _fetch_for_unknown(self) -> None:
        """Fetch, or wait for the fetch under way; KeysUnavailable if it is too early for another, or if it failed."""
        if self._fetching is None or self._fetching.done():
            now = self._clock.monotonic()
            if self._asked_at is not None and now - self._asked_at < self._terms.unknown_pause_s:
                raise KeysUnavailable(
                    f"the token's key is not known, and {self._fetch.place} was asked for keys a moment ago"
                )
            self._asked_at = now
        # Shielded: a caller that goes away must not spoil it for the others.
        await asyncio.shield(self._begin_fetch())
        if self.failed is not None:
            raise KeysUnavailable(
                f"the token's key is not known, and the keys of {self._fetch.place} can't be had: {self.failed}"
            )

    def _begin_fetch(self) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.create_task(self._fetch_once())
        return self._fetching

    async def _fetch_once(self) -> None:
        began_at = self._clock.monotonic()
        self._begun += 1
        number = self._begun
        try:
            keys = parse_key_set(await self._fetch.fetch())
        except (FetchFailed, ValueError) as error:
            self.failed = str(error)
            logger.warning(
                "the keys of tokens could not be fetched", place=self._fetch.place, reason=self.failed
            )
            return
        except Exception as error:
            # Whatever it is, it must not end the refreshing: then nothing would be said until the keys are too old.
            self.failed = type(error).__name__
            logger.exception("the keys of tokens could not be read", place=self._fetch.place)
            return
        # Their age counts from before the question: a key withdrawn during the answer is not believed for longer.
        self._fetched_at, self._got, self.failed = began_at, number, None
        if keys == self._keys:
            return
        self._keys = keys
        self.generation += 1
        logger.info("keys of tokens", place=self._fetch.place, kids=[key.kid for key in keys.keys])
        for reason in keys.unfit:
            logger.warning("a key of tokens is not used", place=self._fetch.place, reason=reason)
        if not keys.keys:
            logger.warning("no key is left: no token is accepted", place=self._fetch.place)

    async def _refresh(self) -> None:
        backoff = Backoff(first_s=min(1.0, self._terms.refresh_s), delay_s_max=self._terms.retry_s_max)
        pause = self._terms.refresh_s
        if isinstance(self._fetch, FileKeyFetch):
            pause = min(pause, FILE_REFRESH_S)
        while True:
            if self.failed is None:
                backoff.reset()
            await asyncio.sleep(pause if self.failed is None else backoff.next_delay())
            await asyncio.shield(self._begin_fetch())
