"""Carries out the calls that the state machine asks for: the long poll and one other at a time, each ends in an event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, assert_never

from headrace.client.hydration import HydrationClient
from headrace.client.snapshot import SnapshotFetch, StillMade
from headrace.client.snapshot_body import SnapshotRow
from headrace.entries.bookmark import Bookmark
from headrace.entries.lsn import Lsn
from headrace.errors import HeadraceError, Recovery, ServerUnreachable
from headrace.listener import events
from headrace.listener.lease import LeaseKeeper
from headrace.listener.parts import HydrationProgress, OnProgress
from headrace.listener.works import ListenerWork
from headrace.runtime.backoff import Backoff
from headrace.runtime.logs import get_logger
from headrace.wire.documents import ChangesList, EntryOut
from headrace.wire.filters import EVERYTHING, EntryFilter

logger = get_logger("listener")

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)

OnWait = Callable[[HeadraceError, float], None]
"""Is told of each error that is waited out, with the seconds."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """How a listener asks, and what for. ``poll_timeout_ms``, ``entries_max``: of one poll, of one answer."""

    poll_timeout_ms: int
    entries_max: int
    hold: bool
    wanted: EntryFilter = EVERYTHING


class Calls:
    """The open calls of one listener. :meth:`close` cancels what is open."""

    def __init__(
        self,
        client: HydrationClient,
        feed: str,
        listener_id: str,
        settings: CallSettings,
        work: ListenerWork,
        *,
        on_wait: OnWait | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._client = client
        self._feed = feed
        self._listener_id = listener_id
        self._settings = settings
        self._work = work
        self._on_wait = on_wait
        self._on_progress = on_progress
        self._backoff = Backoff()
        self._open: dict[asyncio.Task[events.Event], bool] = {}
        self._lease = LeaseKeeper(client, listener_id, feed)
        self._fetch: SnapshotFetch | None = None

    def start(self, action: events.Call) -> None:
        """Begin a call; :meth:`next` brings its event."""
        self._open[asyncio.create_task(self._perform(action))] = isinstance(action, events.Poll)

    async def next(self, timeout_s: float | None = None) -> events.Event | None:
        """Return the next event that there is; what is not the poll's comes first. None after ``timeout_s``."""
        if not self._open:
            raise RuntimeError("the state machine asked for nothing to wait for")
        done, _ = await asyncio.wait(self._open, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            return None
        task = min(done, key=self._open.__getitem__)
        del self._open[task]
        return task.result()

    def end_lease(self) -> None:
        """Give the hydration lease back, in the background."""
        self._lease.end()

    async def close(self) -> None:
        """Cancel what is open, and let go of the lease and the snapshot."""
        for task in self._open:
            task.cancel()
        if self._open:
            await asyncio.wait(self._open)
        self._open.clear()
        await self._lease.close()
        if self._fetch is not None:
            await self._fetch.close()

    @property
    def fetch(self) -> SnapshotFetch:
        """The snapshot that is fetched; made when the first one is asked for."""
        if self._fetch is None:
            self._fetch = SnapshotFetch(self._client, self._feed, self._listener_id)
        return self._fetch

    async def rows(self) -> AsyncGenerator[list[SnapshotRow], None]:
        """Yield what is left of the open snapshot, batch by batch, and tell the progress. Raises as SnapshotFetch.rows."""
        async with aclosing(self.fetch.rows()) as batches:
            async for rows in batches:
                yield rows
                self.tell("applying")
        self.tell("applied")

    def tell(self, state: str, rows: int | None = None) -> None:
        """Tell how far the snapshot is."""
        fetch = self.fetch
        self._work.note_step(state, rows, fetch.bytes_done)
        if self._on_progress is None:
            return
        if rows is not None or fetch.found is None:
            self._on_progress(HydrationProgress("being-made", rows or 0))
            return
        found = fetch.found
        self._on_progress(
            HydrationProgress(
                "applied" if state == "applied" else "applying",
                fetch.body.rows,
                found.sequence_id,
                found.snapshot_id,
                fetch.bytes_done,
                found.bytes_total,
            )
        )

    async def _perform(self, action: events.Call) -> events.Event:
        if isinstance(action, events.Wait):
            return await self._wait(action)
        if isinstance(action, events.Pause):
            await asyncio.sleep(action.seconds)
            return events.Waited()
        is_poll = isinstance(action, events.Poll)
        asking = self._work.poll(self._settings.poll_timeout_ms / 1000) if is_poll else self._work.call()
        try:
            with asking:
                event = await self._call(action)
        except HeadraceError as error:
            event = events.PollFailed(error) if is_poll else events.Failed(error)
        self._work.heard(event)
        return event

    async def _wait(self, action: events.Wait) -> events.Event:
        self._backoff.failures = action.failures - 1  # the machine counts, and knows what progress is
        error = action.error
        delay = max(self._backoff.next_delay(), error.retry_after_s or 0.0)
        if self._on_wait is not None:
            self._on_wait(error, delay)
        said = {"code": error.code, "detail": error.detail, "seconds": round(delay, 2)}
        if error.recovery is Recovery.ATTEND:  # nobody else can mend it
            logger.error("alarm", **said, hint=error.advice)
        else:
            logger.warning("waiting", **said)
        await asyncio.sleep(delay)
        return events.Waited()

    async def _call(
        self,
        action: events.Register | events.Locate | events.Read | events.Poll | events.Lease | events.Fetch,
    ) -> events.Event:
        settings = self._settings
        match action:
            case events.Register():
                found = await self._client.register_listener(
                    self._listener_id, self._feed, hold=settings.hold
                )
                return events.Registered(found.incarnation, found.oldest_sequence_id, found.head_sequence_id)
            case events.Locate(time):
                # Whole milliseconds, as entries carry them: rounded down, so that nothing of the time itself is skipped.
                page = await self._client.read_since(self._feed, (time - _EPOCH) // _MS, limit=1)
                after = page.changes_list[0].sequence_id - 1 if page.changes_list else page.head_sequence_id
                return events.Located(page.incarnation, page.head_sequence_id, after)
            case events.Read(first, bookmark):
                page = await self._client.read(
                    self._feed, first, limit=settings.entries_max, bookmark=_known(bookmark), wanted=settings.wanted
                )  # fmt: skip
                return events.Received(*self._answer(page))
            case events.Poll(after, bookmark):
                page = await self._client.poll(
                    self._feed,
                    self._listener_id,
                    after,
                    bookmark=_known(bookmark),
                    timeout_ms=settings.poll_timeout_ms,
                    limit=settings.entries_max,
                    wanted=settings.wanted,
                )
                return events.Polled(*self._answer(page))
            case events.Lease():
                return await self._lease.take(action)
            case events.Fetch(at_least, snapshot_id):
                answer = await self.fetch.open(at_least, snapshot_id)
                if isinstance(answer, StillMade):
                    self.tell("being-made", answer.rows)
                    return events.BeingMade(answer.seconds)
                return events.Found(answer.snapshot_id, answer.sequence_id, answer.incarnation)
            case _:
                assert_never(action)

    def _answer(self, page: ChangesList) -> tuple[str, int, int, list[EntryOut], int | None, Lsn | None]:
        """Return what Received and Polled hold. ServerUnreachable: a filter was asked for of a server that knows none."""
        if page.last_sequence_id is None and self._settings.wanted != EVERYTHING:
            raise ServerUnreachable(
                f"{self._client.server}: the answer does not say how far it was looked",
                hint="Filters need a newer Headrace server.",
            )
        lsn = Lsn.parse(page.last_lsn) if page.last_lsn is not None else None
        bounds = (page.incarnation, page.oldest_sequence_id, page.head_sequence_id)
        return (*bounds, page.changes_list, page.last_sequence_id, lsn)


def _known(bookmark: Bookmark) -> Bookmark | None:
    return bookmark if bookmark.incarnation else None
