"""Histories of feeds as plain lists, archives made of them, and what can be rebuilt, found by looking at every entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from headrace.archive.files.gaps import AcceptedGap, encode_gap, gap_file
from headrace.entries.entry import Change
from headrace.entries.lsn import ZERO, Lsn
from headrace.wire.base_manifest import (
    MANIFEST,
    BaseFeed,
    BaseFile,
    BaseGap,
    BaseManifest,
    base_folder,
    encode_base,
)
from headrace.wire.kwal import Sealed
from headrace.wire.kwal_left_open import LeftOpen
from tests.kwal import INCARNATION, TS, Stamped, manifest_of, sealed, stamped, write

ALL = 1_000
"""More segments than any of these archives has."""

FEEDS = {7: "vmapi::vm", 8: "shop::orders", 9: "shop"}


class Append(NamedTuple):
    """An append: feed by region, when (milliseconds after the first), and of each entry its transaction: name, last.

    ``source_ms``: source time of its entries, 0 for none. ``values``: of each, else a number.
    """

    region: int
    ms: int
    entries: tuple[tuple[str, bool], ...] = (("", False),)
    source_ms: int = 0
    values: tuple[bytes, ...] = ()


class Known(NamedTuple):
    """An entry, as the model sees it. ``anew``: the entry before it of its transaction's name, if any, was a last one."""

    lsn: Lsn
    region: int
    sequence_id: int
    tx: str
    tx_last: bool
    append_end: bool
    source_ms: int
    anew: bool


class History:
    """Appends in log order, stamped. ``entries``: all of them, one behind the other."""

    def __init__(self, appends: Sequence[Append]) -> None:
        self.appends: list[Stamped] = []
        self.entries: list[Known] = []
        self.ends: list[int] = []
        """Per append: how many entries there are up to its end."""
        following: dict[int, int] = {}
        ended: dict[tuple[int, str], bool] = {}
        clock = 0
        for append in appends:
            clock = max(clock + 1, (append.ms << 18))
            first = following.get(append.region, 1)
            following[append.region] = first + len(append.entries)
            changes = [
                Change(
                    append.values[at] if append.values else b'{"n":1}',
                    key=b"k",
                    source_tx=tx.encode(),
                    tx_last=last,
                    source_time_ms=append.source_ms,
                )
                for at, (tx, last) in enumerate(append.entries)
            ]
            made = stamped(changes, first, ts=TS + clock, region=append.region, feed=FEEDS[append.region])
            self.appends.append(made)
            for at, (tx, last) in enumerate(append.entries):
                lsn = Lsn(TS + clock, append.region, first + at)
                end = at == len(append.entries) - 1
                anew = ended.get((append.region, tx), True)
                ended[append.region, tx] = last
                self.entries.append(
                    Known(lsn, append.region, first + at, tx, last, end, append.source_ms, anew)
                )
            self.ends.append(len(self.entries))

    def segments(self, cuts: Sequence[int]) -> list[Sealed]:
        """Return segments that end before these appends (by place, ascending), and at the end."""
        bounds = [0, *(cut for cut in cuts if 0 < cut < len(self.appends)), len(self.appends)]
        return [sealed(self.appends[first:last]) for first, last in pairwise(bounds) if first < last]


