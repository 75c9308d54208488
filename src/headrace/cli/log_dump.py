"""``headrace log dump``: print a feed's entries straight from the journal, in a data folder or in a database."""

from __future__ import annotations

import json as json_text
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from headrace.cli.byte_progress import byte_progress
from headrace.errors import FeedNotFound, Usage
from headrace.log.files.examine import examine, frames_of_feed
from headrace.log.opening import frames_of_address, parse_store
from headrace.wire.entry import message_of
from headrace.wire.frame import Frame
from headrace.wire.rendering import entry_out


def dump_command(  # one parameter an option
    feed: str,
    /,
    *,
    from_: Annotated[int, Parameter(name="--from")] = 1,
    limit: int | None = None,
    data_dir: Path = Path("headrace-data"),
    store: Annotated[str | None, Parameter(env_var="HEADRACE_STORE")] = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Print the entries of a feed, one JSON object a line, as GET /feeds/{id}/entries gives them.

    What is printed was verified. At a damaged frame it stops with an error (exit code 3) that says where; entries behind
    it can be had with --from. A server may be running: its journal is read up to the mark.

    Parameters
    ----------
    feed
        The feed's name.
    from_
        The sequence id to begin at (default: the oldest there is).
    limit
        Print at most so many entries.
    data_dir
        The server's folder.
    store
        Print from a log in a database instead: postgresql://USER@HOST/DATABASE.
    json
        Print one JSON document with all entries instead of one line each.
    """
    if from_ < 0 or (limit is not None and limit < 1):
        raise Usage("--from counts from 1, and --limit must be at least 1")
    with closing(_frames(data_dir, store, feed, from_)) as frames:
        lines = _entries(frames, from_, limit)
        if json:
            print(json_text.dumps({"feed": feed, "entries": [json_text.loads(line) for line in lines]}))
            return
        for line in lines:
            sys.stdout.write(line.decode() + "\n")


def _frames(data_dir: Path, store: str | None, feed: str, first: int) -> Generator[Frame, None, None]:
    if store is not None:
        yield from frames_of_address(parse_store(store), feed, first)
        return
    with byte_progress("looking for the feed") as progress:
        findings = examine(data_dir, feed=feed, progress=progress)
    with closing(findings):
        if feed not in findings.names.values():
            raise FeedNotFound(f"there is no feed {feed} in {data_dir}")
        yield from frames_of_feed(findings, feed, first)


def _entries(frames: Iterable[Frame], first: int, limit: int | None) -> Iterator[bytes]:
    left = limit
    for frame in frames:
        for sequence_id, stored in enumerate(frame.entries(), frame.header.first_sequence_id):
            if sequence_id < first:
                continue
            if left is not None:
                if left == 0:
                    return
                left -= 1
            yield msgspec.json.encode(entry_out(message_of(stored), sequence_id))
