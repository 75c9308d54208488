"""How a capture stands: what its feed says of the place in the binlog, and how far the source is beyond that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import closing

import msgspec

from headrace.capture.binlog.event import GtidPosition
from headrace.capture.feed import position_of
from headrace.capture.mariadb.connection import connect
from headrace.capture.mariadb.facts import read_facts
from headrace.capture.mariadb.server import current_gtid
from headrace.capture.position import SourcePosition
from headrace.capture.preflight import replica_id_of, wishes_of
from headrace.capture.settings import CaptureSettings
from headrace.client.log_append import LogAppendClient

_LOGICAL_BITS = 18


class FeedStanding(msgspec.Struct, frozen=True):
    """What the feed says. ``position``: None while nothing was captured. ``owner``: the agent that claimed it last."""

    next_sequence_id: int
    owner: str
    epoch: int
    position: SourcePosition | None

    @property
    def committed_at_ms(self) -> int | None:
        """The source's time, in milliseconds since 1970, up to which everything is in the feed."""
        return None if self.position is None else self.position.commit_ts >> _LOGICAL_BITS


class Cascade(msgspec.Struct, frozen=True):
    """A foreign key of a captured table that changes its rows without a line in the binlog. ``actions``: as SQL says."""

    table: str
    key: str
    actions: tuple[str, ...]


class SourceStanding(msgspec.Struct, frozen=True):
    """What the source says. ``behind``: how many of its transactions the feed has yet to pass; None without a position."""

    gtid: GtidPosition
    behind: int | None
    cascades: tuple[Cascade, ...]


async def read_feed_standing(settings: CaptureSettings, environment: Mapping[str, str]) -> FeedStanding:
    """Ask the server. Raises FeedNotFound, ServerUnreachable, FeedUnfit (somebody else writes there), FormatTooNew."""
    async with LogAppendClient(
        settings.find_grpc(environment), token=settings.find_credential(), ca_file=settings.ca_path
    ) as client:
        end = await client.tail(settings.feed, settings.agent_id)
    return FeedStanding(
        next_sequence_id=end.next_sequence_id,
        owner=end.owner,
        epoch=end.epoch,
        position=position_of(end, settings.feed, settings.agent_id),
    )


async def read_source_standing(
    settings: CaptureSettings, environment: Mapping[str, str], position: SourcePosition | None
) -> SourceStanding:
    """Ask the source. Raises DsnInvalid, ConfigInvalid, SourceForbidden, SourceUnavailable, SourceUnfit."""
    return await asyncio.to_thread(_read_source, settings, environment, position)


def behind_by(position: GtidPosition, current: GtidPosition) -> int:
    """Return how many transactions of ``current`` are beyond ``position``, as the sequence numbers of each domain count."""
    passed = {gtid.domain: gtid.sequence for gtid in position.gtids}
    return sum(max(0, gtid.sequence - passed.get(gtid.domain, 0)) for gtid in current.gtids)


def _read_source(
    settings: CaptureSettings, environment: Mapping[str, str], position: SourcePosition | None
) -> SourceStanding:
    wishes = wishes_of(settings, settings.find_selection())
    with closing(connect(settings.find_dsn(environment))) as connection:
        current = current_gtid(connection)
        facts = read_facts(connection, wishes, replica_id_of(settings))
    return SourceStanding(
        gtid=current,
        behind=None if position is None else behind_by(GtidPosition.parse(position.gtid), current),
        cascades=tuple(
            Cascade(table.name, key.name, key.unlogged)
            for table in facts.tables
            for key in table.foreign_keys or ()
            if key.unlogged
        ),
    )
