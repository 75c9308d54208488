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


class BaseCorrupt(Stopped):
    """A base snapshot or its manifest is not what was written."""

    code = "base-corrupt"
    hint = "Keep it, put an intact copy in its place, or take an older base: --snapshot PATH."
    exit_code = 3


class ArchiveConflict(Stopped):
    """A file of that name is in the archive already, with other bytes."""

    code = "archive-conflict"
    hint = (
        "Another agent wrote to this folder, or a file was changed. headrace wal verify says what is there."
    )
    exit_code = 3


class ArchiveOwned(Stopped):
    """Another backup agent owns the folder."""

    code = "archive-owned"
    hint = "One agent writes to a folder. Stop the other one, or give this one a folder of its own."
    exit_code = 3


class ArchiveFull(Stopped):
    """The archive takes no more bytes."""

    code = "archive-full"
    recovery = Recovery.WAIT
    hint = "Make room. Nothing was acked that is not in the archive; the server keeps it as long as retention allows."
    exit_code = 1


class ControlsTooMany(Stopped):
    """A base would have more control entries in memory at once than it may; nothing of it was written."""

    code = "controls-too-many"
    hint = (
        "Make a base of an earlier moment first (--to-time): fewer come at once. Where that one has as many, give the "
        "command more memory and raise --max-control-bytes (beyond 1 GiB with --conf spark.driver.maxResultSize=BYTES too)."
    )
    exit_code = 3


class BackupGap(Stopped):
    """The server no longer has entries that the archive does not have yet."""

    code = "backup-gap"
    hint = "They are lost for the archive. headrace wal backup --accept-gap REASON goes on behind them, on record."
    exit_code = 3


class TargetUnreachable(Stopped):
    """The archive can't rebuild that moment."""

    code = "target-unreachable"
    hint = "headrace wal list shows the reachable window, headrace wal plan the nearest points."
    exit_code = 4


class TargetInsideAppend(Stopped):
    """The LSN that was named is inside an append, which is never torn."""

    code = "target-inside-append"
    hint = "Name one of the two ends, or say --exact-entry."
    exit_code = 3


class OutNotEmpty(Stopped):
    """The folder that a restore is to write is not empty."""

    code = "out-not-empty"
    hint = "Name a folder that is empty or not there yet; a restore never mixes with what is there."
    exit_code = 3


class RestoreInexact(Stopped):
    """What was restored is not what the plan says: it was taken away again."""

    code = "restore-inexact"
    hint = "headrace wal verify finds what is damaged. Keep the archive as it is."
    exit_code = 3


class IdentityNeeded(Stopped):
    """The segments are encrypted, and no key that opens them was given."""

    code = "identity-needed"
    hint = "Name the file of an age identity that they were encrypted to: --identity FILE."
    exit_code = 2


class PruneRefused(Stopped):
    """Pruning would take away what a restore needs."""

    code = "prune-refused"
    hint = "Make a newer base (headrace snapshot create), wait for the restore to end, or keep more days."
    exit_code = 3
