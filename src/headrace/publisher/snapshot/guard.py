"""Who may have a snapshot: a listener with a ticket of the server, or whoever bears a token that may read the feed."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from headrace.access import tickets
from headrace.access.bearer import token_of
from headrace.access.grants import require
from headrace.access.tokens import TokenVerifier
from headrace.errors import SnapshotUnavailable, TicketRefused, Unauthenticated
from headrace.runtime.clock import Clock

ISSUER: Final = "headrace"
KEYS_MAX: Final = 2
"""Ticket keys of a feed that are good: the one of the newest registration, and the one before."""


class Ask(NamedTuple):
    """What is asked for. ``at_least``: the least sequence id that it must stand for."""

    feed: str
    listener_id: str
    at_least: int = 0
    snapshot_id: str | None = None


class SnapshotGuard:
    """Lets asks through, or raises why not.

    ``url``: where listeners are sent to, as tickets name it. ``is_joining``: whether the server has yet to be asked for this
    feed's ticket key.
    """

    def __init__(
        self,
        url: str | None,
        *,
        token: str | None,
        verifier: TokenVerifier | None,
        is_joining: Callable[[str], bool],
        clock: Clock,
    ) -> None:
        self._url = url
        self._token = token
        self._verifier = verifier
        self._is_joining = is_joining
        self._clock = clock
        self._keys: dict[str, list[bytes]] = {}

    def learn_key(self, feed: str, key: bytes) -> None:
        """Take the key with which the server signs tickets for ``feed`` from now on."""
        known = [one for one in self._keys.get(feed, []) if one != key]
        self._keys[feed] = [key, *known][:KEYS_MAX]

    async def check(self, ask: Ask, ticket: str | None, authorizations: Sequence[str]) -> None:
        """Return if ``ask`` may be answered.

        Raises TicketRefused, Unauthenticated, Forbidden, KeysUnavailable; SnapshotUnavailable for a ticket that can't be
        judged yet.
        """
        if ticket is not None:
            self._check_ticket(ask, ticket)
            return
        token = token_of(authorizations)
        if self._token is not None and hmac.compare_digest(token.encode(), self._token.encode()):
            return
        if self._verifier is None:
            raise Unauthenticated("this token is not accepted here")
        grant = await self._verifier.verify(token)
        require(grant.may_listen(ask.feed), f"read {ask.feed}")

    def _check_ticket(self, ask: Ask, ticket: str) -> None:
        if self._url is not None and not self._keys.get(ask.feed) and self._is_joining(ask.feed):
            raise SnapshotUnavailable(
                f"the agent has not joined {ask.feed} yet, so it can't tell whose tickets are good"
            )
        refusal = TicketRefused("this ticket was not signed for here")
        now = self._clock.wall_ms() / 1000
        for key in self._keys.get(ask.feed, []):
            try:
                claims = tickets.verify(ticket, key, now=now)
            except TicketRefused as refused:
                refusal = refused
                continue
            named = {"iss": ISSUER, "feed": ask.feed, "listener": ask.listener_id, "url": self._url}
            wrong = [name for name, value in named.items() if claims.get(name) != value]
            if (claims.get("at-least") or 0) != ask.at_least:
                wrong.append("at-least")
            # A ticket that names no snapshot is good for any that the feed has.
            if claims.get("snapshot-id") not in {None, ask.snapshot_id}:
                wrong.append("snapshot-id")
            if not wrong:
                return
            raise TicketRefused(f"this ticket is for another {', '.join(wrong)}")
        raise refusal
