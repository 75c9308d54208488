"""What a ``WalStream`` server answers, judged: its last words as errors, and the order that it promises. No I/O."""

from __future__ import annotations

import re
from itertools import islice
from typing import Final

from headrace import errors
from headrace.entries.lsn import ZERO, Lsn
from headrace.errors import HeadraceError, InvalidRequest, JournalCorrupt
from headrace.wire.batch import Heartbeat, ReceivedBatch, StreamError, decode_response
from headrace.wire.entry import message_of

_DATA_LOSS: Final = "data_loss"
_KINDS: Final[dict[str, type[HeadraceError]]] = {
    "lsn_not_available": errors.LsnNotAvailable,
    "backpressure_timeout": errors.BackpressureTimeout,
    "beyond_head": errors.BeyondHead,
    _DATA_LOSS: errors.JournalCorrupt,
}
"""By the word before the colon of a stream's last message (RFC-010 §4.3, §4.4, and ours)."""
_NAMED: Final = re.compile(r"\b(start|oldest|head)_lsn=([0-9A-Fa-f]+\.[0-9]+\.[0-9]+)")


def error_of_text(text: str, kind: type[HeadraceError] = HeadraceError) -> HeadraceError:
    """Return the error that a stream's last message stands for; ``kind``: what its status says, which tells losses apart.

    The LSNs that it names become members: ``start-lsn``, ``oldest-lsn``, ``head-lsn``, and ``resume-lsn`` behind damage.
    """
    word = text.partition(":")[0]
    if word in _KINDS and (word != _DATA_LOSS or kind is HeadraceError):
        kind = _KINDS[word]
    named = dict(_NAMED.findall(text))
    if word == _DATA_LOSS:
        return kind(text, resume_lsn=named.get("start"))
    return kind(text, **{f"{name}_lsn": lsn for name, lsn in named.items()})


class StreamOrder:
    """What one stream has promised so far: each batch begins above the last one, and has the LSNs that it says."""

    def __init__(self, start: Lsn | None) -> None:
        self._floor = start if start is not None else ZERO
        self._last: Lsn | None = None

    def checked(self, data: bytes) -> ReceivedBatch | Heartbeat | StreamError:
        """Read a message; JournalCorrupt if it is none, or not in its place."""
        try:
            item = decode_response(data)
            if isinstance(item, ReceivedBatch):
                self._check(item)
        except InvalidRequest as error:
            raise JournalCorrupt(f"the server names an LSN that is none: {error.detail}") from None
        return item

    def _check(self, batch: ReceivedBatch) -> None:
        first, last = batch.first_lsn, batch.last_lsn
        if first > last or (self._last is not None and first <= self._last) or first < self._floor:
            raise JournalCorrupt(
                f"a batch {first} … {last} came after lsn={self._last if self._last is not None else self._floor}: "
                "the stream is out of order",
                lsn=str(first),
            )
        sizes = batch.sizes
        ends = batch.body[: sizes[0]], batch.body[len(batch.body) - sizes[-1] :]
        for end, said in zip(ends, (first, last), strict=True):
            found = message_of(end).lsn
            if Lsn.parse(found) != said:
                raise JournalCorrupt(f"a batch says lsn={said}, and its entry there {found!r}", lsn=str(said))
        self._last = last


def without_first(batch: ReceivedBatch) -> ReceivedBatch | None:
    """Return the batch without its first entry; None if it has no other. Its positions stay those of the batch as sent."""
    if len(batch.sizes) == 1:
        return None
    rest = batch._replace(body=batch.body[batch.sizes[0] :], sizes=batch.sizes[1:])
    return rest._replace(first_lsn=Lsn.parse(next(islice(rest.messages(), 1)).lsn))
