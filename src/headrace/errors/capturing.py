"""Why capture refuses a source, stops, or stops one table of it."""

from __future__ import annotations

from headrace.errors.stops import Stopped


class SourceUnfit(Stopped):
    """The database server is not set up for capture; the message names each variable and the value it must have."""

    code = "source-unfit"
    hint = "Set what is named in the server's configuration; headrace capture check shows all of it."
    exit_code = 3


class SourceReplaced(Stopped):
    """The database server is not the one whose binlog the feed holds, or an older copy of it."""

    code = "source-replaced"
    hint = (
        "Find out which server this is. If its state shall be captured, begin a new feed with a new snapshot."
    )
    exit_code = 3


class PositionPurged(Stopped):
    """The database server has dropped the part of its binlog that comes next."""

    code = "position-purged"
    hint = "Begin a new feed with a new snapshot, and let the server keep its binlog for longer (expire_logs_days)."
    exit_code = 3


class BinlogInvalid(Stopped):
    """The binlog holds bytes that are not what its format says."""

    code = "binlog-invalid"
    hint = "Look at the file and the offset that are named, with mariadb-binlog; nothing of it was captured."
    exit_code = 3


class BinlogUnsupported(Stopped):
    """The binlog holds a change that can't be told row by row, or in a form that this version does not read."""

    code = "binlog-unsupported"
    hint = "Mend what is named at the source, then begin a new feed with a new snapshot."
    exit_code = 3


class TableStopped(Stopped):
    """A table can't be captured any more, or not at all; other tables go on."""

    code = "table-stopped"
    hint = "Mend what is named, or exclude the column, then run headrace capture copy for this table."
    exit_code = 3


class FeedUnfit(Stopped):
    """The feed holds what this capture did not write, or a source position that is none: nobody knows where to go on."""

    code = "feed-unfit"
    hint = "Name a feed of its own in capture.toml; an empty one begins with a new snapshot."
    exit_code = 3
