"""What can be wrong with a folder of KWAL segments: what a backup agent wrote, and what reads them."""

from __future__ import annotations

from headrace.errors.root import Recovery
from headrace.errors.stops import Stopped


class SegmentCorrupt(Stopped):
    """A KWAL segment or its manifest is not what was written."""

    code = "segment-corrupt"
    hint = "Keep the file, and put an intact copy of it in its place; the message says where it is damaged."
    exit_code = 3


class SegmentGap(Stopped):
    """Between two KWAL segments entries are missing, or nobody can tell that none are."""

    code = "segment-gap"
    hint = (
        "Put the missing segment back, read a range without the gap, or accept it: .option('gaps', 'accept')."
    )
    exit_code = 3


class SegmentsOverlap(Stopped):
    """Two KWAL segments of a folder hold the same stretch of the journal."""

    code = "segments-overlap"
    hint = "Two agents wrote to this folder. Move the segments of one of them to a folder of their own."
    exit_code = 3


class ArchiveUnavailable(Stopped):
    """The folder of KWAL segments can't be read just now."""

    code = "archive-unavailable"
    recovery = Recovery.WAIT
    hint = (
        "Check the address and the rights of who reads; object stores are set up by fsspec's own environment."
    )
    exit_code = 4
