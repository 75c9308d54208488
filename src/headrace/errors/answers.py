"""What a server answers: requests that are refused, and what can't be done just now."""

from __future__ import annotations

from headrace.errors.root import HeadraceError, Recovery


class Refused(HeadraceError):
    """The request can't be served as it is; nothing was written by it.

    Nor by an earlier try of it? ``side_effects`` is ``none`` only where no such request can ever have been taken, and where
    nothing is appended at all. What else refuses an append has the member that its judging came to.
    """


class InvalidRequest(Refused):
    """The request is malformed."""

    code = "invalid-request"
    side_effects = "none"
    hint = "Mend the member that is named; nothing was written."
    http_status = 400
    exit_code = 2


class TooLarge(Refused):
    """The body or an entry is over the limit."""

    code = "too-large"
    side_effects = "none"
    hint = "Send fewer entries at once, or smaller ones: the limits are fixed."
    http_status = 413


class UriTooLong(Refused):
    """The address with its query string is longer than is taken."""

    code = "uri-too-long"
    side_effects = "none"
    hint = "Name fewer members in the query string; names have at most 200 characters."
    http_status = 414


class HeadersTooLarge(Refused):
    """The request's headers are too many or too long."""

    code = "headers-too-large"
    side_effects = "none"
    hint = "Send fewer or shorter headers; look at what a proxy in between adds."
    http_status = 431


class FeedNotFound(Refused):
    """There is no such feed."""

    code = "feed-not-found"
    publisher_recovery = Recovery.REGISTER  # which makes the feed
    side_effects = "none"
    hint = "A feed is made by the first registration of its publisher; check the name at GET /feeds."
    http_status = 404


class SchemaNotFound(Refused):
    """The feed never had a schema of this table with this version."""

    code = "schema-not-found"
    side_effects = "none"
    hint = "GET /feeds/{id}/schemas lists the newest one of each table; names and version are compared to the letter."
    http_status = 404


class RouteNotFound(Refused):
    """There is nothing at this address."""

    code = "not-found"
    side_effects = "none"
    hint = "The addresses are listed at /openapi.json."
    http_status = 404


class MethodNotAllowed(Refused):
    """This address does not take this method."""

    code = "method-not-allowed"
    side_effects = "none"
    hint = "The methods of each address are listed at /openapi.json."
    http_status = 405


class NotRegistered(Refused):
    """The publisher or listener has not registered with this feed."""

    code = "not-registered"
    recovery = Recovery.REGISTER
    hint = "Register first: POST /publishers/register or POST /listeners/register."
    http_status = 409


class ListenersTooMany(Refused):
    """No more listeners can be registered with this feed."""

    code = "listeners-too-many"
    side_effects = "none"
    hint = "Register again under a name that is there; those that are not seen for a week and hold nothing are forgotten."
    http_status = 409
    exit_code = 3


class FeedOwned(Refused):
    """Another agent owns this feed."""

    code = "feed-owned"
    side_effects = "none"
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
    hint = "Compare outbox and feed around the sequence id, then: headrace feeds release AGENT-ID."
    http_status = 423
    exit_code = 3


class DuplicateEntry(Refused):
    """The sequence id is already in the feed; the publisher is now quarantined."""

    code = "duplicate-entry"
    hint = "Compare outbox and feed around the sequence id, then: headrace feeds release AGENT-ID."
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
    recovery = Recovery.REGISTER
    hint = "Read the entries you have not seen, then append at `actual-next`."
    http_status = 409


class ExpectedOffsetRequired(Refused):
    """This feed takes an append only if each of its entries names its place."""

    code = "expected-offset-required"
    hint = "Give each entry its expected-offset: the feed's next place is in `actual-next`."
    http_status = 409


class StreamFailed(Refused):
    """An append before this one on the same stream was not taken, so this one was not tried."""

    code = "stream-failed"
    recovery = Recovery.WAIT
    hint = "Open a new stream; send first what was refused, or leave it out, then go on."
    http_status = 409


class FeedRecreated(Refused):
    """The bookmark belongs to another history of this feed."""

    code = "feed-recreated"
    publisher_recovery = Recovery.REGISTER  # what it means shows when outbox and feed are compared
    hint = "The feed was made anew or restored: take a fresh start (headrace listen --from oldest) or a snapshot."
    http_status = 409
    exit_code = 3


class BeyondHead(Refused):
    """The place named lies above the feed's head."""

    code = "beyond-head"
    side_effects = "none"
    hint = "This consumer has seen more than the feed holds: the feed may be an old copy. Check before you go on."
    http_status = 409
    exit_code = 3


class SequenceNotAvailable(Refused):
    """The entries asked for are no longer retained."""

    code = "sequence-not-available"
    side_effects = "none"
    hint = "Take a snapshot of the publisher's state, then go on from its sequence id."
    http_status = 410
    exit_code = 4


class LsnNotAvailable(Refused):
    """The stream can't begin at this LSN: what follows it is no longer retained."""

    code = "lsn-not-available"
    side_effects = "none"
    hint = "Take a base snapshot, then subscribe from the head LSN that is named."
    http_status = 410
    exit_code = 4


class SequenceLost(Refused):
    """The entries asked for were damaged and a repair skipped them."""

    code = "sequence-lost"
    side_effects = "none"
    hint = "The lost range is named; take a snapshot, then go on after it."
    http_status = 410
    exit_code = 4


class Unavailable(HeadraceError):
    """Not now; trying again later can help."""

    # No ``side_effects`` of its own here and below, so ``possible``: an earlier try of an append may have been stored.

    code = "unavailable"
    recovery = Recovery.WAIT
    http_status = 503
    hint = "Wait as Retry-After says and try again."


class StoreUnavailable(Unavailable):
    """The store can't persist; nothing was acknowledged."""

    code = "store-unavailable"


class BackpressureTimeout(Unavailable):
    """The subscriber took nothing for too long while its queue was full, so its stream was ended."""

    code = "backpressure-timeout"
    hint = "Subscribe again from the last LSN that was acked, and take entries faster."


class ServerBusy(Unavailable):
    """The server does as much of this at once as it may: it holds request bodies, keeps reports, searches for keys."""

    code = "server-busy"
    hint = "Wait as Retry-After says and ask again; what is under way ends first."


class BodyTooSlow(Unavailable):
    """The request's body came too slowly, so the server did not wait for the rest."""

    code = "body-too-slow"
    hint = "Send it again; if the line is slow, send fewer entries at once."
    http_status = 408


class DiskReserve(Unavailable):
    """Too little space is left on the volume for another append; readers go on."""

    code = "disk-reserve"
    hint = "Make room on the volume, or let retention drop more; appends go on by themselves then."


class WriterStopped(Unavailable):
    """A write was not confirmed, or the journal's end is doubtful: no append is taken until a restart, or a repair."""

    code = "writer-stopped"
    hint = "Do what the reason says: mend the disk and restart the server, which recovers what was durable; or log repair."


class ClockLead(Unavailable):
    """The log's clock leads the wall clock by more than clock-lead-max."""

    code = "clock-lead"
    hint = "Mend the machine's clock; appends go on when the wall clock has caught up."


class ServerUnreachable(Unavailable):
    """No answer from the server."""

    code = "server-unreachable"
    hint = "Is `headrace serve` running there? The address is --server or HEADRACE_SERVER."
    exit_code = 4
