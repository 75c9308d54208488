"""What producers ask and are answered, between the documents of the API and the requests of the log; nothing is judged."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET

from headrace.entries.feed import check_agent_id, check_feed_id, check_tenant
from headrace.errors import InvalidRequest
from headrace.log import requests
from headrace.log.tail import FeedTail, ProducerPlace, Quarantine
from headrace.wire import documents as doc


def registration_of(ask: doc.RegisterPublisher, new_incarnation: str) -> requests.Register:
    """Return the log's request for a registration; InvalidRequest naming the member that is wrong.

    An agent that names no ``instance`` is one by itself: all its processes are then the same one.
    """
    if ask.snapshot_url is not UNSET and ask.shared:
        raise InvalidRequest(
            "snapshot-url: a shared feed has no publisher whose state it is",
            hint="Leave snapshot-url out.",
            member="snapshot-url",
        )
    agent_id = check_agent_id(ask.agent_id)
    return requests.Register(
        feed=check_feed_id(ask.change_feed_id),
        agent_id=agent_id,
        instance=check_agent_id(ask.instance, "instance") if ask.instance is not UNSET else agent_id,
        tenant=check_tenant(ask.tenant_id) if ask.tenant_id is not UNSET else "",
        new_incarnation=new_incarnation,
        takeover=ask.takeover,
        shared=ask.shared,
    )


def registered(tail: FeedTail, agent_id: str, ticket_key: str | None = None) -> doc.PublisherRegistered:
    """Return what a registered producer goes on from; its epoch is its own on a shared feed.

    ``ticket_key``: of its snapshots' tickets, where it named an address.
    """
    return doc.PublisherRegistered(
        change_feed_id=tail.name,
        next_sequence_id=tail.next_sequence_id,
        epoch=tail.epoch_of(agent_id),
        incarnation=tail.incarnation,
        region_id=tail.region_id,
        shared=tail.shared,
        snapshot_ticket_key=ticket_key if ticket_key is not None else UNSET,
    )


def appended(done: requests.Appended) -> doc.Appended:
    """Return where an append stands."""
    return doc.Appended(
        first_sequence_id=done.first_sequence_id,
        last_sequence_id=done.last_sequence_id,
        first_lsn=str(done.first_lsn),
        last_lsn=str(done.last_lsn),
        incarnation=done.incarnation,
        duplicate=done.duplicate,
    )


def tail_view(tail: FeedTail, producer: str | None) -> doc.Tail:
    """Return where a feed ends, and the last frame of ``producer``; JournalCorrupt where that one can't be told."""
    place = tail.last_frame(producer) if producer is not None else None
    return doc.Tail(
        change_feed_id=tail.name,
        next_sequence_id=tail.next_sequence_id,
        newest_lsn=tail.newest_lsn,
        incarnation=tail.incarnation,
        region_id=tail.region_id,
        owner=tail.owner,
        epoch=tail.epoch,
        last_frame=_last_frame(place) if place is not None else None,
        shared=tail.shared,
        producer_epoch=(tail.epoch_of(producer) or None) if producer is not None else None,
        expected_offset=tail.settings.expected_offset,
    )


def configuration_of(feed: str, ask: doc.ChangeSettings) -> requests.Configure:
    """Return the log's request for a change of settings: what is left out stays as it is."""
    return requests.Configure(
        feed=feed,
        key_field=ask.key_field if ask.key_field is not UNSET else None,
        changes=ask.changes if ask.changes is not UNSET else None,
        expected_offset=ask.expected_offset if ask.expected_offset is not UNSET else None,
    )


def settings_view(tail: FeedTail) -> doc.FeedSettings:
    """Return a feed's settings."""
    return doc.FeedSettings(
        change_feed_id=tail.name,
        key_field=tail.settings.key_field,
        changes=tail.settings.changes,
        expected_offset=tail.settings.expected_offset,
    )


def _last_frame(place: ProducerPlace) -> doc.LastFrame:
    return doc.LastFrame(
        first_sequence_id=place.first_sequence_id, count=place.count, source_position=place.source_position
    )


class PublisherState(NamedTuple):
    """Who may append to a feed, or may not. ``epoch``: of its last registration. ``owns``: it is the feed's one owner.

    ``last_sequence_id``: the newest entry that it appended, None if that is not known. ``quarantine``: why it is refused.
    """

    feed: str
    agent_id: str
    epoch: int
    owns: bool
    shared: bool
    last_sequence_id: int | None
    quarantine: Quarantine | None


def publishers_of(tail: FeedTail) -> list[PublisherState]:
    """Return who appends to a feed: its owner, or each producer of a shared one; and whoever stands in quarantine."""
    named = {*tail.agents} if tail.shared else {tail.owner, *tail.quarantines} - {""}
    states = []
    for agent_id in sorted(named):
        place = tail.producers.get(agent_id)
        last = place.first_sequence_id + place.count - 1 if place is not None else None
        quarantine = tail.quarantines.get(agent_id)
        owns = agent_id == tail.owner
        epoch = tail.epoch_of(agent_id)
        states.append(PublisherState(tail.name, agent_id, epoch, owns, tail.shared, last, quarantine))
    return states
