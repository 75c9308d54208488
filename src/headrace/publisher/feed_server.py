"""What the agent asks of a server, and what it tells it of its snapshots."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple, Protocol

from headrace.access.tickets import KEY_BYTES
from headrace.errors import HeadraceError, ServerUnreachable
from headrace.publisher.marked import MarkedRow
from headrace.wire.documents import Appended, EntryIn, PublisherRegistered


class FeedServer(Protocol):
    """What the relay asks of a server; :class:`headrace.client.http.FeedClient` is one."""

    async def register_publisher(
        self,
        agent_id: str,
        feed: str,
        *,
        instance: str | None = None,
        takeover: bool = False,
        snapshot_url: str | None = None,
    ) -> PublisherRegistered:
        """Claim the feed; a new instance fences the older one."""

    async def append(
        self,
        feed: str,
        entries: list[EntryIn],
        *,
        epoch: int | None = None,
        incarnation: str | None = None,
        marked_at_ms: int | None = None,
    ) -> Appended:
        """Append atomically; returns only after the entries are durable."""


class SnapshotOffer(NamedTuple):
    """What the server is told of this agent's snapshots: where they are. It answers with the key of its tickets."""

    url: str
    learn_key: Callable[[str, bytes], None]


def decode_key(text: str) -> bytes:
    """Return the key that ``text`` (base64url, padded or not) holds; ServerUnreachable for anything else."""
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise ServerUnreachable(
            "the server's snapshot-ticket-key is no key", hint="Is this address a Headrace server?"
        )
    return key


def refused_row(batch: list[MarkedRow], refusal: HeadraceError) -> MarkedRow | None:
    """Return the row of ``batch`` that ``refusal`` is about: the one named, or the only one; None if that is not known."""
    index = refusal.members.get("index")
    if isinstance(index, int) and 0 <= index < len(batch):
        return batch[index]
    return batch[0] if len(batch) == 1 else None
