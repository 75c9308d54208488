"""The documents of a hydration lease, ``POST /listeners/{listener-id}/feeds/{id}/hydration``.

A lease holds retention back for one listener of one feed while it fetches and applies a snapshot of the publisher's state:
first from the oldest retained entry on, and from behind the snapshot's sequence id once that is named.
"""

from __future__ import annotations

from typing import Final

from msgspec import UNSET, UnsetType

from headrace.wire.documents import Answer, Document

SEQUENCE_ID_MAX: Final = (1 << 63) - 1
"""Greatest sequence id that there can be."""


class TakeHydration(Document, omit_defaults=True):
    """Takes or renews the lease. Both members, or none: a sequence id stands for a snapshot."""

    snapshot_id: str | UnsetType = UNSET
    sequence_id: int | UnsetType = UNSET


class HydrationLease(Answer):
    """The lease as it stands: entries from ``holds_from_sequence_id`` on are retained until ``expires_at`` (RFC 3339)."""

    change_feed_id: str
    listener_id: str
    incarnation: str
    oldest_sequence_id: int
    head_sequence_id: int
    holds_from_sequence_id: int
    expires_at: str
