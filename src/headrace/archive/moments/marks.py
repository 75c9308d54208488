"""What says where a log may be cut, of all entries of one segment, as arrays: appends, transactions and source times.

Values are not kept. Called by :mod:`headrace.archive.moments.points`; a segment is read for it once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.entries.hlc import LOGICAL_BITS
from headrace.entries.lsn import TEXT_SIZE, ZERO, Lsn
from headrace.wire.arrays import arrow_ints, numpy_flags, numpy_ints, scalar_of
from headrace.wire.kwal_columns import Segment, Wanted
from headrace.wire.walk import Flags, Ints

_NAMES: Final = ("lsn", "incarnation", "source_tx", "tx_last", "append_end", "source_time")
_STAMP_SIZE: Final = 16
"""Figures of an LSN's ``global_ts``."""
PAUSE_MAX_MS: Final = 600_000
"""A transaction without a last entry counts as ended if nothing more of it comes, once the log went on for this long."""
Texts = NDArray[np.bytes_]
"""LSNs as text: they compare as the LSNs do."""


def lsn_above(lsn: Lsn) -> Lsn:
    """Return the LSN right above another."""
    return Lsn.from_int(int(lsn) + 1)


class Tx(NamedTuple):
    """A transaction's name, in one history of a feed."""

    region: int
    incarnation: str | None
    name: bytes


class Units(NamedTuple):
    """A segment's transactions, one a row: each with its entries from the first to the last one, whatever is between.

    A unit ends with a last entry (``ended``), or where nothing of it follows here. ``first`` and ``last``: rows of the
    segment. ``head``, ``tail``: it is the first, the last one of its name here.
    """

    first: Ints
    last: Ints
    ended: Flags
    head: Flags
    tail: Flags
    regions: Ints
    histories: Ints
    txs: Ints
    incarnations: Sequence[str]
    names: Any

    def tx(self, unit: int) -> Tx:
        """Return whose entries they are."""
        history = int(self.histories[unit])
        incarnation = self.incarnations[history] if history >= 0 else None
        return Tx(int(self.regions[unit]), incarnation, self.names[int(self.txs[unit])].as_py())

    def of(self, wanted: Collection[Tx], which: Flags) -> dict[Tx, int]:
        """Return the units of these transactions among ``which``, those of ``head`` or ``tail``."""
        wanted = frozenset(wanted)
        names = {one.name for one in wanted}
        codes = [code for code, name in enumerate(self.names.to_pylist()) if name in names]
        near = np.flatnonzero(which & np.isin(self.txs, codes))
        return {tx: unit for unit in near.tolist() if (tx := self.tx(unit)) in wanted}


class Marks(NamedTuple):
    """All entries of a segment, one a row, in LSN order. Times in UTC milliseconds, source times 0 for none.

    ``append_end``: the entry is the last one of its append.
    """

    lsns: Texts
    ms: Ints
    regions: Ints
    append_end: Flags
    source_times: Ints
    units: Units

    def lsn(self, row: int) -> Lsn:
        """Return the LSN of one."""
        return Lsn.parse(self.lsns[row].decode())

    def rows_to(self, lsn: Lsn) -> int:
        """Return how many entries are at or below ``lsn``."""
        return int(np.searchsorted(self.lsns, str(lsn).encode(), "right"))

    def rows_of(self, region: int) -> Ints:
        """Return the rows of a feed, ascending."""
        return np.flatnonzero(self.regions == region)

    def ends(self) -> Flags:
        """Tell behind which entries no append goes on here: behind its last one, and where another feed's entry follows."""
        found = self.append_end.copy()
        found[:-1] |= self.regions[1:] != self.regions[:-1]
        return found


