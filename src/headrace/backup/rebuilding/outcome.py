"""What a rebuilt data folder holds, what is lost, and what to do next: for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from headrace.backup.rebuilding.feeds import JournalFeed, LeftOut
from headrace.log.tail import FeedTail
from headrace.wire.documents import rfc3339

NOT_IN_ARCHIVE: Final = (
    "places of listeners and subscribers, and whose a listener is: nobody holds retention back before they are back",
    "which agents were registered, which had been fenced, and who was quarantined",
    "who appended what, with which source position: no append is known as a repeat, and capture can't go on in its feed",
    "alarms, hydration leases, and where publishers serve snapshots",
    "tokens, certificates and the server's own settings",
)
"""What a server knows and its archive does not have."""
_SHOWN_MAX: Final = 20


class _Document(msgspec.Struct, frozen=True, rename="kebab"):
    """Members are written with hyphens."""


class Ids(_Document, frozen=True, kw_only=True):
    """Sequence ids, inclusive."""

    first_sequence_id: int
    last_sequence_id: int

    def __str__(self) -> str:
        """Return both ends, in words."""
        return f"{self.first_sequence_id} to {self.last_sequence_id}"


class RebuiltFeed(_Document, frozen=True, kw_only=True):
    """A feed of the rebuilt journal. ``was``: the incarnation that the archive has of it, empty for none.

    ``oldest_sequence_id``: the oldest entry that can be read; ``discarded``: archived entries behind the target; ``lost``:
    entries that the server is known to have had, and the archive has not. There may have been more.
    ``lost_in_gaps``: entries between the feed's beginning (1 if nobody says where that is) and the target that the archive
    does not have.
    """

    feed: str
    region_id: int
    tenant_id: str
    mode: str
    owner: str
    epoch: int
    incarnation: str
    was: str
    oldest_sequence_id: int
    next_sequence_id: int
    newest_lsn: str
    discarded: Ids | None = None
    lost: Ids | None = None
    lost_in_gaps: tuple[Ids, ...] = ()


class LeftOutEntries(_Document, frozen=True, kw_only=True):
    """Archived entries up to the target that are not in the journal, and why."""

    feed: str
    incarnation: str
    first_sequence_id: int
    last_sequence_id: int
    why: str


class Rebuilt(_Document, frozen=True, kw_only=True):
    """A data folder that a server can start on.

    ``target_lsn``: the last entry that was asked for; ``lost_after_lsn``: the archive's last entry: all that was appended
    behind it is lost. ``clock_ms``: the server's clock goes on from there, ``clock_margin_ms`` above what is known to be
    needed. ``server_regions``: names of the server's region that the entries have. ``schemas``: of tables, from the base
    and from segments before a gap. ``frame_bytes``: of the journal.
    """

    data_dir: str
    target_lsn: str
    target_at: str
    lost_after_lsn: str
    clock_ms: int
    clock_margin_ms: int
    entries: int
    frames: int
    frame_bytes: int
    schemas: int
    seconds: float
    server_regions: tuple[str, ...]
    feeds: tuple[RebuiltFeed, ...]
    left_out: tuple[LeftOutEntries, ...]
    warnings: tuple[str, ...]
    not_in_archive: tuple[str, ...] = NOT_IN_ARCHIVE

    def encode(self) -> bytes:
        """Return it as one JSON document."""
        return msgspec.json.encode(self)

    def lines(self) -> Iterator[str]:
        """Yield it for people, a line at a time."""
        yield (
            f"{self.data_dir}: {self.entries:,} entries in {self.frames:,} appends, up to lsn={self.target_lsn} "
            f"({self.target_at}), in {self.seconds:.1f} s"
        )
        for one in self.feeds:
            yield f"feed {one.feed}: {_held(one)}, next {one.next_sequence_id}, incarnation {one.incarnation}"
            if one.lost_in_gaps:
                shown = [str(ids) for ids in one.lost_in_gaps[:_SHOWN_MAX]]
                more = len(one.lost_in_gaps) - len(shown)
                yield f"  LOST, in gaps: {', '.join(shown)}" + (f" and {more} ranges more" if more else "")
            if one.discarded is not None:
                yield f"  discarded, behind the target: {one.discarded}"
            if one.lost is not None:
                yield f"  LOST: {one.lost}, and whatever came after them"
        yield f"LOST: everything that was appended after lsn={self.lost_after_lsn}"
        yield (
            f"clock: goes on at {time_of(self.clock_ms)}. All that was lost is below that, if the lost server's clock was "
            f"ahead of this by no more than {self.clock_margin_ms / 1000:g} s (--clock-margin) and the time since it died"
        )
        for left in self.left_out[:_SHOWN_MAX]:
            yield (
                f"not in the journal: {left.feed} {left.first_sequence_id} to {left.last_sequence_id} of the incarnation "
                f"{left.incarnation} ({left.why})"
            )
        if len(self.left_out) > _SHOWN_MAX:
            yield f"… and {len(self.left_out) - _SHOWN_MAX} ranges more; --json has all"
        for warning in self.warnings:
            yield f"warning: {warning}"
        for missing in self.not_in_archive:
            yield f"not in an archive: {missing}"
        yield (
            f"next: headrace serve --data-dir {self.data_dir}, with a --retention that keeps what consumers need until they "
            "are back; agents and listeners stop with feed-recreated and name the command that goes on"
        )


def rebuilt_feed(tail: FeedTail, kept: JournalFeed) -> RebuiltFeed:
    """Return what became of a feed."""
    known = max(tail.head, kept.archived_last)
    return RebuiltFeed(
        feed=tail.name,
        region_id=tail.region_id,
        tenant_id=tail.tenant,
        mode="shared" if tail.shared else "owned",
        owner=tail.owner,
        epoch=tail.epoch,
        incarnation=tail.incarnation,
        was=kept.incarnation,
        oldest_sequence_id=tail.oldest,
        next_sequence_id=tail.next_sequence_id,
        newest_lsn=tail.newest_lsn,
        discarded=_ids(tail.next_sequence_id, kept.archived_last),
        lost=_ids(known + 1, kept.known_next - 1),
        lost_in_gaps=tuple(
            Ids(first_sequence_id=hole.first_id, last_sequence_id=hole.last_id) for hole in kept.holes
        ),
    )


def left_out(found: LeftOut) -> LeftOutEntries:
    """Return archived entries that are not in the journal, for the outcome."""
    return LeftOutEntries(
        feed=found.feed,
        incarnation=found.incarnation,
        first_sequence_id=found.first_sequence_id,
        last_sequence_id=found.last_sequence_id,
        why=found.why,
    )


def time_of(ms: int) -> str:
    """Return UTC milliseconds as text."""
    return rfc3339(ms)


def _ids(first: int, last: int) -> Ids | None:
    return Ids(first_sequence_id=first, last_sequence_id=last) if first <= last else None


def _held(one: RebuiltFeed) -> str:
    last = one.next_sequence_id - 1
    return f"{one.oldest_sequence_id} to {last}" if one.oldest_sequence_id <= last else "no entries"
