"""Up to which entry of each feed an archive holds, in which history: whether what comes next follows it. Pure.

An LSN has the low half of a sequence id only. The whole of it comes from what is archived of that history, else from the
server's registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from headrace.entries.lsn import Lsn
from headrace.errors import BackupGap
from headrace.wire.documents import FeedView
from headrace.wire.kwal_feeds import FeedRun
from headrace.wire.kwal_left_open import LeftOpen
from headrace.wire.kwal_manifest import FeedRange, Manifest, RegisteredFeed

_HALF: Final = 0xFFFFFFFF
"""An LSN has the low 32 bits of a sequence id."""


class Histories:
    """The newest archived range of each feed. Segments are given in LSN order."""

    def __init__(self, manifests: Iterable[Manifest] = ()) -> None:
        self._newest: dict[int, FeedRange] = {}
        self._may_skip: set[int] = set()
        self._left_open = LeftOpen()
        self._begun_anew: set[int] | None = None
        """Since a segment that nothing can be told of: feeds with a range that does not say what goes on in it."""
        for manifest in manifests:
            self.take(manifest.feeds)

    @property
    def incarnations(self) -> dict[int, str]:
        """The history that each feed's newest archived entry is of, by region id."""
        return {region: one.incarnation for region, one in self._newest.items()}

    @property
    def open_transactions(self) -> dict[int, set[bytes]]:
        """The transactions that what is archived leaves open, by region id: a survey looks for them."""
        return self._left_open.names()

    def newest(self, region_id: int) -> FeedRange | None:
        """Return the newest archived range of a feed; None if nothing of it is archived."""
        return self._newest.get(region_id)

    def take(self, ranges: Iterable[FeedRange]) -> None:
        """Note what was archived."""
        for one in ranges:
            self._newest[one.region_id] = one
            self._may_skip.discard(one.region_id)
            self._left_open.take(one)
            if one.continued is None and self._begun_anew is not None:
                self._begun_anew.add(one.region_id)

    def allow_gap(self) -> None:
        """Let the next range of each feed begin anywhere behind what is archived: a gap is accepted."""
        self._may_skip = set(self._newest)

    def pass_over(self) -> None:
        """Go on behind a segment that nothing can be told of: its sequence ids, and the transactions it leaves open.

        So the next range of each feed does not say which go on in it, and whoever plans looks.
        """
        self.allow_gap()
        self._begun_anew = set()

    def joins(self, runs: Iterable[FeedRun]) -> bool:
        """Tell whether each run goes on exactly where its feed's archived entries end. A feed that is new does not."""
        last = {region: Lsn.parse(one.last_lsn).raft_index for region, one in self._newest.items()}
        for run in runs:
            if run.region_id not in last or (run.first_lsn.raft_index - last[run.region_id]) & _HALF != 1:
                return False
            last[run.region_id] = run.last_lsn.raft_index
        return True

    def placed(
        self, runs: Sequence[FeedRun], incarnations: Mapping[int, str], registry: Mapping[int, FeedView]
    ) -> list[FeedRange]:
        """Return the runs as a manifest has them. ``incarnations``: by region id, which history the stream said it gives.

        BackupGap, naming feed and ids, where a run of the archived history does not follow what is archived of it.
        """
        newest, found = dict(self._newest), []
        left_open, anew = self._left_open.copy(), set(self._begun_anew or ())
        for run in runs:
            before = newest.get(run.region_id)
            incarnation = incarnations.get(run.region_id) or (
                before.incarnation if before is not None else ""
            )
            known = registry.get(run.region_id)
            if before is not None and before.incarnation == incarnation:
                near = before.last_sequence_id + 1
            elif known is not None and known.incarnation == incarnation:
                near = known.next_sequence_id
            else:
                near = before.last_sequence_id + 1 if before is not None else run.first_lsn.raft_index
            is_known = self._begun_anew is None or run.region_id in anew
            placed = run.placed(
                incarnation, near, left_open.of(run.region_id, incarnation) if is_known else None
            )
            left_open.take(placed)
            anew.add(run.region_id)
            if before is not None and before.incarnation == incarnation:
                self._check(before, placed)
            newest[run.region_id] = placed
            found.append(placed)
        return found

    def stranger(
        self, runs: Iterable[FeedRun], incarnations: Mapping[int, str], registry: Mapping[int, FeedView]
    ) -> FeedRun | None:
        """Return the first run whose sequence ids nobody can tell: its history is neither archived nor in ``registry``.

        None if there is none.
        """
        for run in runs:
            incarnation = incarnations.get(run.region_id)
            known = registry.get(run.region_id), self._newest.get(run.region_id)
            if not any(one is not None and one.incarnation == incarnation for one in known):
                return run
        return None

    def lost(self, feeds: Iterable[FeedView]) -> list[str]:
        """Say which sequence ids of each feed are neither archived nor retained by the server any more."""
        said = []
        for feed in feeds:
            newest = self._newest.get(feed.region_id)
            same = newest is not None and newest.incarnation == feed.incarnation
            first = newest.last_sequence_id + 1 if newest is not None and same else feed.first_sequence_id
            if feed.first_sequence_id and first < feed.oldest_sequence_id:
                said.append(f"{feed.change_feed_id} {first} to {feed.oldest_sequence_id - 1}")
        return said

    def behind(self, feeds: Iterable[FeedView]) -> int:
        """Return how many entries the server has that are not archived."""
        count = 0
        for feed in feeds:
            newest = self._newest.get(feed.region_id)
            same = newest is not None and newest.incarnation == feed.incarnation
            first = newest.last_sequence_id + 1 if newest is not None and same else feed.oldest_sequence_id
            count += max(0, feed.next_sequence_id - max(first, feed.oldest_sequence_id))
        return count

    def _check(self, before: FeedRange, found: FeedRange) -> None:
        expected = before.last_sequence_id + 1
        skips = found.first_sequence_id > expected and found.region_id in self._may_skip
        if found.first_sequence_id == expected or skips:
            return
        raise BackupGap(
            f"feed {found.feed}: behind the sequence id {before.last_sequence_id} (lsn={before.last_lsn}) comes "
            f"{found.first_sequence_id} (lsn={found.first_lsn}) of the same history: nothing of it was written",
            feed=found.feed,
            lsn=found.first_lsn,
        )


def registered(feeds: Iterable[FeedView]) -> tuple[RegisteredFeed, ...]:
    """Return the server's feeds as a manifest has them, by region id."""
    return tuple(
        RegisteredFeed(
            feed=one.change_feed_id,
            region_id=one.region_id,
            tenant_id=one.tenant_id,
            mode="shared" if one.shared else "owned",
            incarnation=one.incarnation,
            first_sequence_id=one.first_sequence_id,
            owner=one.owner,
            epoch=one.epoch,
            next_sequence_id=one.next_sequence_id,
            settings=msgspec.to_builtins(one.settings) if one.settings is not None else {},
            lost_lsns=tuple(one.lost_lsns),
        )
        for one in sorted(feeds, key=lambda one: one.region_id)
    )
