"""Plans a query's batches: from where to where in each of its feeds, and how that is split. Called by the source's readers.

Where a batch may end is said by :mod:`headrace.pipeline.source.ends`. With several feeds a batch ends where each feed's part
ends; those with little to do leave their share of the limits to the others.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

from msgspec.structs import replace

from headrace.errors import BeyondHead, FeedRecreated, SequenceNotAvailable
from headrace.pipeline.source.archive import Archive
from headrace.pipeline.source.ends import Ends, Feeds, Limits
from headrace.pipeline.source.offset import Asked, Offset, Place
from headrace.pipeline.source.pushdown import Bounds
from headrace.pipeline.source.starts import Moment, first_of, last_of, read_moment
from headrace.wire.documents import FeedView

ENTRIES_MAX: Final = 1_000_000
"""Default limit of entries in a batch."""
BYTES_MAX: Final = 512 << 20
"""Default limit of stored bytes in a batch."""
PARTITION_ENTRIES: Final = 250_000
"""Entries of one partition: a task costs some 15 ms whatever it does, and 64 MB at 256 bytes an entry."""


class Range(NamedTuple):
    """One partition: the entries ``first`` … ``last`` of one history.

    ``lsn_before`` is that of the entry before the first, ``lsn_last`` that of the last one; empty where not known.
    """

    feed: str
    incarnation: str
    first: int
    last: int
    lsn_before: str = ""
    lsn_last: str = ""


class Known(NamedTuple):
    """What a query was told of its feed: the only ``incarnation`` to read, the ``lsn`` of the entry before its start."""

    incarnation: str = ""
    lsn: str = ""


ANYTHING: Final = Known()


class FeedPlanner:
    """Plans one feed's part of the batches. Lives in one process for the life of the query."""

    def __init__(
        self, feeds: Feeds, feed: str, *, known: Known = ANYTHING, archive: Archive | None = None
    ) -> None:
        """``archive``: where to look for what the server no longer retains."""
        self.ends = Ends(feeds, feed, archive)
        self._feeds = feeds
        self._feed = feed
        self._known = known
        self._archive = archive
        self._until: int | None = None
        self.seen: FeedView | None = None
        """The feed as it was at the last look."""

    def stop_at_head(self) -> None:
        """Plan nothing beyond the entry that is newest now."""
        self._until = self._look(None).head_sequence_id

    def begin(self, moment: Moment) -> Place:
        """Return where a query that is asked to begin at ``moment`` begins. Raises what :meth:`next_end` does."""
        if moment == "oldest" or moment == "head":  # noqa: PLR1714  # mypy narrows only so
            view = self._look(None)
            done = view.head_sequence_id if moment == "head" else self._before_oldest(view)
            lsn = view.newest_lsn if moment == "head" and done else ""
            return Place(incarnation=view.incarnation, sequence_id=done, lsn=lsn)
        first = first_of(moment, self._feed, self.ends)
        view = self._look(None)
        lsn = self._known.lsn if first == moment else ""
        asked = Place(incarnation=view.incarnation, sequence_id=first - 1, lsn=lsn)
        self._check(asked, view)
        done = self._done(asked, view)
        return asked if done == asked.sequence_id else replace(asked, sequence_id=done, lsn="")

    def backlog(self, place: Place) -> int:
        """Look at the feed, and return how many entries it has beyond ``place``; raises as :meth:`next_end` does."""
        view = self._look(place)
        return max(0, view.head_sequence_id - place.sequence_id)

    def next_end(self, place: Place, limits: Limits) -> Place:
        """Return where the batch after ``place`` ends, by the last look; ``place`` itself if there is nothing to do.

        Raises FeedRecreated if the feed is another one than ``place`` is of, or an old copy of it was put back;
        SequenceNotAvailable if retention has passed ``place`` (and the archive, if there is one, does not have the rest);
        BeyondHead.
        """
        view = self.seen or self._look(place)
        done = self._done(place, view)
        head = view.head_sequence_id if self._until is None else min(self._until, view.head_sequence_id)
        if head <= done:
            return place
        found = self.ends.whole_end(done, head, view.incarnation, limits)
        if found is None:
            return place
        began_after = done if done != place.sequence_id else None
        return Place(
            incarnation=view.incarnation, sequence_id=found[0], lsn=found[1], began_after=began_after
        )

    def whole(self, start: Moment, end: Moment, bounds: Bounds) -> Range:
        """Return everything from ``start`` to ``end`` (inclusive, at most the head), as far as ``bounds`` ask for it."""
        begun = self.begin(start)
        head = self._look(begun).head_sequence_id
        last = head
        if end != "oldest" and end != "head":  # noqa: PLR1714  # mypy narrows only so
            last = min(last_of(end, self._feed, self.ends), head)
        first, last = bounds.narrowed(self._feed, begun.sequence_id + 1, last, self.ends)
        lsn = begun.lsn if first == begun.sequence_id + 1 else ""
        newest = self.seen.newest_lsn if self.seen is not None and last == head else ""
        return Range(self._feed, begun.incarnation, first, last, lsn, newest)

    def _look(self, place: Place | None) -> FeedView:
        view = self._feeds.feed(self._feed)
        self._check(place, view)
        self.seen = view
        return view

    def _check(self, place: Place | None, view: FeedView) -> None:
        wanted = (place.incarnation if place is not None else "") or self._known.incarnation
        if wanted and view.incarnation != wanted:
            raise FeedRecreated(
                f"the feed {self._feed} has the incarnation {view.incarnation}, the query reads {wanted}: it was made anew "
                "or restored. Begin anew, with another checkpoint folder",
                change_feed_id=self._feed,
            )
        if place is None:
            return
        head = view.head_sequence_id
        if place.lsn and (
            head < place.sequence_id or (head == place.sequence_id and view.newest_lsn != place.lsn)
        ):
            raise FeedRecreated(
                f"the feed {self._feed} ends at {head} ({view.newest_lsn}), the query has read up "
                f"to {place.sequence_id} ({place.lsn}): an old copy was put back",
                change_feed_id=self._feed,
            )
        if place.sequence_id > head:
            raise BeyondHead(
                f"the feed {self._feed} ends at {head}, the query is to begin after {place.sequence_id}",
                change_feed_id=self._feed,
            )

    def _before_oldest(self, view: FeedView) -> int:
        """Return the sequence id before the oldest entry that can be read; with an archive that is the feed's first."""
        if self._archive is None:
            return max(0, view.oldest_sequence_id - 1)
        return self._done(Place(incarnation=view.incarnation, sequence_id=_before_first(view)), view)

    def _done(self, place: Place, view: FeedView) -> int:
        """Return the sequence id after which to read."""
        below = min(view.oldest_sequence_id - 1, view.head_sequence_id)
        done = max(place.sequence_id, min(_before_first(view), below))
        if done >= below:
            return done
        try:
            # A server that does not say where the feed began does know whether anything is missing.
            self._feeds.frames(self._feed, done + 1, done + 1)
        except SequenceNotAvailable:
            if self._archive is not None:
                return done
            raise _passed(self._feed, done, view.oldest_sequence_id) from None
        return below


