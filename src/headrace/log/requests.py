"""What can be asked of the log's writer, and what it answers. Values; judged by ``rules``, in the order they came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from headrace.entries.lsn import Lsn
from headrace.errors import InvalidRequest
from headrace.log.tail import FeedTail
from headrace.wire.frame import Area

NEXT: Final = -1
"""An expected offset that means "the next one" (KAFKA-2260's sigil)."""


@dataclass(slots=True, eq=False)
class Chain:
    """Appends given to the writer one behind the other, without waiting for answers: once one of them is not taken, those
    after it are refused as StreamFailed. Only the writer's thread sets ``failed``, and never back.
    """

    failed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """One atomic append: all its entries, or nothing.

    ``halves`` are the producer's halves (:func:`headrace.wire.entry.encode_half`), ``digest`` their digest.
    ``expected_offsets`` and ``sequence_ids`` name places: empty, or one per entry, :data:`NEXT` where an entry names none.
    A face that is told only the first entry's place gives :func:`places_from`.
    ``epoch`` None: judged as the epoch of that agent's last registration. ``transaction_ends``: indexes of entries that
    end a source transaction. ``area``: what else stands in the frame (source position, times, trace parent).
    ``chain``: the appends that this one follows; None for one that stands alone.
    """

    feed: str
    producer: str
    halves: Sequence[bytes]
    digest: bytes
    epoch: int | None = None
    incarnation: str | None = None
    expected_offsets: Sequence[int] = ()
    sequence_ids: Sequence[int] = ()
    transaction_ends: Sequence[int] = ()
    area: Mapping[Area, bytes] = field(default_factory=dict)
    chain: Chain | None = None


def places_from(first: int, count: int) -> range:
    """Return the places of ``count`` entries that stand one behind the other from ``first`` on; judged without a loop."""
    return range(first, first + count)


def check_append(append: Append) -> None:
    """Raise InvalidRequest unless the append can be judged: it has entries, and the places it names make sense together."""
    if not append.halves:
        raise InvalidRequest("entries: there is none in this post", member="entries")
    for member, least, places in (
        ("expected-offset", 0, append.expected_offsets),
        ("sequence-id", 1, append.sequence_ids),
    ):
        if places and len(places) != len(append.halves):
            raise InvalidRequest(
                f"{member}: {len(places)} places for {len(append.halves)} entries", member=member
            )
        if not places or (isinstance(places, range) and places.step > 0 and places[0] >= least):
            continue
        wrong = next((index for index, place in enumerate(places) if place < least and place != NEXT), None)
        if wrong is not None:
            raise InvalidRequest(
                f"{member}: {places[wrong]} is no place in a feed", member=member, index=wrong
            )
    for index, (offset, number) in enumerate(zip(append.expected_offsets, append.sequence_ids, strict=False)):
        if NEXT not in (offset, number) and offset != number:
            raise InvalidRequest(
                f"expected-offset: {offset} does not agree with sequence-id {number}",
                member="expected-offset",
                index=index,
            )


@dataclass(frozen=True, slots=True, eq=False)
class Register:
    """A publisher claims a feed, or joins it if it is shared; the feed is made if it isn't there.

    Same agent and same ``instance``: same epoch. A new instance bumps the epoch and fences the older one: on an owned feed
    the feed's epoch, on a shared one that agent's own. Another agent is refused by an owned feed unless ``takeover``, and
    stands beside the others on a shared one. ``shared`` must be what the feed was made as. ``new_incarnation`` is the UUID
    that a feed made by this request gets.
    """

    feed: str
    agent_id: str
    instance: str
    tenant: str
    new_incarnation: str
    takeover: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Configure:
    """An operator changes a feed's settings; a member that is None stays as it is. The same again writes nothing."""

    feed: str
    key_field: str | None = None
    changes: Literal["full", "delta"] | None = None
    expected_offset: Literal["optional", "required", "ignored"] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """An operator lifts the quarantine of an agent in one feed."""

    feed: str
    agent_id: str


Request = Append | Register | Release | Configure


class Appended(NamedTuple):
    """The places of an append's entries. ``duplicate``: they had been stored before; these are the original places."""

    incarnation: str
    first_sequence_id: int
    last_sequence_id: int
    first_lsn: Lsn
    last_lsn: Lsn
    duplicate: bool = False


Outcome = Appended | FeedTail
