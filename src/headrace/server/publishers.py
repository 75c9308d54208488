"""The use cases of publishers and other producers: register, append, ask where a feed ends, settings, release."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence

import msgspec
from msgspec import UNSET

from headrace.access.grants import EVERYTHING, Grant
from headrace.errors import DuplicateEntry, NotRegistered
from headrace.log.answering import W
from headrace.log.requests import Append
from headrace.runtime.logs import get_logger
from headrace.server.core import Core
from headrace.server.encoding import PostTerms, append_of
from headrace.server.guard import May, judge_feed, tenant_of
from headrace.server.publishing import (
    PublisherState,
    appended,
    configuration_of,
    publishers_of,
    registered,
    registration_of,
    settings_view,
    tail_view,
)
from headrace.server.snapshots import Snapshots, check_snapshot_url
from headrace.server.workload import run_sized
from headrace.wire import documents as doc

logger = get_logger("server")


class PublisherCases(Core):
    """What producers ask for, one method each."""

    snapshots: Snapshots

    async def register_publisher(
        self, ask: doc.RegisterPublisher, grant: Grant = EVERYTHING
    ) -> doc.PublisherRegistered:
        """Claim a feed for a publisher (design §5). Idempotent for one ``instance``; durable when answered.

        A token that is bound to a tenant makes feeds of that tenant.

        Raises InvalidRequest, Forbidden, FeedOwned, Unavailable.
        """
        if not grant.may_administer():
            tenant = await tenant_of(self.log, ask.change_feed_id)
            if tenant is None:
                if ask.tenant_id is UNSET and grant.tenant is not None:
                    ask = msgspec.structs.replace(ask, tenant_id=grant.tenant)
                tenant = ask.tenant_id if ask.tenant_id is not UNSET else ""
            judge_feed(grant, May.PUBLISH, ask.change_feed_id, tenant)
        request = registration_of(ask, str(self._new_incarnation()))
        url = check_snapshot_url(ask.snapshot_url) if ask.snapshot_url is not UNSET else None
        tail = await self.log.register(request)
        ticket_key = await self.snapshots.registered(tail, url)
        return registered(tail, request.agent_id, ticket_key)

    async def configure(self, feed: str, ask: doc.ChangeSettings) -> doc.FeedSettings:
        """Change a feed's settings; durable when answered. What is judged from then on is judged by them.

        ``key-field`` and ``changes`` are read when a post is encoded, so another server of the store has to hear of them.
        Raises FeedNotFound, Unavailable.
        """
        return settings_view(await self.log.configure(configuration_of(feed, ask)))

    async def settings(self, feed: str) -> doc.FeedSettings:
        """Return a feed's settings; FeedNotFound."""
        await self.log.refresh()
        return settings_view(self.log.tail(feed))

    async def append(self, feed: str, entries: Sequence[doc.EntryIn], terms: PostTerms) -> doc.Appended:
        """Append a post's entries atomically; answered only after they are durable (RFD 5 s5b, KAFKA-2260).

        A ``sequence-id`` that the feed already has quarantines the publisher and raises an alarm (RFD 5, failure scenarios).
        """
        tail = await self.log.find(feed)
        posted = dataclasses.replace(terms, posted_at_ms=self._clock.wall_ms())
        append = await run_sized(len(entries), append_of, feed, tail.settings, entries, posted)
        try:
            return appended(await self.append_soon(append, asyncio.get_running_loop().create_future()))
        except DuplicateEntry as refusal:
            await self._alarm_of_quarantine(feed, append.producer, refusal.members.get("received"))
            raise

    def append_soon(self, append: Append, waiter: W) -> W:
        """Queue an append, in the order of the calls; ``waiter`` gets its places or its refusal, once durable.

        The one way into the log for every face, so that what is asked of who appends is asked here, and of everybody.
        """
        return self.log.append_soon(append, waiter)

    async def tail(self, feed: str, producer: str | None) -> doc.Tail:
        """Return where a feed ends, and the last append of ``producer``: what it resumes from after any unclear outcome.

        So it is where the feed ends now, whichever server of the store the last append went through.
        """
        await self.log.refresh()
        return tail_view(self.log.tail(feed), producer)

    async def publishers(self, grant: Grant = EVERYTHING) -> list[PublisherState]:
        """Return who appends to each feed that ``grant`` may see, by feed and agent."""
        await self.log.refresh()
        seen = [tail for tail in self.log.feeds() if grant.may_see(tail.name, tail.tenant)]
        return [one for tail in sorted(seen, key=lambda tail: tail.name) for one in publishers_of(tail)]

    async def release(self, agent_id: str, grant: Grant = EVERYTHING) -> doc.Released:
        """Lift a publisher's quarantine in every feed and clear its alarm; NotRegistered if no feed knows the agent.

        The log says who of the ``grant`` did it.
        """
        await self.log.refresh()
        if not any(agent_id in tail.agents for tail in self.log.feeds()):
            raise NotRegistered(f"the publisher {agent_id} has not registered with any feed")
        feeds = await self.log.release(agent_id)
        logger.info("a quarantine is released", agent_id=agent_id, feeds=feeds, subject=grant.subject)
        await asyncio.to_thread(
            self.log.metadata.clear_alarms,
            DuplicateEntry.code,
            agent_id=agent_id,
            now_ms=self._clock.wall_ms(),
        )
        return doc.Released(agent_id=agent_id, feeds=feeds)
