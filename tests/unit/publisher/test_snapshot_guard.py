"""Tickets at an agent that has yet to learn its keys."""

from __future__ import annotations

import pytest

from headrace.access import tickets
from headrace.errors import SnapshotUnavailable, TicketRefused
from headrace.publisher.snapshot.guard import Ask, SnapshotGuard
from headrace.testing.clock import ManualClock

URL = "https://agent.example/snapshot"
KEY = bytes(range(32))
ASK = Ask("shop", "listener-1")
TICKET = tickets.sign(
    {"iss": "headrace", "feed": "shop", "listener": "listener-1", "url": URL, "exp": 4_000_000_000}, KEY
)


def guard_of(joining: set[str], url: str | None = URL) -> SnapshotGuard:
    return SnapshotGuard(
        url, token="t", verifier=None, is_joining=lambda feed: feed in joining, clock=ManualClock()
    )


async def test_ticket_before_the_agent_has_joined_is_worth_another_try() -> None:
    joining = {"shop"}
    guard = guard_of(joining)
    with pytest.raises(SnapshotUnavailable, match="has not joined shop yet"):
        await guard.check(ASK, TICKET, [])
    guard.learn_key("shop", KEY)
    await guard.check(ASK, TICKET, [])
    with pytest.raises(TicketRefused):
        await guard.check(ASK, "no.ticket.x", [])


async def test_ticket_is_refused_where_no_key_will_come() -> None:
    for guard in (guard_of(set()), guard_of({"another"}), guard_of({"shop"}, url=None)):
        with pytest.raises(TicketRefused):
            await guard.check(ASK, TICKET, [])
