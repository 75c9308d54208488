"""Which entries a consumer has done with: for consumers that can't commit the bookmark with their own writes. Pure.

Delivery is at least once, so after a crash some entries come again. A consumer that keeps :meth:`Seen.encode` with its own
writes (in the same file, row or object) tells them apart by (incarnation, sequence id) after a restart.

*The window.* Entries that were done in order are one range, however many: that costs nothing. Gaps, left by entries that
were done out of order, are bounded: beyond ``ranges_max`` of them for an incarnation the lowest are forgotten, and so are
all but the ``incarnations_max`` newest histories of the feed. What is forgotten counts as new: it
may come twice, never not at all.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from headrace.errors import BookmarkCorrupt
from headrace.listener.change import Change
from headrace.runtime.typed_json import decode_json
from headrace.wire.versions import SEEN, check_readable

RANGES_MAX: Final = 1_000
INCARNATIONS_MAX: Final = 4


class _Kept(msgspec.Struct, rename="kebab"):
    written_as: int
    readable_from: int
    seen: dict[str, list[tuple[int, int]]]


class Seen:
    """The entries that were done, as ranges of sequence ids for each incarnation, newest incarnation last."""

    def __init__(self, *, ranges_max: int = RANGES_MAX, incarnations_max: int = INCARNATIONS_MAX) -> None:
        self._ranges_max = ranges_max
        self._incarnations_max = incarnations_max
        self._seen: dict[str, list[tuple[int, int]]] = {}

    def is_new(self, change: Change) -> bool:
        """Tell whether ``change`` was not noted yet, or has been forgotten."""
        ranges = self._seen.get(change.incarnation, [])
        at = bisect_right(ranges, change.sequence_id, key=lambda span: span[0]) - 1
        return at < 0 or change.sequence_id > ranges[at][1]

    def note(self, change: Change) -> None:
        """The consumer has done with ``change``; idempotent."""
        if not self.is_new(change):
            return
        number = change.sequence_id
        ranges = self._seen.setdefault(change.incarnation, [])
        at = bisect_right(ranges, number, key=lambda span: span[0])
        first = last = number
        if at < len(ranges) and ranges[at][0] == number + 1:
            last = ranges.pop(at)[1]
        if at and ranges[at - 1][1] == number - 1:
            at -= 1
            first = ranges.pop(at)[0]
        ranges.insert(at, (first, last))
        del ranges[: max(0, len(ranges) - self._ranges_max)]
        while len(self._seen) > self._incarnations_max:
            del self._seen[next(iter(self._seen))]

    def encode(self) -> bytes:
        """Return it as JSON, to be kept with the consumer's own writes."""
        return msgspec.json.encode(_Kept(*SEEN, self._seen))

    @classmethod
    def decode(
        cls, data: bytes, *, ranges_max: int = RANGES_MAX, incarnations_max: int = INCARNATIONS_MAX
    ) -> Seen:
        """Return what :meth:`encode` gave. BookmarkCorrupt, FormatTooNew."""
        try:
            kept = decode_json(data, _Kept)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BookmarkCorrupt(f"what was kept of seen entries can't be read: {error}") from None
        check_readable("what was kept of seen entries", kept.readable_from, SEEN)
        seen = cls(ranges_max=ranges_max, incarnations_max=incarnations_max)
        seen._seen = kept.seen
        return seen
