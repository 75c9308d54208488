"""``headrace listen``: follow a feed from a durable bookmark, to stdout or into a command."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from headrace.cli.health_options import HealthOptions
from headrace.cli.hydration_progress import hydration_progress
from headrace.cli.listen_exec import EachCommand, KeptCommand
from headrace.cli.listen_follow import Commands, Stdout, follow
from headrace.cli.listen_options import FilterOptions, HandingOptions
from headrace.cli.listen_parked import app as parked_app
from headrace.client.credential import Credential
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import BeyondHead, FeedNotFound, FeedRecreated, SequenceNotAvailable, Usage
from headrace.listener import BookmarkStore, Listener, ListenerSettings, open_bookmarks, shard_id
from headrace.listener.events import Start
from headrace.wire.documents import ms_of_rfc3339

app = App(name="listen", help="Follow a feed from a durable bookmark.")
app.command(parked_app, name="parked")

ONCE_FAILURES_MAX: Final = 6
"""With --once a server that does not answer is given up after so many tries, about ten seconds."""
ACK_CHANGES_MAX: Final = 100
"""With --ack line the bookmark is written after so many entries, or a second; so many can come again after a crash."""


@app.default
def listen_command(
    feed: str,
    *,
    from_: Annotated[str, Parameter(name="--from")] = "oldest",
    listener_id: str = "listen",
    bookmark: Annotated[str | None, Parameter(env_var="HEADRACE_BOOKMARK")] = None,
    snapshot: Literal["never", "needed"] = "never",
    filtering: FilterOptions | None = None,
    handing: HandingOptions | None = None,
    health: HealthOptions | None = None,
    once: Annotated[bool, Parameter(negative=())] = False,
    hold: Annotated[bool, Parameter(negative=())] = False,
    server: Annotated[str, Parameter(env_var="HEADRACE_SERVER")] = "http://127.0.0.1:8470",
    token_file: Path | None = None,
    ca_file: Path | None = None,
    insecure: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Follow a feed until told to stop; each change at least once, in order.

    Parameters
    ----------
    feed
        The change-feed-id.
    from_
        Where to begin without a bookmark: oldest, head, a sequence id, snapshot (the publisher's state, then what is newer),
        or a time (2026-11-22T07:00:00Z): the first entry committed then or later. A saved bookmark wins, and says so.
    listener_id
        The name under which the place is kept, here and at the server.
    bookmark
        Where the place is kept: a path or sqlite:///PATH, file:///PATH, postgresql://… (HEADRACE_BOOKMARK). Default: a
        SQLite file FEED.LISTENER-ID.bookmark in the current folder.
    snapshot
        needed: where retention has dropped what comes next, take the publisher's snapshot. never: end with an error.
    once
        Stop at the head that the feed has now.
    hold
        Ask retention to wait for this listener.
    server
        Address of the server (HEADRACE_SERVER).
    token_file
        File that holds the bearer token (else HEADRACE_TOKEN).
    ca_file
        PEM file of the authorities to trust (else HEADRACE_TLS_CA, else the public ones).
    insecure
        Send the token over plain http to another machine.
    """
    given, filters = handing or HandingOptions(), filtering or FilterOptions()
    settings, words = _settings(given, filters, once=once, hold=hold), given.words()
    health = health or HealthOptions()
    health.terms()
    settings = replace(settings, health=health.health, stalled_after=health.stalled_after, reports=not once)
    check_feed_id(feed)
    check_agent_id(listener_id, "listener-id")
    start, wanted = parse_start(from_), filters.wanted()
    where = Kept.of(bookmark, feed, shard_id(listener_id, wanted.shard))
    new = not where.exists()
    token = Credential.find(token_file)
    with closing(open_bookmarks(where.text)) as bookmarks, hydration_progress(as_json=given.json) as tell:
        listener = Listener(
            server, feed, listener_id, bookmarks,
            start=start, wanted=wanted, token=token, insecure=insecure, ca_file=ca_file, settings=settings,
            on_progress=tell,
        )  # fmt: skip
        try:
            _listen(listener, where, words, given.ack, snapshots=snapshot == "needed" or start == "snapshot")
        except FeedNotFound:
            if new:  # a mistyped name leaves nothing behind
                where.remove(bookmarks)
            raise


def _settings(given: HandingOptions, filters: FilterOptions, *, once: bool, hold: bool) -> ListenerSettings:
    return ListenerSettings(
        drain=once,
        hold=hold,
        change_filter=filters.change_filter,
        failures_max=ONCE_FAILURES_MAX if once else None,
        refusals=given.refusals(),
        bookmark_changes_max=ACK_CHANGES_MAX if given.ack == "line" else 1,
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the bookmark is: ``text`` as open_bookmarks takes it, ``path`` where that is a file."""

    text: str
    path: Path | None

    @classmethod
    def of(cls, text: str | None, feed: str, listener_id: str) -> Kept:
        """Return the place that ``--bookmark`` names, or the one in the current folder."""
        if text is None:
            text = re.sub(r"[^\w.@+-]", "_", f"{feed}.{listener_id}.bookmark")
        scheme, separator, rest = text.partition("://")
        if not separator:
            return cls(text, Path(text))
        return cls(text, Path(rest[1:]) if scheme in {"sqlite", "file"} else None)

    def __str__(self) -> str:
        """Return it for people: never a database's address, which may hold a password."""
        return str(self.path) if self.path is not None else "the database given with --bookmark"

    def exists(self) -> bool:
        """Tell whether there may be a bookmark already."""
        return self.path is None or self.path.exists()

    def remove(self, bookmarks: BookmarkStore) -> None:
        """Remove the file that was just made."""
        bookmarks.close()
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            self.path.with_name(f"{self.path.name}.lock").unlink(missing_ok=True)


def _listen(listener: Listener, where: Kept, words: list[str] | None, ack: str, *, snapshots: bool) -> None:
    """Follow with the bookmarks of ``where``, and say in an error what to do with them."""
    listener.check_filter()
    saved = listener.bookmark()
    if saved is not None:
        print(f"going on after sequence id {saved.sequence_id}, as {where} says", file=sys.stderr)
    try:
        if words is None:
            asyncio.run(follow(listener, Stdout(), snapshots=snapshots))
        else:
            command = KeptCommand(words) if ack == "line" else EachCommand(words)
            asyncio.run(follow(listener, Commands(listener, command, words[0]), snapshots=snapshots))
    except (BeyondHead, FeedRecreated, SequenceNotAvailable) as error:
        if isinstance(error, SequenceNotAvailable) and not snapshots:
            error.advice += " --snapshot needed does that."
        if listener.bookmark() is not None:
            error.advice += f" The place is kept in {where}: move that file away to begin by --from again."
        raise


def parse_start(text: str) -> Start:
    """Return what ``--from`` means; Usage for anything but oldest, head, snapshot, a sequence id from 1 up, or a time."""
    match text:
        case "oldest" | "head" | "snapshot":
            return text
        case _ if text.isascii() and text.isdigit() and int(text) >= 1:
            return int(text)
        case _ if _is_time(text):
            return datetime.fromisoformat(text.upper())
    raise Usage(
        f"--from: {text!r} is not a place",
        hint="Write oldest, head, snapshot, a sequence id such as 63, or a time with its zone such as "
        "2026-11-22T07:00:00Z.",
    )


def _is_time(text: str) -> bool:
    try:
        return ms_of_rfc3339(text) >= 0
    except (ValueError, OverflowError):
        return False
