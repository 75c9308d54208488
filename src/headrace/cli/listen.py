"""``headrace listen``: follow a feed from a durable bookmark, to stdout or into a command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import signal
import sys
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import App, Parameter

from headrace.client.credential import read_token
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import (
    BeyondHead,
    FeedNotFound,
    FeedRecreated,
    HeadraceError,
    SequenceNotAvailable,
    Stopped,
    Usage,
)
from headrace.listener import Batch, Change, Listener, ListenerSettings, SqliteBookmarks
from headrace.listener.lines import LineOutput
from headrace.listener.machine import Start
from headrace.runtime.backoff import Backoff
from headrace.runtime.shutdown import stop_event

app = App(name="listen", help="Follow a feed from a durable bookmark.")

EXEC_ATTEMPTS_MAX: Final = 5
"""A command that fails so often on one entry stops the listener; the bookmark stays before that entry."""
ONCE_FAILURES_MAX: Final = 6
"""With --once a server that does not answer is given up after so many tries, about ten seconds."""
GRACE_S: Final = 10.0
"""How long a stop waits for a command or a reader that has not taken its entries yet."""

LINE_BEGIN: Final = b'{"sequence-id":'
"""How each line of output begins: tells a torn one from what is not ours."""


class CommandFailed(HeadraceError):
    """The command given with --exec failed on an entry."""

    code = "command-failed"
    hint = "Mend the command and start again: the bookmark stands before this entry."


@app.default
def listen_command(
    feed: str,
    *,
    from_: Annotated[str, Parameter(name="--from")] = "oldest",
    listener_id: str = "listen",
    bookmark: Path | None = None,
    exec_: Annotated[str | None, Parameter(name="--exec")] = None,
    ndjson: Annotated[bool, Parameter(negative=())] = False,
    once: Annotated[bool, Parameter(negative=())] = False,
    hold: Annotated[bool, Parameter(negative=())] = False,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Follow a feed until told to stop; each change at least once, in order.

    Parameters
    ----------
    feed
        The change-feed-id.
    from_
        Where to begin without a bookmark: oldest, head, or a sequence id. A saved bookmark wins, and says so.
    listener_id
        The name under which the place is kept, here and at the server.
    bookmark
        The bookmark file (SQLite). Default: FEED.LISTENER-ID.bookmark in the current folder.
    exec_
        Run this command for each entry, with the entry as a line of JSON on its stdin.
    ndjson
        Print each entry as one line of JSON (this is what happens without --exec too).
    once
        Stop at the head that the feed has now.
    hold
        Ask retention to wait for this listener.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    json
        The same as --ndjson, for scripts that always ask for JSON.
    """
    if exec_ is not None and (ndjson or json):
        raise Usage("--exec and --ndjson can't be used together")
    check_feed_id(feed)
    check_agent_id(listener_id, "listener-id")
    start = parse_start(from_)
    command = parse_command(exec_) if exec_ is not None else None
    path = (
        bookmark
        if bookmark is not None
        else Path(re.sub(r"[^\w.@+-]", "_", f"{feed}.{listener_id}.bookmark"))
    )
    settings = ListenerSettings(drain=once, hold=hold, failures_max=ONCE_FAILURES_MAX if once else None)
    token = read_token(token_file)
    new = not path.exists()
    with closing(SqliteBookmarks(path)) as bookmarks:
        listener = Listener(server, feed, listener_id, bookmarks, start=start, token=token, settings=settings)
        try:
            _listen(listener, path, command)
        except FeedNotFound:
            if new:  # a mistyped name leaves nothing behind
                bookmarks.close()
                path.unlink()
            raise


