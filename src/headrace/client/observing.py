"""What every long-running process does beside its work: it tells its health and its reports, and connects anew when stuck.

::

    with healthy(progress, terms):
        async with observed(progress, told, reconnect):
            ...  # the work, which says in ``progress`` how it stands
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

from headrace.client.credential import Credential
from headrace.client.http import FeedClient
from headrace.client.reporting import Reporter, watch
from headrace.runtime.health import HealthServer, HealthTerms
from headrace.runtime.progress import Progress, Standing
from headrace.runtime.progress_metrics import exposition
from headrace.wire.report_documents import ReporterKind

REPORTER_CHARS_MAX: Final = 200
"""Characters of a reporter's name."""
END_S_MAX: Final = 5.0
"""How long the end waits for the last report, and for a new connection that is being made."""
HASH_CHARS: Final = 8
"""Of the SHA-256 that tells two jobs of one feed, or two long names, apart."""


class Told(NamedTuple):
    """Who reports, and to which server. ``name`` must stay the same from one start to the next."""

    kind: ReporterKind
    name: str
    server: str
    credential: Credential | str | None = None
    ca_file: Path | None = None
    insecure: bool = False

    def client(self) -> FeedClient:
        """Return a client of the reporter's own: the work's may have no connection left, or hang."""
        return FeedClient(self.server, token=self.credential, ca_file=self.ca_file, insecure=self.insecure)


def reporter_name(*parts: str) -> str:
    """Return the name of a process that is known by several names together, such as a listener and its feed."""
    name = "@".join(parts)
    if len(name) <= REPORTER_CHARS_MAX:
        return name
    mark = sha256(name.encode()).hexdigest()[:HASH_CHARS]
    return f"{name[: REPORTER_CHARS_MAX - HASH_CHARS - 1]}~{mark}"


def job_name(kind: str, feed: str, place: str) -> str:
    """Return the name of a job ``kind`` of ``feed`` that keeps its state at ``place``: the same at its next start."""
    return reporter_name(f"{kind}~{sha256(place.encode()).hexdigest()[:HASH_CHARS]}", feed)


@contextmanager
def healthy(progress: Progress, terms: HealthTerms) -> Iterator[None]:
    """Serve health within the body if ``terms`` say where; PortInUse, ConfigInvalid."""
    if terms.address is None:
        yield
        return
    with HealthServer(terms.address, progress, partial(exposition, progress)):
        yield


@asynccontextmanager
async def observed(
    progress: Progress, told: Told | None, reconnect: Callable[[list[Standing]], Awaitable[None]]
) -> AsyncIterator[None]:
    """Report to the server, and look whether the works move, within the body.

    ``told`` None: nobody is reported to. ``reconnect`` is called as :func:`headrace.client.reporting.watch` says. At the end
    the server is told that the process ends, or, if the body raised an error, that it failed, and of what; for two seconds
    at most. Raises what the body does.
    """
    errors: list[Exception] = []
    async with _observing(progress, told, reconnect, errors):
        try:
            yield
        except Exception as error:
            errors.append(error)
            raise


@asynccontextmanager
async def _observing(
    progress: Progress,
    told: Told | None,
    reconnect: Callable[[list[Standing]], Awaitable[None]],
    errors: Sequence[Exception],
) -> AsyncIterator[None]:
    """Do it within the body; ``errors`` holds, once that has ended, what the work died of, if it did."""
    ending = asyncio.Event()
    async with AsyncExitStack() as stack:
        beside = [asyncio.create_task(watch(progress, ending, reconnect))]
        if told is not None:
            client = await stack.enter_async_context(told.client())
            reporter = Reporter(client, told.kind, told.name, progress, facts=progress.facts)
            beside.append(asyncio.create_task(reporter.run(ending, errors)))
        try:
            yield
        finally:
            ending.set()
            try:
                await asyncio.wait(beside, timeout=END_S_MAX)
            finally:
                for task in beside:
                    task.cancel()


@contextmanager
def observed_beside(
    progress: Progress, told: Told | None, reconnect: Callable[[list[Standing]], None]
) -> Iterator[None]:
    """Do what :func:`observed` does for work without an event loop, in a thread of its own; it calls ``reconnect`` too."""
    errors: list[Exception] = []
    began: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = queue.SimpleQueue()

    async def again(stuck: list[Standing]) -> None:
        await asyncio.to_thread(reconnect, stuck)

    async def observe() -> None:
        ended = asyncio.Event()
        began.put((asyncio.get_running_loop(), ended))
        async with _observing(progress, told, again, errors):
            await ended.wait()

    thread = threading.Thread(target=lambda: asyncio.run(observe()), name="headrace-observer", daemon=True)
    thread.start()
    loop, ended = began.get()
    try:
        yield
    except Exception as error:
        errors.append(error)
        raise
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
