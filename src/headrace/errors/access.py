"""Who asks is not known, may not do this, or can't be asked for just now."""

from __future__ import annotations

from headrace.errors.answers import Refused, Unavailable
from headrace.errors.root import Recovery
from headrace.errors.stops import Stopped

# No ``side_effects`` of their own: an earlier try of an append may have been stored under a token that has ended since.


class Unauthenticated(Refused):
    """The request carries no token that is accepted here."""

    code = "unauthenticated"
    recovery = Recovery.ATTEND  # keys rotate at the server, and a token file is renewed, while its users run
    hint = "Give a valid bearer token: --token-file or HEADRACE_TOKEN. `headrace token show` says what a token holds."
    http_status = 401
    exit_code = 3


class Forbidden(Refused):
    """The token does not allow this."""

    # A settled no, because waiting changes nothing in a token. Where the token is in a file it may be given another one, so
    # the client makes its error one that may pass (``client.http_problem``).

    code = "forbidden"
    hint = "Ask for a token whose roles, feeds and tenant cover it: docs/reference/tokens.md."
    http_status = 403
    exit_code = 3


class ListenerTaken(Refused):
    """Another subject has registered a listener of this name."""

    code = "listener-taken"
    side_effects = "none"
    hint = "Register under a name of your own (--listener-id). An admin's token may take it over by registering it."
    http_status = 403
    exit_code = 3


class TicketRefused(Refused):
    """The ticket in this address does not fit it, or has expired."""

    code = "ticket-refused"
    side_effects = "none"
    hint = "Ask the server for the snapshot again: GET /feeds/{id}/snapshot answers with a new address."
    http_status = 403
    exit_code = 3


class KeysUnavailable(Unavailable):
    """The keys that tokens are checked with can't be had, so no token is accepted."""

    code = "keys-unavailable"
    hint = "Check that the server reaches the address given with --auth-jwks, and what it serves."


class TokenExposed(Stopped):
    """The token would go over the network in clear."""

    code = "token-exposed"
    hint = "Write https://, or give --insecure if the network is yours alone."
    exit_code = 3
