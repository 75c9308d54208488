"""Who may call what: one declaration a call, and the one place where a grant is compared with it.

HTTP's route table and the gRPC services name a :class:`May` for each call. A feed's tenant is the log's to say, never the
caller's; a feed that is not there is refused as one that is, so that nobody learns of feeds that it may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from headrace.access.grants import ANONYMOUS, Grant, Role, require
from headrace.errors import MetadataCorrupt
from headrace.log.contract import Store
from headrace.log.log import Log
from headrace.log.metadata.owners import Claimant


class May(StrEnum):
    """What a call needs.

    ``OPEN``: no token. ``LIST``: a token with any role, and the answer holds only what it may see. ``SEE``: to do anything
    with the feed. ``PUBLISH``, ``LISTEN``: to do this with the feed. ``REPLICATE``: to stream the log of some tenant.
    ``ADMINISTER``: all.
    """

    OPEN = "open"
    LIST = "list"
    SEE = "see"
    PUBLISH = "publish"
    LISTEN = "listen"
    REPLICATE = "replicate"
    ADMINISTER = "administer"


ROLES: Final[Mapping[May, tuple[Role, ...]]] = {
    May.OPEN: (),
    May.LIST: tuple(Role),
    May.SEE: tuple(Role),
    May.PUBLISH: (Role.PUBLISHER, Role.ADMIN),
    May.LISTEN: (Role.LISTENER, Role.ADMIN),
    May.REPLICATE: (Role.REPLICATION, Role.ADMIN),
    May.ADMINISTER: (Role.ADMIN,),
}
"""Which roles can be good enough, as the API's description says."""


def _may_see(grant: Grant, feed: str, tenant: str | None) -> bool:
    if tenant is None:
        return grant.may_publish(feed) or grant.may_listen(feed)
    return grant.may_see(feed, tenant)


_OF_FEED: Final[Mapping[May, tuple[Callable[[Grant, str, str | None], bool], str]]] = {
    May.PUBLISH: (Grant.may_publish, "publish to"),
    May.LISTEN: (Grant.may_listen, "read"),
    May.SEE: (_may_see, "see"),
}


def check_call(grant: Grant, may: May) -> None:
    """Raise Forbidden unless ``grant`` is good for a call that is about no feed, or not about one alone."""
    if may is May.ADMINISTER:
        require(grant.may_administer(), "see or change what belongs to no feed alone")
    elif may is May.REPLICATE:
        good = Role.REPLICATION in grant.roles and grant.tenant is not None
        require(good or grant.may_administer(), "stream the log")


def claimant_of(grant: Grant) -> Claimant:
    """Return who asks for a listener: who has no name can own none."""
    return Claimant("" if grant.subject == ANONYMOUS else grant.subject, grant.may_administer())


async def check_feed(log: Log, grant: Grant, may: May, feed: str) -> None:
    """Raise Forbidden unless ``grant`` is good for this call about ``feed``, there or not."""
    if grant.may_administer():
        return
    judge_feed(grant, may, feed, await tenant_of(log, feed))


def judge_feed(grant: Grant, may: May, feed: str, tenant: str | None) -> None:
    """Raise Forbidden unless ``grant`` is good for this call about ``feed`` of ``tenant``; None: there is no such feed."""
    judge, doing = _OF_FEED[may]
    require(judge(grant, feed, tenant), f"{doing} the feed {feed[:200]}")


async def tenant_of(log: Log, feed: str) -> str | None:
    """Return the tenant of ``feed``; None if there is no such feed, here or at another server of the store."""
    tail = log.store.tail(feed)
    if tail is None:
        await log.refresh()
        tail = log.store.tail(feed)
    return tail.tenant if tail is not None else None


class StreamRights:
    """Which feeds a stream over all feeds may carry; answered from memory. Used from one thread at a time."""

    def __init__(self, store: Store, grant: Grant) -> None:
        self._store = store
        self._grant = grant
        self._known: dict[int, bool] = {}

    def permits(self, region_id: int) -> bool:
        """May the frames of this feed be sent? Its name and tenant are for life.

        Blocks at a feed that is not known yet. MetadataCorrupt where nobody can say whose it is: leaving it out would be a
        gap.
        """
        if region_id not in self._known:
            self._look()
        if region_id not in self._known:
            self._store.refresh()
            self._look()
        if region_id not in self._known:
            raise MetadataCorrupt(
                f"the state of the feed with region {region_id} is damaged, so it can't be told whose its entries are"
            )
        return self._known[region_id]

    def _look(self) -> None:
        for tail in self._store.tails():
            self._known[tail.region_id] = self._grant.may_replicate(tail.tenant, tail.name)
