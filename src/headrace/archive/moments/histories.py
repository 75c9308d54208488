"""Which histories of a feed make up its state at an LSN, and whether the archive has them from the feed's beginning. Pure.

A feed's history (incarnation) ends where it is deleted and made anew, and where its journal is repaired or rebuilt
(``headrace wal restore --as server``). One made anew begins at a first sequence id of its own; a rebuilt one goes on at the
next id, above entries that the archive has under the history before. Nothing in a segment tells the two apart: the registry
in its manifest does, which says where the present history began.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import BaseManifest
from headrace.wire.kwal_manifest import Manifest, RegisteredFeed


class Span(NamedTuple):
    """Entries of one history of a feed that are in the archive, by sequence id, both inclusive; and the first one's LSN."""

    feed: str
    region_id: int
    incarnation: str
    first: int
    last: int
    first_lsn: Lsn


class Line(NamedTuple):
    """A feed's state: the entries of ``spans``, one behind the other, the newest history last. None of another counts.

    ``first``: where the feed began. ``problem``: why its beginning is not in the archive, in words; empty if it is.
    ``older``: spans of histories that ended, or were written again by a later one.
    """

    feed: str
    spans: tuple[Span, ...]
    first: int
    problem: str
    older: tuple[Span, ...]

    @property
    def incarnation(self) -> str:
        """The newest history."""
        return self.spans[-1].incarnation


def lines_of(
    base: BaseManifest | None,
    manifests: Sequence[Manifest],
    last: Lsn,
    *,
    from_start: bool = False,
    over_gaps: bool = False,
) -> dict[str, Line]:
    """Return every feed that has an entry at or below ``last``.

    ``manifests``: of the segments behind the base that hold entries up to there, in order. ``from_start``: nothing was
    ever in the log before them, so the first entry that the archive has of a feed is its first. ``over_gaps``: entries
    are missing, and that was accepted: a history goes on behind them. A span's ``last`` may be above ``last``: manifests
    do not say what is in the middle of a segment.
    """
    based: dict[str, list[Span]] = {}
    for one in base.feeds if base is not None else ():
        span = Span(one.feed, one.region_id, one.incarnation, one.first_sequence_id, one.sequence_id, ZERO)
        based.setdefault(one.feed, []).append(span)
    behind: dict[str, list[Span]] = {}
    after = Lsn.parse(base.lsn) if base is not None else ZERO
    for span in _spans(manifests, after, last):
        known = behind.setdefault(span.feed, [])
        goes_on = bool(known) and known[-1].incarnation == span.incarnation
        if goes_on and (over_gaps or span.first <= known[-1].last + 1):
            known[-1] = known[-1]._replace(last=max(span.last, known[-1].last))
        else:
            known.append(span)
    begun = {
        (told.feed, told.incarnation): told.first_sequence_id
        for manifest in manifests
        for told in manifest.registry
        if told.incarnation and told.first_sequence_id
    }
    return {
        feed: _line(
            feed,
            based.get(feed, []),
            behind.get(feed, []),
            begun,
            from_start=from_start,
            over_gaps=over_gaps,
        )
        for feed in sorted(based.keys() | behind.keys())
    }


def newest_registry(
    base: BaseManifest | None, manifests: Iterable[Manifest], last: Lsn
) -> Mapping[str, RegisteredFeed]:
    """Return what the newest manifest at or below ``last`` knows of the server's feeds, else the base, by the feed's name.

    A manifest that goes on beyond ``last`` was written later, and is taken only if there is no other.
    """
    ordered = sorted(manifests, key=lambda one: Lsn.parse(one.last_lsn))
    below = [one for one in ordered if Lsn.parse(one.last_lsn) <= last and one.registry]
    above = [one for one in ordered if Lsn.parse(one.last_lsn) > last and one.registry]
    if below:
        found = below[-1].registry
    elif base is not None and base.registry:
        found = base.registry
    else:
        found = above[0].registry if above else ()
    return {one.feed: one for one in found}


def _spans(manifests: Iterable[Manifest], after: Lsn, last: Lsn) -> list[Span]:
    """Return what the segments hold above ``after``, up to ``last``; whole, where one goes on beyond."""
    found = []
    for manifest in manifests:
        for one in manifest.feeds:
            first_lsn = Lsn.parse(one.first_lsn)
            if first_lsn <= last and Lsn.parse(one.last_lsn) > after:
                ids = one.first_sequence_id, one.last_sequence_id
                found.append(Span(one.feed, one.region_id, one.incarnation, *ids, first_lsn))
    return sorted(found, key=lambda one: one.first_lsn)


def _line(
    feed: str,
    based: Sequence[Span],
    behind: Sequence[Span],
    begun: Mapping[tuple[str, str], int],
    *,
    from_start: bool,
    over_gaps: bool,
) -> Line:
    """Go back from the newest history to the feed's beginning, or to the base, which has all that was before it."""
    if not behind:
        return Line(feed, tuple(based), based[0].first, "", ())
    rest = list(behind)
    taken = [rest.pop()]
    older: list[Span] = []
    problem = ""
    while True:
        span = taken[0]
        first = begun.get((feed, span.incarnation), 0)
        if not rest and based and based[-1].incarnation == span.incarnation:
            # The segment in which the base ends holds older entries of it, too.
            joins = over_gaps or span.first <= based[-1].last + 1
            problem = "" if joins else _unjoined(based[-1], span)
            whole = based[-1]._replace(last=max(span.last, based[-1].last))
            spans = (*based[:-1], whole, *taken[1:])
            return Line(feed, spans, based[0].first, problem, tuple(reversed(older)))
        if span.first == (first or 1):
            break
        before = rest.pop() if rest else based[-1] if based else None
        if before is None:
            if not (from_start and first in {0, span.first}):
                problem = f"its entries before {span.first} are not in the archive"
            break
        if not first:
            problem = (
                f"its history {span.incarnation} begins with entry {span.first} in the archive, behind the history "
                f"{before.incarnation}: no manifest says whether it goes on from that one"
            )
            break
        if before in based:
            problem = "" if before.last + 1 == span.first else _unjoined(before, span)
            return Line(feed, (*based, *taken), based[0].first, problem, tuple(reversed(older)))
        if before.first >= span.first:
            older.append(before)
            continue
        if before.last < span.first - 1:
            problem = f"entry {span.first - 1}, before its history {span.incarnation}, is not in the archive"
            break
        if before.last >= span.first:
            older.append(before._replace(first=span.first))
        taken.insert(0, before._replace(last=span.first - 1))
    return Line(feed, tuple(taken), taken[0].first, problem, (*based, *rest, *reversed(older)))


def _unjoined(before: Span, span: Span) -> str:
    return f"its entry {span.first} does not follow entry {before.last}, the last one of the base"
