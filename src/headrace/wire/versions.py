"""Every stored format carries two numbers, *written-as* and *readable-from*; a newer readable-from is refused."""

from __future__ import annotations

from typing import Final, NamedTuple

from headrace import __version__
from headrace.errors import FormatTooNew


class FormatVersion(NamedTuple):
    """``written_as``: the writer's version of the format. ``readable_from``: the oldest version that can read it."""

    written_as: int
    readable_from: int


FRAME: Final = FormatVersion(2, 1)
SEGMENT: Final = FormatVersion(2, 1)
SEGMENT_REBUILT: Final = 2
"""Readable-from of a segment of a rebuilt journal: older programs would pass over what is lost, and give numbers again."""
INDEX: Final = FormatVersion(1, 1)
MARK: Final = FormatVersion(1, 1)
METADATA: Final = FormatVersion(7, 2)
BOOKMARKS: Final = FormatVersion(3, 1)
BOOKMARK_FILE: Final = FormatVersion(2, 1)
BOOKMARK_TABLES: Final = FormatVersion(2, 1)
SEEN: Final = FormatVersion(1, 1)
OUTBOX: Final = FormatVersion(1, 1)
TABLES: Final = FormatVersion(3, 1)
SPARK_OFFSET: Final = FormatVersion(2, 2)
CHECKPOINT: Final = FormatVersion(1, 1)
CAPTURE_POSITION: Final = FormatVersion(1, 1)
SINK_POSITION: Final = FormatVersion(1, 1)
LOG_TABLES: Final = FormatVersion(7, 2)
KWAL: Final = FormatVersion(1, 1)
KWAL_MANIFEST: Final = FormatVersion(4, 1)
BASE: Final = FormatVersion(1, 1)
LEASE: Final = FormatVersion(1, 1)
GAP: Final = FormatVersion(1, 1)


def check_readable(what: str, readable_from: int, ours: FormatVersion) -> None:
    """Return if this program can read ``what`` (a file's name), else raise FormatTooNew before anything is touched."""
    if readable_from > ours.written_as:
        raise FormatTooNew(
            f"{what} was written by a newer Headrace: reading it takes format version {readable_from}, "
            f"this program (Headrace {__version__}) knows up to {ours.written_as}",
            hint="Use the Headrace that wrote it, or a newer one; docs/reference/compatibility.md lists which "
            "release reads which format. Nothing was touched.",
        )
