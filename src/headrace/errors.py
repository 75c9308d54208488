"""The whole error tree: a stable code, what to do, and whether trying again can help.

::

    HeadraceError
    ├── Refused                     the request can't be served as it is; nothing was written
    │   ├── InvalidRequest          400  malformed, unknown member, wrong type (names the member)
    │   ├── TooLarge                413  body or entry over the limit
    │   ├── FeedNotFound            404
    │   ├── NotRegistered           409  publisher or listener never registered
    │   ├── FeedOwned               409  another agent owns the feed
    │   ├── Fenced                  409  a newer registration took over
    │   ├── Quarantined             423  the publisher sent an entry twice; an operator must release it
    │   ├── DuplicateEntry          409  ``sequence-id`` already in the feed
    │   ├── SequenceGap             409  ``sequence-id`` beyond the next one
    │   ├── OffsetMismatch          409  ``expected-offset`` is not where the log is
    │   ├── FeedRecreated           409  the bookmark is of another incarnation or another history
    │   ├── BeyondHead              409  the place named is above the head
    │   ├── SequenceNotAvailable    410  the range was dropped by retention
    │   └── SequenceLost            410  the range was damaged and skipped by a repair
    ├── Unavailable                 try again later (503)
    │   ├── StoreUnavailable        the store can't persist
    │   ├── WriterStopped           an fsync failed: no append until a restart
    │   ├── ClockLead               the log's clock leads the wall clock by too much
    │   └── ServerUnreachable       no answer from the server; a write's outcome may be unknown
    └── Stopped                     the process ends and says which command goes on
        ├── ConfigInvalid, DsnInvalid, TableNotFound, Usage                       exit 2
        ├── PortInUse, SourceUnavailable, PlatformUnsupported, SetupMissing       exit 1
        ├── FormatTooNew, DataFolderLocked, JournalLoss, JournalCorrupt           exit 3
        ├── AttachUnsafe, FeedBehindOutbox, OutboxBehindFeed, AgentFenced         exit 3
        └── ValueUnfit              a stored value does not fit the type its schema names; exit 3

A code never changes once released. HTTP status, exit code and retryability are class attributes: every face says the same.
"""

from __future__ import annotations

from typing import Any, ClassVar


class HeadraceError(Exception):
    """Something went wrong in Headrace; the subclass says what."""

    code: ClassVar[str] = "failed"
    hint: ClassVar[str] = "See the log of the process for the reason."
    retryable: ClassVar[bool] = False
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, detail: str = "", /, *, hint: str | None = None, **members: Any) -> None:
        """Keep ``detail`` (default: the class's docstring), an own ``hint`` and extra members of the problem document.

        Member names are written with underscores here and with hyphens on the wire; ``None`` members are left out.
        """
        self.detail = detail or (type(self).__doc__ or "").strip()
        self.advice = hint if hint is not None else self.hint
        self.members = {name.replace("_", "-"): value for name, value in members.items() if value is not None}
        super().__init__(self.detail)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_revive, (type(self), self.detail, self.advice, self.members))


def _revive(kind: type[HeadraceError], detail: str, advice: str, members: dict[str, Any]) -> HeadraceError:
    error = kind(detail, hint=advice)
    error.members = members
    return error


class Refused(HeadraceError):
    """The request can't be served as it is; nothing was written."""


class InvalidRequest(Refused):
    """The request is malformed."""

    code = "invalid-request"
    hint = "Mend the member that is named; nothing was written."
    http_status = 400
    exit_code = 2


class TooLarge(Refused):
    """The body or an entry is over the limit."""

    code = "too-large"
    hint = "Send fewer entries at once, or raise the limit at the server."
    http_status = 413


class FeedNotFound(Refused):
    """There is no such feed."""

    code = "feed-not-found"
    hint = "A feed is made by the first registration of its publisher; check the name at GET /feeds."
    http_status = 404


class RouteNotFound(Refused):
    """There is nothing at this address."""

    code = "not-found"
    hint = "The addresses are listed at /openapi.json."
    http_status = 404


class MethodNotAllowed(Refused):
    """This address does not take this method."""

    code = "method-not-allowed"
    hint = "The methods of each address are listed at /openapi.json."
    http_status = 405


class NotRegistered(Refused):
    """The publisher or listener has not registered with this feed."""

    code = "not-registered"
    hint = "Register first: POST /publishers/register or POST /listeners/register."
    http_status = 409


class FeedOwned(Refused):
    """Another agent owns this feed."""

    code = "feed-owned"
    hint = "Stop the other agent, then register with takeover: true."
    http_status = 409
    exit_code = 3


class Fenced(Refused):
    """A newer registration has taken over; this one may not write any more."""

    code = "fenced"
    hint = "Another process runs as this publisher. Stop one of the two; the newer one goes on."
    http_status = 409
    exit_code = 3