def marks_of(segment: Segment, above: Lsn = ZERO) -> Marks:
    """Return the marks of a segment's entries above an LSN, one at least; SegmentCorrupt where an entry is none."""
    table = pa.Table.from_batches(list(segment.batches(_NAMES, Wanted(first=lsn_above(above)))))
    lsns = _texts(table["lsn"])
    figures = np.frombuffer(lsns.tobytes(), np.uint8).reshape(-1, TEXT_SIZE)
    stamps = np.frombuffer(bytes.fromhex(str(figures[:, :_STAMP_SIZE].tobytes(), "ascii")), ">u8")
    ms = (stamps >> np.uint64(LOGICAL_BITS)).astype(np.int64)
    regions = _regions(figures)
    times = (
        numpy_ints(table["source_time"].cast(pa.int64()).fill_null(scalar_of(0, pa.int64())).combine_chunks())
        // 1000
    )
    tx_last = numpy_flags(table["tx_last"].combine_chunks())
    units = _units(
        table["incarnation"].combine_chunks(), table["source_tx"].combine_chunks(), tx_last, regions
    )
    return Marks(lsns, ms, regions, numpy_flags(table["append_end"].combine_chunks()), times, units)


def _units(incarnations: Any, txs: Any, tx_last: Flags, regions: Ints) -> Units:
    rows = np.flatnonzero(numpy_flags(txs.is_valid()))
    coded, histories = txs.take(arrow_ints(rows)).dictionary_encode(), incarnations.dictionary_encode()
    codes = numpy_ints(coded.indices.cast(pa.int64()))
    lives = numpy_ints(histories.indices.cast(pa.int64()).fill_null(scalar_of(-1, pa.int64())))[rows]
    feeds = np.unique(regions[rows], return_inverse=True)[1].reshape(-1)
    keys = (feeds * (len(histories.dictionary) + 1) + lives + 1) * (len(coded.dictionary) + 1) + codes
    order = np.argsort(keys, kind="stable")
    sorted_keys, sorted_rows = keys[order], rows[order]
    other = sorted_keys[1:] != sorted_keys[:-1]
    split = other | tx_last[sorted_rows[:-1]]
    edges = np.flatnonzero(split)
    begins = np.concatenate(([0], edges + 1)) if len(rows) else edges
    stops = np.concatenate((edges, [len(rows) - 1])) if len(rows) else edges
    first, last = sorted_rows[begins], sorted_rows[stops]
    is_head, is_tail = np.ones(len(rows), np.bool_), np.ones(len(rows), np.bool_)
    is_head[1:], is_tail[:-1] = other, other
    return Units(
        first=first,
        last=last,
        ended=tx_last[last],
        head=is_head[begins],
        tail=is_tail[stops],
        regions=regions[first],
        histories=lives[order[begins]],
        txs=codes[order[begins]],
        incarnations=histories.dictionary.to_pylist(),
        names=coded.dictionary,
    )


def _texts(column: Any) -> Texts:
    texts = column.to_pylist()
    if any(len(text) != TEXT_SIZE for text in texts) or any(text != text.lower() for text in texts):
        texts = [str(Lsn.parse(text)) for text in texts]  # another writer's
    return np.asarray(texts, dtype=f"S{TEXT_SIZE}")


def _regions(figures: NDArray[np.uint8]) -> Ints:
    numbers = figures[:, 17:27].astype(np.int64) - ord("0")
    found: Ints = numbers @ (10 ** np.arange(9, -1, -1, dtype=np.int64))
    return found


# -- commitTs ----------------------------------------------------------------------------------------------------------


class _Message(msgspec.Struct, gc=False):
    """What a message of the Simple Protocol says of its time."""

    commit_ts: int | None = msgspec.field(name="commitTs", default=None)
    type: str = ""


_DECODE: Final = msgspec.json.Decoder(_Message).decode


def commit_times(segment: Segment, feed: str) -> Iterator[tuple[Lsn, int]]:
    """Yield LSN and commitTs of each of a feed's entries that has one, in order; others are passed over."""
    for batch in segment.batches(("lsn", "value"), Wanted(feeds=(feed,))):
        for lsn, value in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            try:
                message = _DECODE(value)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue
            if message.commit_ts:  # a BOOTSTRAP's is 0
                yield Lsn.parse(lsn), message.commit_ts