class Planner:
    """Plans the batches of one query. Lives in one process for the life of the query."""

    def __init__(self, planners: dict[str, FeedPlanner]) -> None:
        """``planners``: one for each feed, by name."""
        self._planners = planners

    def stop_at_head(self) -> None:
        """Plan nothing beyond the entries that are newest now."""
        for planner in self._planners.values():
            planner.stop_at_head()

    def next_end(self, start: Offset | Asked, limits: Limits) -> Offset:
        """Return where the batch after ``start`` ends; ``start`` itself if there is nothing to do.

        After a start in words comes a batch in any case, perhaps of nothing: it keeps what the words meant. Raises as
        :meth:`FeedPlanner.next_end` does.
        """
        if isinstance(start, Asked):
            moment = read_moment(start.start, "start")
            places = {name: planner.begin(moment) for name, planner in self._planners.items()}
        else:
            places = start.feeds
        ends = self._ends(places, limits)
        if isinstance(start, Asked):
            begun = {name: place.sequence_id for name, place in places.items()}
            return Offset({name: replace(end, began_after=begun[name]) for name, end in ends.items()})
        if all(ends[name] is place for name, place in places.items()):
            return start
        return Offset(
            {
                name: replace(end, began_after=None) if end is places[name] else end
                for name, end in ends.items()
            }
        )

    def _ends(self, places: dict[str, Place], limits: Limits) -> dict[str, Place]:
        backlogs = {name: planner.backlog(places[name]) for name, planner in self._planners.items()}
        ends: dict[str, Place] = {}
        for name in sorted(backlogs, key=lambda one: (backlogs[one], one)):
            end = self._planners[name].next_end(places[name], limits.share(len(backlogs) - len(ends)))
            limits = limits.less(end.sequence_id - places[name].sequence_id)
            ends[name] = end
        return ends

    def ranges(self, start: Offset | Asked, end: Offset, partition_entries: int) -> list[Range]:
        """Split the batch between two offsets into partitions of at most ``partition_entries`` entries, evenly."""
        found = []
        for name, last in sorted(end.feeds.items()):
            if last.began_after is not None:
                done, lsn = last.began_after, ""
            elif isinstance(start, Offset):
                done, lsn = start.feeds[name].sequence_id, start.feeds[name].lsn
            else:
                done, lsn = 0, ""
            batch = Range(name, last.incarnation, done + 1, last.sequence_id, lsn, last.lsn)
            found += split(batch, partition_entries)
        return found

    def whole(self, start: Moment, end: Moment, bounds: Bounds, partition_entries: int) -> list[Range]:
        """Split everything from ``start`` to ``end`` that ``bounds`` ask for into partitions."""
        wanted = [planner for name, planner in self._planners.items() if bounds.has_feed(name)]
        return [
            part for planner in wanted for part in split(planner.whole(start, end, bounds), partition_entries)
        ]

    def newest(self) -> Offset | None:
        """Return the heads as they were at the last look, None before the first."""
        heads = {}
        for name, planner in self._planners.items():
            view = planner.seen
            if view is None:
                return None
            head = view.head_sequence_id
            heads[name] = Place(
                incarnation=view.incarnation, sequence_id=head, lsn=view.newest_lsn if head else ""
            )
        return Offset(heads)


def _before_first(view: FeedView) -> int:
    """Return the sequence id before the feed's first entry ever: a feed may begin above 1. 0 where that is not known."""
    return max(0, view.first_sequence_id - 1)


def _passed(feed: str, done: int, oldest: int) -> SequenceNotAvailable:
    return SequenceNotAvailable(
        f"retention has passed the query: it has read {feed} up to {done}, and the oldest entry retained is {oldest}. "
        f"Entries {done + 1} to {oldest - 1} are missing. Go on with option archive, the URL of KWAL segments that have "
        "them, or begin anew with another checkpoint folder",
        change_feed_id=feed,
    )


def split(whole: Range, entries: int) -> list[Range]:
    """Split a range into parts of nearly equal size, at most ``entries`` each; nothing for an empty range."""
    total = whole.last - whole.first + 1
    if total <= 0:
        return []
    parts = -(-total // max(1, entries))
    edges = [whole.first + total * part // parts for part in range(parts + 1)]
    return [
        whole._replace(
            first=first,
            last=after - 1,
            lsn_before=whole.lsn_before if first == whole.first else "",
            lsn_last=whole.lsn_last if after - 1 == whole.last else "",
        )
        for first, after in pairwise(edges)
    ]
