"""What the log knows of a feed's end: everything that appends are judged on, as a frozen value.

It is rebuilt from the journal (segment start + frames after it), and stands in every segment start.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import JournalCorrupt
from headrace.wire.frame import FrameHeader


class ProducerPlace(msgspec.Struct, frozen=True, rename="kebab"):
    """A producer's last frame in a feed: enough to recognise its retry after restart, takeover and retention.

    ``digest`` is hex, ``source_position`` base64; ``global_ts`` is the frame's, from which its LSNs follow.
    """

    first_sequence_id: int
    count: int
    digest: str
    global_ts: int
    source_position: str = ""


class Quarantine(msgspec.Struct, frozen=True, rename="kebab"):
    """A publisher that sent an entry twice: refused until an operator releases it (RFD 5)."""

    agent_id: str
    sequence_id: int
    at_ms: int


class FeedSettings(msgspec.Struct, frozen=True, rename="kebab"):
    """What a feed's entries are taken to mean.

    ``key_field``: the member of ``changes`` that is the key of an entry that names none. ``changes``: what an entry
    without ``op`` carries, the full state or only the properties changed.
    """

    key_field: str = "uuid"
    changes: Literal["full", "delta"] = "full"


class FeedTail(msgspec.Struct, frozen=True, rename="kebab"):
    """A feed's identity, its owner and its end.

    ``next_sequence_id`` is the place of the next entry. ``first_sequence_id`` is where the feed began (0: nothing was ever
    appended). ``dropped_sequence_id`` is the newest one that retention dropped (0: none), ``dropped_lsn`` its LSN.
    ``agents`` maps every agent that ever registered to the epoch of its last registration. ``quarantines``: by agent id;
    a takeover lifts none, so there may be several.
    """

    name: str
    region_id: int
    tenant: str
    incarnation: str
    owner: str
    instance: str
    epoch: int
    next_sequence_id: int = 1
    newest_lsn: str = str(ZERO)
    first_sequence_id: int = 0
    dropped_sequence_id: int = 0
    dropped_lsn: str = str(ZERO)
    quarantines: dict[str, Quarantine] = {}
    agents: dict[str, int] = {}
    producers: dict[str, ProducerPlace] = {}
    settings: FeedSettings = FeedSettings()

    @property
    def quarantine(self) -> Quarantine | None:
        """The owner's quarantine, else that of an earlier owner that was never released; None if there is none."""
        return self.quarantines.get(self.owner) or next(iter(self.quarantines.values()), None)

    @property
    def head(self) -> int:
        """Sequence id of the newest entry; one below the next, 0 on a feed that begins at 1 and has none."""
        return self.next_sequence_id - 1

    @property
    def oldest(self) -> int:
        """Sequence id of the oldest retained entry; the next one where nothing is retained."""
        if self.dropped_sequence_id:
            return self.dropped_sequence_id + 1
        return self.first_sequence_id or self.next_sequence_id

    @property
    def newest(self) -> Lsn:
        """LSN of the newest entry; ZERO if there never was one."""
        return Lsn.parse(self.newest_lsn)

    def after(self, header: FrameHeader, producer: str, source_position: str) -> FeedTail:
        """Return the tail once the entries frame ``header`` of ``producer`` stands at this feed's end."""
        place = ProducerPlace(
            header.first_sequence_id, header.count, header.digest.hex(), header.global_ts, source_position
        )
        return msgspec.structs.replace(
            self,
            next_sequence_id=header.last_sequence_id + 1,
            newest_lsn=str(header.lsn(header.count - 1)),
            first_sequence_id=self.first_sequence_id or header.first_sequence_id,
            producers=self.producers | {producer: place},
        )


class JournalState(msgspec.Struct, rename="kebab"):
    """What a segment continues from: clock, next free region id, newest dropped LSN, and every feed's tail."""

    global_ts: int = 0
    next_region_id: int = 1
    dropped_lsn: str = str(ZERO)
    feeds: dict[str, FeedTail] = {}

    def encode(self) -> bytes:
        """Return the state as the JSON document of a segment start."""
        return msgspec.json.encode(self)


def decode_state(data: bytes) -> JournalState:
    """Read a segment start's JSON document; JournalCorrupt if it is not one."""
    try:
        return msgspec.json.decode(data, type=JournalState)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise JournalCorrupt(f"a segment's start state can't be read: {error}") from None
