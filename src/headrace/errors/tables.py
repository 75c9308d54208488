"""Why the tables that Spark keeps of a feed can't be read: none is there, or not this one, or not whole."""

from __future__ import annotations

from headrace.errors.stops import Stopped


class NothingPublished(Stopped):
    """The tables of this folder have not been published yet."""

    code = "nothing-published"
    hint = "Run `headrace pipeline tables` first."


class TableNotPublished(Stopped):
    """The published moment has no table of this name."""

    code = "table-not-published"
    hint = (
        "The tables that it has are listed in the message; `headrace pipeline status` says which are stopped."
    )


class StaleTable(Stopped):
    """This table is stopped: what it shows is older than the moment of the others."""

    code = "table-stale"
    hint = "`headrace pipeline status` says why, and how it goes on; the option stopped=accept reads it as it is."


class VersionGone(Stopped):
    """A version of a table can't be read any more, or is none that this program can read."""

    code = "tables-version-gone"
    hint = "Load the table again: what is published now can be read. Old moments are kept for 24 hours."


class LedgerCorrupt(Stopped):
    """A file beside the tables can't be read."""

    code = "tables-ledger-corrupt"
    hint = (
        "Restore the `_headrace` folder from a backup, or start this feed's tables anew in an empty folder."
    )
    exit_code = 3