def write_archive(
    folder: Path,
    segments: Sequence[Sealed],
    *,
    lost: Sequence[int] = (),
    untold: Sequence[int] = (),
    bases: Sequence[Sequence[Known]] = (),
    accepted: Sequence[tuple[Lsn, Lsn]] = (),
    old: int = 0,
) -> None:
    """Write segments that follow one another, but the ``lost`` ones; ``untold`` ones have no manifest.

    ``old``: the manifests of so many do not say whether feeds end whole, nor anything of transactions.
    ``bases``: of each, all entries up to it. ``accepted``: gaps, by their ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    left = LeftOpen()
    for at, segment in enumerate(segments):
        manifest = manifest_of(segment, before=segments[at - 1] if at else None, left=left)
        if at < old:
            unsaid = tuple(
                replace(one, ends_whole=None, left_open=None, continued=None) for one in manifest.feeds
            )
            left = LeftOpen()
            manifest = replace(manifest, feeds=unsaid)
        if at not in lost:
            write(folder, segment, None if at in untold else manifest)
    for entries in bases:
        write_base(folder, entries)
    for after, before in accepted:
        gap = AcceptedGap(after=str(after), before=str(before), reason="a disk died", by="ops@host", at_ms=1)
        (folder / gap_file(gap)).write_bytes(encode_gap(gap))


def write_base(
    folder: Path,
    entries: Sequence[Known],
    files: tuple[BaseFile, ...] = (),
    *,
    incarnation: str = "",
    names: Mapping[int, str] | None = None,
    gaps: tuple[BaseGap, ...] = (),
) -> None:
    """Write the manifest of a base behind these entries, of no rows; its files are not made.

    ``incarnation`` and ``names`` (by region) of another log make it a base of that.
    """
    lsn = entries[-1].lsn
    newest = {one.region: one for one in entries}
    feeds = tuple(
        BaseFeed(
            feed=(names or FEEDS)[region],
            region_id=region,
            incarnation=incarnation or INCARNATION,
            first_sequence_id=1,
            sequence_id=one.sequence_id,
            lsn=str(one.lsn),
            entries=0,
        )
        for region, one in newest.items()
    )
    base = folder / base_folder(lsn)
    base.mkdir(parents=True)
    manifest = BaseManifest(
        lsn=str(lsn),
        committed_at_ms=lsn.committed_at_ms,
        created_at_ms=1,
        buckets=1,
        feeds=feeds,
        files=files,
        gaps=gaps,
    )
    (base / MANIFEST).write_bytes(encode_base(manifest))


PAUSE_MAX_MS = 600_000
"""A transaction without a last entry, of which nothing more comes, counts as ended once the log went on for longer."""


def is_whole(entries: Sequence[Known], at: int, *, old: Lsn = ZERO, ahead: Sequence[Known] = ()) -> bool:
    """Tell whether a cut behind entry ``at`` tears neither an append nor a transaction; looks at everything.

    A transaction is a name in a feed, up to its last entry, whatever is between and for however long; it goes on where
    nobody can know. Of one whose last entry is lost manifests tell that it ended, but not those of agents that wrote up to
    ``old``. ``ahead``: entries behind a loss that nobody accepted, of which manifests tell.
    """
    if not entries[at].append_end:
        return False
    for place, entry in enumerate(entries[: at + 1]):
        if not entry.tx or entry.tx_last:
            continue
        ms = entry.lsn.committed_at_ms
        same = [one for one in entries[place + 1 :] if (one.region, one.tx) == (entry.region, entry.tx)]
        later = [one for one in ahead if (one.region, one.tx) == (entry.region, entry.tx)]
        if same and (entry.lsn <= old or not same[0].anew):
            goes_on = entries.index(same[0]) > at
        elif not same and entry.lsn > old and later and not later[0].anew:
            goes_on = True
        else:
            goes_on = entries[-1].lsn.committed_at_ms - ms <= PAUSE_MAX_MS
        if goes_on:
            return False
    return True


def last_whole(entries: Sequence[Known], at: int, *, old: Lsn = ZERO, ahead: Sequence[Known] = ()) -> int:
    """Return the greatest place at or below ``at`` where the log may be cut; -1 if there is none."""
    places = range(at, -1, -1)
    return next((place for place in places if is_whole(entries, place, old=old, ahead=ahead)), -1)


T0 = TS >> 18
"""UTC milliseconds of the first entries."""

SMALL = History(
    [
        Append(7, 0),  # entry 0
        Append(8, 0, (("A", False), ("A", False))),  # 1, 2
        Append(7, 0, (("", False),) * 3),  # 3, 4, 5
        Append(8, 5, (("A", True),)),  # 6
        Append(7, 9, (("B", False),)),  # 7
        Append(9, 12),  # 8
        Append(7, 20, (("B", True),)),  # 9
        Append(8, 20, (("C", False),)),  # 10
    ]
)
"""Three feeds; transactions over several appends and segments, mixed with those of other feeds."""
SMALL_LSNS = [one.lsn for one in SMALL.entries]
SMALL_CUTS = [2, 3, 5]
"""Appends before which its segments are cut."""
