"""How much room a restore takes in OUT, told by what the manifests say, before a byte is written.

One copy of the base's rows is sure: as pieces that tables are folded from, or as what is restored. How large tables are
beside the pieces, and what segments add, is not: rows are overwritten, merged and compressed anew. So the one refuses, the
other warns.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.errors import ArchiveFull
from headrace.pipeline.restore.lines import Kept
from headrace.pipeline.restore.pieces import DIRECT_MAX
from headrace.pipeline.restore.scanning import Part
from headrace.runtime.logs import get_logger
from headrace.wire.base_manifest import BaseManifest

logger = get_logger("pipeline")


class Room(NamedTuple):
    """Bytes that a restore takes. ``base``: of the base's rows; ``copies``: how often they stand there at once, at most.

    ``is_sure``: ``base`` is what the base's files hold; else a share of it by the number of entries. ``segments``: of the
    wanted entries in the segments, as they stand there.
    """

    base: int
    copies: int
    is_sure: bool
    segments: int

    @property
    def needed(self) -> int:
        """What it surely takes."""
        return self.base if self.is_sure else 0

    @property
    def expected(self) -> int:
        """What it may take: rows that stay are as large as their entries."""
        return self.base * self.copies + self.segments


def room_of(
    base: BaseManifest | None, parts: Sequence[Part], feeds: Sequence[Kept], *, pieces_of: int | None
) -> Room:
    """Return what a restore of these feeds takes. ``pieces_of``: rows of a piece of the base; None: nothing is cut."""
    spans = {(span.feed, span.incarnation) for one in feeds for span in one.spans}
    segments = sum(_share(part, spans) for part in parts)
    if base is None:
        return Room(0, 1, True, segments)
    size = sum(one.size for one in base.files)
    total = sum(one.entries for one in base.feeds)
    wanted: dict[str, int] = {}
    for one in base.feeds:
        if (one.feed, one.incarnation) in spans:
            wanted[one.feed] = wanted.get(one.feed, 0) + one.entries
    kept = sum(wanted.values())
    pieces = sum(-(-rows // pieces_of) for rows in wanted.values()) if pieces_of is not None else 0
    copies = 2 if pieces > DIRECT_MAX else 1
    return Room(size * kept // total if total else 0, copies, kept == total, segments)


def _share(part: Part, spans: Collection[tuple[str, str]]) -> int:
    """Return the bytes of the wanted entries of a segment, if all are as large."""
    held = wanted = 0
    for one in part.manifest.feeds:
        entries = one.last_sequence_id - one.first_sequence_id + 1
        held += entries
        wanted += entries if (one.feed, one.incarnation) in spans else 0
    return part.size * wanted // held if held else 0


def check_room(out: Path, room: Room) -> list[str]:
    """Return a warning if ``out`` may have too little room, [] if it has enough.

    ArchiveFull, naming what there is and what is needed, if it surely has too little. Nothing was written then.
    """
    free = shutil.disk_usage(next(one for one in (out, *out.parents) if one.exists())).free
    if free < room.needed:
        raise ArchiveFull(
            f"{out} has room for {free:,} bytes, and the base alone has {room.needed:,}; with the segments it may take "
            f"{room.expected:,}",
            hint="Name a folder on a larger volume: --out DIR. Nothing was written.",
        )
    if free >= room.expected:
        return []
    twice = ", the base twice, as it is folded in pieces" if room.copies > 1 else ""
    warning = (
        f"{out} had room for {free:,} bytes when the restore began, and base and segments have {room.expected:,}{twice}: "
        "whether that is enough depends on how much of it is overwritten, and how well tables compress it"
    )
    logger.warning("the restore may find no room", detail=warning)
    return [warning]
