"""What a long-running process does about itself: it looks whether it moves, and tells the server every few seconds.

One implementation for all of them. It never harms the work: a report that can't be sent is logged once, and tried again.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from headrace import __version__
from headrace.client.http import FeedClient
from headrace.errors import HeadraceError, Stalled
from headrace.runtime.logs import get_logger
from headrace.runtime.progress import Progress, Standing, State, in_words
from headrace.runtime.shutdown import wait_for_stop
from headrace.wire.documents import rfc3339
from headrace.wire.report_documents import (
    FACTS_MAX,
    NAME_CHARS_MAX,
    TEXT_CHARS_MAX,
    WORKS_MAX,
    ProcessState,
    ReporterKind,
    ReportIn,
    WorkReport,
)

logger = get_logger("client")

REPORT_EVERY_S: Final = 5.0
"""How often the server is told; more often where a work counts as stuck after less."""
REPORT_EVERY_S_MIN: Final = 0.2
"""The shortest time between two reports, however little counts as stuck."""
REPORT_S_MAX: Final = 5.0
"""How long a report may take; a server that does not answer is told by the next one."""
LAST_REPORT_S_MAX: Final = 2.0
"""How long a process that ends waits until the server knows so."""
LOOKS: Final = 12
"""How often it is looked at the progress in the time after which a work counts as stuck."""
PATIENCE_S_MAX: Final = 3600.0
"""The longest time between two new connections: what takes longer than that in one step is never cut."""


class _Last(NamedTuple):
    """The last word of a process: how it ended, and of what."""

    state: ProcessState
    code: str = ""
    detail: str = ""


class Reporter:
    """Tells the server how one process stands. Run :meth:`run` beside the work."""

    def __init__(
        self,
        client: FeedClient,
        kind: ReporterKind,
        name: str,
        progress: Progress,
        *,
        facts: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        """``client`` is the reporter's own: a pool that the work has used up must not keep it from telling so.

        ``facts`` returns numbers of the process by metric key, without waiting for anything.
        """
        self._client, self._kind, self._name, self._progress = client, kind, name, progress
        self._facts = facts
        self._every_s = min(REPORT_EVERY_S, max(REPORT_EVERY_S_MIN, progress.stalled_after_s))
        self._started_at = rfc3339(progress.clock.wall_ms())
        self._told: str | None = None

    async def run(self, ending: asyncio.Event, errors: Sequence[Exception] = ()) -> None:
        """Report until ``ending``, then that the process ends. Raises nothing, and keeps nobody waiting for long.

        ``errors`` is looked at then: what the process died of. Empty: it was told to stop, or had done its work.
        """
        reporting = asyncio.create_task(self._go_on())
        try:
            await ending.wait()
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_REPORT_S_MAX):
                await self._send(_failure(errors[0]) if errors else _Last("ending"))

    async def _go_on(self) -> None:
        while True:
            await self._send()
            await asyncio.sleep(self._every_s)

    async def _send(self, last: _Last | None = None) -> None:
        try:
            await self._client.report(self._kind, self._name, self._report(last), timeout_s=REPORT_S_MAX)
        except HeadraceError as error:
            if self._told != error.code:
                self._told = error.code
                logger.warning("the server takes no report", code=error.code, detail=error.detail)
        except Exception:
            if self._told != "":
                self._told = ""
                logger.exception("no report could be made")
        else:
            self._told = None

    def _report(self, last: _Last | None) -> ReportIn:
        facts = dict(list(self._facts().items())[:FACTS_MAX])
        return ReportIn(
            version=__version__,
            host=socket.gethostname()[:NAME_CHARS_MAX],
            pid=os.getpid(),
            started_at=self._started_at,
            state=self._progress.state().value if last is None else last.state,
            code="" if last is None else last.code,
            detail="" if last is None else last.detail[:TEXT_CHARS_MAX],
            works=[_work(one) for one in self._progress.standings()[:WORKS_MAX]],
            facts=facts,
        )


async def watch(
    progress: Progress, ending: asyncio.Event, reconnect: Callable[[list[Standing]], Awaitable[None]]
) -> None:
    """Look until ``ending`` whether the works move. One that is stuck is logged at error, once, and ``reconnect`` is called.

    If it stays stuck ``reconnect`` is called again, after twice the time each: a step that only takes long must come to its
    end once. What ``reconnect`` raises is logged.
    """
    clock, first_s = progress.clock, progress.stalled_after_s
    stuck: set[str] = set()
    patience_s = first_s
    again_at = 0.0
    while not await wait_for_stop(ending, first_s / LOOKS):
        found = {one.name: one for one in progress.standings() if one.state is State.STUCK}
        for name in stuck - found.keys():
            logger.info("it moves again", work=name)
        for name in found.keys() - stuck:
            one = found[name]
            logger.error("alarm", code=Stalled.code, feed=one.feed, detail=in_words(one), hint=Stalled.hint)
        if not found:
            patience_s = first_s
        elif not stuck or clock.monotonic() >= again_at:
            patience_s = min(patience_s * 2, max(PATIENCE_S_MAX, first_s))
            again_at = clock.monotonic() + patience_s
            logger.warning("connecting anew", works=sorted(found))
            try:
                await reconnect(list(found.values()))
            except HeadraceError as error:
                logger.warning("connecting anew failed", code=error.code, detail=error.detail)
            except Exception:
                logger.exception("connecting anew failed")
        stuck = set(found)


def _failure(error: Exception) -> _Last:
    """Of an error that nobody foresaw only the kind is told: its text may hold anything, and stands in the process's log."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, HeadraceError):
        return _Last("failed", error.code, error.detail)
    return _Last("failed", HeadraceError.code, f"{type(error).__name__}; its log says more")


def _work(one: Standing) -> WorkReport:
    return WorkReport(
        name=one.name[:NAME_CHARS_MAX],
        feed=one.feed,
        waiting=one.waiting,
        oldest_waiting_at=None if one.oldest_waiting_ms is None else rfc3339(one.oldest_waiting_ms),
        source_position=one.position[:TEXT_CHARS_MAX],
        reachable=one.reachable,
        state=one.state.value,
        since=rfc3339(one.since_ms),
        code=one.code,
        detail=one.detail[:TEXT_CHARS_MAX],
    )
