"""Why a process ends or waits, each naming the command that goes on."""

from __future__ import annotations

from headrace.errors.root import HeadraceError, Recovery


class Stopped(HeadraceError):
    """The process can't go on and names the command that does."""


class Usage(Stopped):
    """The command was called wrongly."""

    code = "usage"
    hint = "See --help."
    exit_code = 2


class ConfigInvalid(Stopped):
    """A configuration file has an unknown key or a wrong value."""

    code = "config-invalid"
    hint = "Mend the key that is named."
    exit_code = 2


class DsnInvalid(Stopped):
    """The source's address can't be used."""

    code = "dsn-invalid"
    hint = "Write sqlite:///relative.db, sqlite:////absolute.db or postgresql://user@host/database."
    exit_code = 2


class TableNotFound(Stopped):
    """The source has no such table."""

    code = "table-not-found"
    recovery = Recovery.ATTEND
    hint = "Check the name; the tables there are listed in the message."
    exit_code = 2


class PortInUse(Stopped):
    """The address to listen on is taken."""

    code = "port-in-use"
    hint = "Stop the other process, or choose another address with --http."


class SourceUnavailable(Stopped):
    """The source database can't be reached or is locked."""

    code = "source-unavailable"
    recovery = Recovery.WAIT
    hint = "Check that the database is there and can be written by this user."


class SourceLocked(SourceUnavailable):
    """Somebody holds a lock of the source database for longer than was waited."""

    code = "source-locked"
    hint = "Look who holds it: SHOW PROCESSLIST, or the table information_schema.METADATA_LOCK_INFO."


class Stalled(Stopped):
    """Something waits, and the process has not moved for a minute."""

    code = "stalled"
    recovery = Recovery.WAIT
    hint = "The message says what it waits for. It connects anew by itself: docs/howto/health.md."


class SourceForbidden(Stopped):
    """The source database does not let this role do what is needed."""

    code = "source-forbidden"
    hint = "`headrace publisher grants` prints the SQL that an administrator of the database runs."
    exit_code = 3


class PlatformUnsupported(Stopped):
    """The server does not run on this platform."""

    code = "platform-unsupported"
    hint = "Run it on Linux (on Windows: in WSL 2)."


class SetupMissing(Stopped):
    """A part that this command needs is not installed."""

    code = "setup-missing"
    hint = "Run `pip install 'headrace[spark]'` and `headrace pipeline setup`."


class FormatTooNew(Stopped):
    """A file was written by a newer version, in a form that this one can't read; nothing was touched."""

    code = "format-too-new"
    hint = "Use the Headrace version that is named, or a newer one."
    exit_code = 3


class DataFolderLocked(Stopped):
    """Another server owns this data folder."""

    code = "data-folder-locked"
    hint = "Stop the other server, or give this one its own --data-dir."
    exit_code = 3


class StoreForbidden(Stopped):
    """The store's database does not let this role do what is needed."""

    code = "store-forbidden"
    hint = "Let the role create a schema in that database, or give it the rights of docs/howto/several-servers.md."
    exit_code = 3


class StoreUnsafe(Stopped):
    """The store's database could take back what it has confirmed."""

    code = "store-unsafe"
    hint = "Mend the setting that is named, then start again."
    exit_code = 3


class JournalLoss(Stopped):
    """The journal ends below what was already acknowledged."""

    code = "journal-loss"
    hint = "Do not delete anything: put the missing journal segment back, or restore from a backup."
    exit_code = 3


class JournalCorrupt(Stopped):
    """A stored frame or file does not match its checksum."""

    code = "journal-corrupt"
    hint = "Keep the file. `headrace log verify` lists all that is damaged, `headrace log repair` mends it on demand."
    http_status = 500
    exit_code = 3


class MetadataCorrupt(Stopped):
    """A row of the metadata database does not match its checksum."""

    code = "metadata-corrupt"
    hint = (
        "Register the listener again, or let `headrace log repair` remove the row: docs/howto/damaged-log.md says what "
        "that costs."
    )
    http_status = 500
    exit_code = 3


class AttachUnsafe(Stopped):
    """This table can't be attached without losing changes."""

    code = "attach-unsafe"
    recovery = Recovery.ATTEND
    hint = "The message says which change would be lost and what makes it safe."
    exit_code = 3


class FeedBehindOutbox(Stopped):
    """The feed has lost entries that the outbox had already handed over and swept."""

    code = "feed-behind-outbox"
    hint = "The server's data is older than the outbox."
    exit_code = 3


class OutboxBehindFeed(Stopped):
    """The feed holds entries that the outbox has not handed over: the source was restored."""

    code = "outbox-behind-feed"
    hint = "The source's data is older than the feed."
    exit_code = 3


class AgentFenced(Stopped):
    """Another process owns this publisher's feed now."""

    code = "agent-fenced"
    hint = "A newer agent runs. Start this one again only if the other is meant to stop."
    exit_code = 3


class ValueUnfit(Stopped):
    """A value does not fit the type that the table's schema names."""

    code = "value-unfit"
    hint = "Correct the row at its source, or attach the table with that column left out."
    exit_code = 3


class DemoFailed(Stopped):
    """A process of the demo did not do its part."""

    code = "demo-failed"
    hint = "Run it again with --keep and look at the logs in its folder."
