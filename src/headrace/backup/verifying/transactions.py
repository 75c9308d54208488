"""What manifests say of open transactions, compared with the entries: plans follow them from segment to segment by that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from headrace.archive.files.segments import Stored
from headrace.archive.moments.ranges import in_order
from headrace.errors import JournalCorrupt
from headrace.wire.kwal_left_open import LeftOpen, told_names
from headrace.wire.kwal_manifest import FeedRange, Manifest
from headrace.wire.kwal_transactions import TxMarks
from headrace.wire.walk import Ints

_SHOWN_MAX: Final = 3
"""Names that a message has."""
_WAITING_MAX: Final = 64
"""Names that a segment is looked through for, the newest ones: each task carries its own, and an archive has many."""


def waiting_before(
    segments: Iterable[Stored], manifests: Mapping[str, Manifest]
) -> dict[str, dict[str, Collection[str]]]:
    """Return which transactions (hex) are open before each range, by the segment's file and the range's first LSN.

    ``segments``: in LSN order, none overlapping another. Ranges before which none is open are left out, and of many
    transactions the oldest.
    """
    left, found = LeftOpen(), dict[str, dict[str, Collection[str]]]()
    for one in segments:
        if (manifest := manifests.get(one.file)) is None:
            continue
        for part in in_order(manifest.feeds):
            if names := tuple(left.of(part.region_id, part.incarnation))[-_WAITING_MAX:]:
                found.setdefault(one.file, {})[part.first_lsn] = names
            left.take(part)
    return found


class RangeTransactions:
    """The transactions of one range of a manifest, as its entries have them. ``waiting``: those open before it, in hex."""

    def __init__(self, told: FeedRange, waiting: Collection[str]) -> None:
        self._told = told
        self._waiting = {bytes.fromhex(name) for name in waiting}
        self._claimed = {bytes.fromhex(name) for name in told.continued or ()}
        self._unended: set[bytes] = set()
        self._continued: set[bytes] = set()
        self._ends_append = True

    def take(self, marks: TxMarks, rows: Ints) -> None:
        """Take the entries ``rows`` of a block, one at least."""
        marks.mark(self._unended, rows, self._continued, self._waiting | self._claimed)
        self._ends_append = marks.ends_append(int(rows[-1]))

    def end(self) -> None:
        """Raise JournalCorrupt unless the entries were what the manifest says. What it does not tell is not asked."""
        told, whole = self._told, self._ends_append and not self._unended
        if told.ends_whole is not None and told.ends_whole != whole:
            raise self._wrong(f"{'end' if whole else 'do not end'} whole", "otherwise")
        if told.continued is None:
            return
        names = told_names(self._unended)
        if names != told.left_open:
            raise self._wrong(f"leave open {_shown(names)}", _shown(told.left_open))
        claimed = self._claimed
        if missing := claimed - self._continued:
            raise self._wrong(f"have none of {_shown(missing)}", "that they go on")
        if unsaid := (self._continued & self._waiting) - claimed:
            raise self._wrong(f"go on with {_shown(unsaid)}", "nothing of that")

    def _wrong(self, found: str, told: str) -> JournalCorrupt:
        return JournalCorrupt(
            f"its entries of {self._told.feed} from lsn={self._told.first_lsn} {found}; the manifest says {told}"
        )


def _shown(names: Iterable[bytes | str] | None) -> str:
    """Return names of transactions as messages have them: some, in hex."""
    if names is None:
        return "more transactions than it names"
    ordered = sorted(name if isinstance(name, str) else name.hex() for name in names)
    more = f" and {len(ordered) - _SHOWN_MAX} more" if len(ordered) > _SHOWN_MAX else ""
    return f"the transactions {', '.join(ordered[:_SHOWN_MAX])}{more} (hex)" if ordered else "no transaction"