class Quarantined(Refused):
    """This publisher sent an entry that the feed already had; its posts are refused until it is released."""

    code = "quarantined"
    hint = "Compare outbox and feed around the sequence id, then POST /publishers/{agent-id}/release."
    http_status = 423
    exit_code = 3


class DuplicateEntry(Refused):
    """The sequence id is already in the feed; the publisher is now quarantined."""

    code = "duplicate-entry"
    hint = "Compare outbox and feed around the sequence id, then POST /publishers/{agent-id}/release."
    http_status = 409
    exit_code = 3


class SequenceGap(Refused):
    """The sequence id is beyond the feed's next one."""

    code = "sequence-gap"
    hint = "Post the missing entries first: the feed's next sequence id is in `expected`."
    http_status = 409


class OffsetMismatch(Refused):
    """The log is not where the append expected it to be."""

    code = "offset-mismatch"
    hint = "Read the entries you have not seen, then append at `actual-next`."
    http_status = 409


class FeedRecreated(Refused):
    """The bookmark belongs to another history of this feed."""

    code = "feed-recreated"
    hint = "The feed was made anew or restored: take a fresh start (headrace listen --from oldest) or a snapshot."
    http_status = 409
    exit_code = 3


class BeyondHead(Refused):
    """The place named lies above the feed's head."""

    code = "beyond-head"
    hint = "This consumer has seen more than the feed holds: the feed may be an old copy. Check before you go on."
    http_status = 409
    exit_code = 3


class SequenceNotAvailable(Refused):
    """The entries asked for are no longer retained."""

    code = "sequence-not-available"
    hint = "Take a snapshot of the publisher's state, then go on from its sequence id."
    http_status = 410
    exit_code = 4


class SequenceLost(Refused):
    """The entries asked for were damaged and a repair skipped them."""

    code = "sequence-lost"
    hint = "The lost range is named; take a snapshot, then go on after it."
    http_status = 410
    exit_code = 4


class Unavailable(HeadraceError):
    """Not now; trying again later can help."""

    code = "unavailable"
    retryable = True
    http_status = 503
    hint = "Wait as Retry-After says and try again."


class StoreUnavailable(Unavailable):
    """The store can't persist; nothing was acknowledged."""

    code = "store-unavailable"


class WriterStopped(Unavailable):
    """An fsync failed, so this server accepts no append until it is restarted."""

    code = "writer-stopped"
    hint = "Check the disk, then restart the server: it recovers what was durable."


class ClockLead(Unavailable):
    """The log's clock leads the wall clock by more than clock-lead-max."""

    code = "clock-lead"
    hint = "Mend the machine's clock; appends go on when the wall clock has caught up."


class ServerUnreachable(Unavailable):
    """No answer from the server."""

    code = "server-unreachable"
    hint = "Is `headrace serve` running there? The address is --server or HEADRACE_SERVER."
    exit_code = 4


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
    hint = "Write sqlite:///relative.db or sqlite:////absolute.db."
    exit_code = 2


class TableNotFound(Stopped):
    """The source has no such table."""

    code = "table-not-found"
    hint = "Check the name; the tables there are listed in the message."
    exit_code = 2


class PortInUse(Stopped):
    """The address to listen on is taken."""

    code = "port-in-use"
    hint = "Stop the other process, or choose another address with --http."


class SourceUnavailable(Stopped):
    """The source database can't be reached or is locked."""

    code = "source-unavailable"
    retryable = True
    hint = "Check that the database is there and can be written by this user."


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


class JournalLoss(Stopped):
    """The journal ends below what was already acknowledged."""

    code = "journal-loss"
    hint = "Do not delete anything: put the missing journal segment back, or restore from a backup."
    exit_code = 3


class JournalCorrupt(Stopped):
    """A stored frame or file does not match its checksum."""

    code = "journal-corrupt"
    hint = "Keep the file; the position, feed and sequence range are named."
    http_status = 500
    exit_code = 3


class AttachUnsafe(Stopped):
    """This table can't be attached without losing changes."""

    code = "attach-unsafe"
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


def every_error() -> list[type[HeadraceError]]:
    """Return every class of the tree that has a code of its own, sorted by code (for docs and for the client)."""
    found: list[type[HeadraceError]] = []
    waiting: list[type[HeadraceError]] = [HeadraceError]
    while waiting:
        kind = waiting.pop()
        waiting.extend(kind.__subclasses__())
        if "code" in vars(kind):
            found.append(kind)
    return sorted(found, key=lambda kind: kind.code)


def by_code(code: str) -> type[HeadraceError]:
    """Return the class with this stable code; :class:`HeadraceError` for a code that this version doesn't know."""
    return next((kind for kind in every_error() if kind.code == code), HeadraceError)
