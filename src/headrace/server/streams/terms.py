"""The numbers of the stream over all feeds: RFC-010's as defaults, each a setting of the server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from headrace.wire.batch import BATCH_ENTRIES_MAX
from headrace.wire.compression import CompressionTerms

QUEUE_BYTES: Final = 2 << 20
"""Most bytes of entries that wait for one subscriber, save that what was read at once may go beyond it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamTerms:
    """How streams are paced.

    ``heartbeat_s``: how long a stream may be silent. ``batch_entries`` and ``batch_bytes``: most of a batch. ``gather_s``:
    while a send is in flight, new entries are gathered for so long before the log is read. ``queue_entries`` and
    ``queue_bytes``: what may wait for one subscriber. ``streams_max``: open at once. ``backpressure_timeout_s``: a queue
    that is full, of which nothing was taken for so long, ends its stream. ``compression``: what is sent to who asks.
    """

    heartbeat_s: float = 5.0
    batch_entries: int = BATCH_ENTRIES_MAX
    batch_bytes: int = 1 << 20
    gather_s: float = 0.010
    queue_entries: int = 10_000
    queue_bytes: int = QUEUE_BYTES
    streams_max: int = 1_000
    backpressure_timeout_s: float = 30.0
    compression: CompressionTerms = field(default_factory=CompressionTerms)
