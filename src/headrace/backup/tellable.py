"""What of a segment can be archived: its entries in front of the first one whose feed nobody was told of.

An LSN has half of a sequence id, so a manifest needs the server's word on each feed that is new. A server that has died says
nothing any more, and what the agent holds may be the only copy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from headrace.backup.deposits import surveyed
from headrace.backup.gathering import Finished, front
from headrace.backup.histories import Histories
from headrace.backup.registry import Registry
from headrace.errors import Forbidden, HeadraceError
from headrace.runtime.logs import get_logger
from headrace.wire.documents import FeedView
from headrace.wire.kwal_feeds import FeedRun

logger = get_logger("backup")


class Tellable(NamedTuple):
    """``finished``: what can be archived, None for nothing; ``runs``: its survey; ``registry``: the server's feeds.

    ``failure``: why that is not all. Nothing may be archived behind it then.
    """

    finished: Finished | None
    runs: list[FeedRun]
    registry: Mapping[int, FeedView]
    failure: HeadraceError | None = None


async def tellable(
    finished: Finished,
    incarnations: Mapping[int, str],
    histories: Histories,
    registry: Registry,
    stop: asyncio.Event,
    *,
    patient: bool,
) -> Tellable:
    """Ask the server for its feeds as :meth:`Registry.for_segment` does, and return what can be archived by its answer.

    JournalCorrupt where an entry is none; Forbidden. Any other failure to ask is returned.
    """
    runs = await asyncio.to_thread(surveyed, finished, histories)
    try:
        feeds = await registry.for_segment(
            lambda known: histories.stranger(runs, incarnations, known) is None, stop, patient=patient
        )
    except Forbidden:
        raise
    except HeadraceError as error:
        stranger = histories.stranger(runs, incarnations, registry.known)
        if stranger is None:
            raise
        part = await asyncio.to_thread(front, finished, stranger.first_lsn)
        left = finished.sealed.entries - (part.sealed.entries if part is not None else 0)
        detail = (
            f"of what was held the {left:,} entries from lsn={stranger.first_lsn} on are NOT archived, nor any behind "
            f"them: with that one begins {stranger.feed or f'the feed of region {stranger.region_id}'}, and the server "
            f"was gone before it told of that feed: {error.detail}"
        )
        logger.error(
            "not all that was held can be archived", entries=left, lsn=str(stranger.first_lsn), detail=detail
        )
        failure = type(error)(detail, hint=_HINT)
        runs = await asyncio.to_thread(surveyed, part, histories) if part is not None else []
        return Tellable(part, runs, registry.known, failure)
    return Tellable(finished, runs, feeds)


_HINT = (
    "If the server still has its data, start it and then this command: they come again. Else they are lost, unless their "
    "publisher has them."
)
