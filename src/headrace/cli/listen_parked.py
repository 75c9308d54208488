"""``headrace listen parked``: entries that a command refused and that were parked, with those that wait behind them."""

from __future__ import annotations

import asyncio
import json as json_text
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import App, Parameter

from headrace.cli.listen_exec import EachCommand, KeptCommand, parse_command
from headrace.entries.bookmark import Bookmark
from headrace.entries.feed import check_agent_id, check_feed_id
from headrace.errors import ParkedNotFound, Usage
from headrace.listener import BookmarkStore, Handover, OnError, ParkedEntry, Refusals, open_bookmarks

app = App(name="parked", help="See, replay or drop what a listener has parked. Stop the listener first.")

Where = Annotated[str, Parameter(env_var="HEADRACE_BOOKMARK")]
Flag = Annotated[bool, Parameter(negative=())]


@app.command(name="list")
def list_command(feed: str, *, bookmark: Where, listener_id: str = "listen", json: Flag = False) -> None:
    """Print what is parked, in the feed's order.

    Parameters
    ----------
    feed
        The change-feed-id.
    bookmark
        Where the listener keeps its place (HEADRACE_BOOKMARK).
    listener_id
        The listener's name.
    json
        Print one JSON document, with the entries.
    """
    with _opened(bookmark, feed, listener_id) as store:
        entries = store.parked(listener_id, feed)
    if json:
        print(msgspec.json.encode({"parked": entries}).decode())
        return
    for entry in entries:
        what = "waits" if entry.held else f"refused {entry.attempts} times: {entry.reason}"
        print(f"{entry.sequence_id}\t{entry.parked_at}\t{entry.key}\t{what}")
    if not entries:
        print("nothing is parked", file=sys.stderr)


@app.command(name="replay")
def replay_command(
    feed: str,
    *,
    bookmark: Where,
    exec_: Annotated[str, Parameter(name="--exec")],
    ack: Literal["exit", "line"] = "exit",
    sequence_id: int | None = None,
    attempts_max: int = 1,
    listener_id: str = "listen",
    json: Flag = False,
) -> None:
    """Give what is parked to the command again, each key in its order, up to an entry that is refused again.

    Parameters
    ----------
    feed
        The change-feed-id.
    bookmark
        Where the listener keeps its place (HEADRACE_BOOKMARK).
    exec_
        The command, as the listener has it.
    ack
        How it answers, as the listener has it.
    sequence_id
        Only the key of this parked entry (default: all).
    attempts_max
        How often each entry is tried.
    listener_id
        The listener's name.
    json
        Print one JSON document.
    """
    words = parse_command(exec_)
    if attempts_max < 1:
        raise Usage("--attempts-max must be at least 1")
    with _opened(bookmark, feed, listener_id) as store:
        chosen = _chosen(store.parked(listener_id, feed), sequence_id, every=sequence_id is None)
        command = KeptCommand(words) if ack == "line" else EachCommand(words)
        taken, left = asyncio.run(_replay(store, (listener_id, feed), command, attempts_max, chosen))
    if json:
        print(json_text.dumps({"taken": taken, "parked": left}))
    else:
        print(f"{taken} taken, {left} still parked")


@app.command(name="drop")
def drop_command(
    feed: str,
    *,
    bookmark: Where,
    sequence_id: int | None = None,
    all_: Annotated[bool, Parameter(name="--all", negative=())] = False,
    listener_id: str = "listen",
    json: Flag = False,
) -> None:
    """Forget a parked entry: the consumer never gets it. What waits behind it comes at the listener's next start.

    Parameters
    ----------
    feed
        The change-feed-id.
    bookmark
        Where the listener keeps its place (HEADRACE_BOOKMARK).
    sequence_id
        The parked entry.
    all_
        All that is parked, and all that waits behind it.
    listener_id
        The listener's name.
    json
        Print one JSON document.
    """
    if (sequence_id is None) != all_:
        raise Usage("name one entry with --sequence-id, or all with --all")
    with _opened(bookmark, feed, listener_id) as store:
        chosen = _chosen(store.parked(listener_id, feed), sequence_id, every=all_)
        store.claim(listener_id, feed)
        dropped = [entry.sequence_id for entry in store.parked(listener_id, feed) if chosen(entry)]
        for number in dropped:
            store.unpark(listener_id, feed, number)
    print(json_text.dumps({"dropped": dropped}) if json else f"{len(dropped)} dropped")


async def _replay(
    store: BookmarkStore,
    place: tuple[str, str],
    command: EachCommand | KeptCommand,
    attempts_max: int,
    chosen: Callable[[ParkedEntry], bool],
) -> tuple[int, int]:
    async def move(bookmark: Bookmark) -> None:
        raise RuntimeError(f"a replay moves no bookmark, to {bookmark.sequence_id}")

    refusals = Refusals(OnError.PARK, attempts_max)
    handover = Handover(store, place, command.take, refusals, move=move, moved=lambda _: None)
    try:
        await asyncio.to_thread(store.claim, *place)
        return await handover.replay(chosen)
    finally:
        await command.close()


def _chosen(
    entries: list[ParkedEntry], sequence_id: int | None, *, every: bool
) -> Callable[[ParkedEntry], bool]:
    if sequence_id is not None and all(entry.sequence_id != sequence_id for entry in entries):
        raise ParkedNotFound(f"no entry {sequence_id} is parked")
    return lambda entry: every or entry.sequence_id == sequence_id


@contextmanager
def _opened(bookmark: str, feed: str, listener_id: str) -> Iterator[BookmarkStore]:
    check_feed_id(feed)
    check_agent_id(listener_id, "listener-id")
    scheme, separator, rest = bookmark.partition("://")
    path = Path(rest[1:]) if separator else Path(bookmark)
    if (not separator or scheme in {"sqlite", "file"}) and not path.exists():
        raise Usage(f"there is no bookmark file {path}", hint="Name the file that the listener writes.")
    with closing(open_bookmarks(bookmark)) as store:
        yield store
