"""What a query has appended last to each feed, kept beside its checkpoint. Called on the driver: read before each batch,
replaced after it.

The feed alone can't say that it lost something: an old copy of a server put back looks like a feed whose newest batches had
no rows. ``docs/formats/sink-position.md`` describes the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from headrace.errors import BatchSplit, CheckpointNotFound, CheckpointUnfit
from headrace.pipeline.checkpoint_folder import METADATA, Folder, manager_of
from headrace.pipeline.sink.position import LastAppend
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import SINK_POSITION, check_readable

NAME: Final = "headrace-appends.json"
_U64 = Annotated[int, msgspec.Meta(ge=0)]


class Appends(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """The file. ``query`` and ``agent_id``: of whom it is; what another one wrote under this name says nothing."""

    written_as: int = SINK_POSITION.written_as
    readable_from: int = SINK_POSITION.readable_from
    query: str
    agent_id: str
    feeds: dict[str, LastAppend]


class _Versions(msgspec.Struct, rename="kebab"):
    readable_from: _U64


def encode(appends: Appends) -> bytes:
    """Return the file's bytes: JSON, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(appends)) + b"\n"


def decode(data: bytes, where: str) -> Appends:
    """Return what the file ``where`` holds. FormatTooNew; CheckpointUnfit if it is damaged."""
    try:
        check_readable(where, decode_json(data, _Versions).readable_from, SINK_POSITION)
        return decode_json(data, Appends)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointUnfit(
            f"{where} is not what Spark's sink wrote there: {error}",
            hint="Put the file's own copy back. Without the file the query goes on too, and begins it anew; a feed that "
            "has lost batches until then is not told.",
        ) from None


def folder_of(checkpoint: str, kept_in: str) -> Folder | None:
    """Return where a query keeps its appends; None if nowhere. Either place may be empty: it was not named.

    That is ``kept_in`` if it is named, else the checkpoint, if Python can reach it as Spark does: as a folder of this disk.
    """
    if kept_in:
        return Folder(kept_in)
    if not checkpoint or manager_of(checkpoint) is None:
        return None
    folder = Folder(checkpoint)
    # Where Hadoop's settings name a cluster's file system, a path without a scheme is not one of this disk.
    return folder if folder.has(METADATA) else None


def read(folder: Folder | None) -> Appends | None:
    """Return what is kept in the folder; None if there is nothing yet.

    Raises as :func:`decode` does, and CheckpointUnfit if the place gives no answer.
    """
    if folder is None:
        return None
    try:
        text = folder.read(NAME)
    except CheckpointNotFound:
        return None
    return decode(text.encode(), f"{folder.location}/{NAME}")


def known_to(kept: Appends | None, query: str, agent_id: str) -> Mapping[str, LastAppend]:
    """Return what this query, as this agent, has appended last to each feed; empty where another one wrote the file."""
    return kept.feeds if kept is not None and (kept.query, kept.agent_id) == (query, agent_id) else {}


def renewed(kept: Appends | None, appends: Appends) -> Appends:
    """Return what is to be kept after a batch: the newest append to each feed that this query ever wrote to."""
    before = known_to(kept, appends.query, appends.agent_id)
    return msgspec.structs.replace(appends, feeds={**before, **appends.feeds})


def write(folder: Folder | None, appends: Appends) -> None:
    """Keep the appends of a batch besides those to other feeds, durably, before Spark takes the batch for done."""
    before = read(folder)
    after = renewed(before, appends)
    if folder is not None and after != before:
        folder.write(NAME, encode(after).decode())


def joined(tasks: Iterable[Mapping[str, LastAppend]]) -> dict[str, LastAppend]:
    """Return a batch's appends of all its tasks. BatchSplit if two tasks had rows for one feed.

    A batch that runs again asks this of its own tasks: two with equal rows each found them in the feed.
    """
    found: dict[str, LastAppend] = {}
    for task in tasks:
        for feed, append in task.items():
            if feed in found:
                last = append.first_sequence_id + append.rows - 1
                raise BatchSplit(
                    f"the feed {feed}, entries {append.first_sequence_id} to {last}: two tasks of batch {append.batch} "
                    f"had rows for the feed"
                )
            found[feed] = append
    return found