def _listen(listener: Listener, path: Path, command: list[str] | None) -> None:
    """Follow with the bookmarks of ``path``, and say in an error what to do with that file."""
    saved = listener.bookmark()
    if saved is not None:
        print(f"going on after sequence id {saved.sequence_id}, as {path} says", file=sys.stderr)
    try:
        asyncio.run(_follow(listener, command))
    except (BeyondHead, FeedRecreated, SequenceNotAvailable) as error:
        if listener.bookmark() is not None:
            error.advice += f" The place is kept in {path}: move that file away to begin by --from again."
        raise


def parse_start(text: str) -> Start:
    """Return what ``--from`` means; Usage for anything but oldest, head or a sequence id from 1 up."""
    if text == "oldest":
        return "oldest"
    if text == "head":
        return "head"
    if text.isascii() and text.isdigit() and int(text) >= 1:
        return int(text)
    raise Usage(f"--from: {text!r} is not a place", hint="Write oldest, head, or a sequence id such as 63.")


def parse_command(text: str) -> list[str]:
    """Return the words of ``--exec``, split as a shell does; Usage if there are none or a quote stays open."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise Usage(f"--exec: {text!r}: {error}") from None
    if not words:
        raise Usage("--exec: no command is named")
    return words


async def _follow(listener: Listener, command: list[str] | None) -> None:
    """Follow until the listener ends or a signal comes; a batch that is being handed over is finished first."""
    stop = stop_event()
    output = LineOutput(sys.stdout.fileno())
    if command is None and (cut := output.mend(LINE_BEGIN)):
        print(f"cut {cut} bytes of a torn line; its entry comes again", file=sys.stderr)
    async with listener:
        batches = listener.batches()
        stopped = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                coming = asyncio.ensure_future(anext(batches, None))
                await asyncio.wait({coming, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
                    return
                batch = coming.result()
                if batch is None:
                    return
                if command is None:
                    work = _print(batch, output)
                else:
                    work = _run_commands(listener, batch, command, stop)
                await _with_grace(work, stopped)
        finally:
            stopped.cancel()
            await batches.aclose()


async def _with_grace(work: Coroutine[Any, Any, None], stopped: asyncio.Task[Any]) -> None:
    """Await ``work``; once told to stop, only for so long: a command or a reader that hangs must not hold the process."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({task}, timeout=GRACE_S)
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    if task.cancelled():
        raise Stopped(
            f"told to stop, but the entries at hand were not taken within {GRACE_S:g} s",
            hint="The bookmark stands before them: they come again at the next start.",
        )
    task.result()


async def _print(batch: Batch, output: LineOutput) -> None:
    """Write before the bookmark moves: what is in the pipe is the reader's, what is in a file is on disk."""
    await output.write(b"".join(change.line() for change in batch.changes))
    await batch.done()


async def _run_commands(listener: Listener, batch: Batch, command: list[str], stop: asyncio.Event) -> None:
    for change in batch.changes:
        await _run_command(command, change)
        await listener.move_to(change.place)
        if stop.is_set():
            return


async def _run_command(command: list[str], change: Change) -> None:
    line = change.line()
    backoff = Backoff(first_s=0.2, delay_s_max=5.0)
    environment = {**os.environ, "HEADRACE_SEQUENCE_ID": str(change.sequence_id)}
    reason = ""
    for attempt in range(EXEC_ATTEMPTS_MAX):
        if attempt:
            await asyncio.sleep(backoff.next_delay())
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, env=environment, start_new_session=True
            )
        except OSError as error:
            raise Usage(f"--exec: {command[0]!r} can't be run: {error.strerror}") from None
        try:
            await process.communicate(line)
        except asyncio.CancelledError:
            with contextlib.suppress(ProcessLookupError):  # it may just have ended
                os.killpg(
                    process.pid, signal.SIGKILL
                )  # a session of its own: the command's children go with it
            await process.wait()
            raise
        if process.returncode == 0:
            return
        reason = f"exit code {process.returncode}"
    raise CommandFailed(
        f"{command[0]}: {reason} on entry {change.sequence_id}, {EXEC_ATTEMPTS_MAX} times",
        sequence_id=change.sequence_id,
    )
