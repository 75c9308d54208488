"""Which rows have keys as capture gives them, database and table first, as JSON: ``["shop","orders",17]``. Pure: Arrow.

Such a key is its row's, so a base may leave entries out by their keys. Of any other key it may not: see
:mod:`~headrace.pipeline.bases.folding`. Called by who makes a base, and by who counts what a restore must come to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.wire.arrays import array_of, arrow_flags, arrow_ints, numpy_ints, scalar_of
from headrace.wire.walk import Flags, Ints

_SEPARATOR: Final = "\x1f"


class KeyedTable(NamedTuple):
    """A table of one history of a feed."""

    feed: str
    incarnation: str
    table: tuple[str, ...]


def are_named(rows: Any, simple: Collection[str]) -> Any:
    """Tell of each row (feed, key, table) whether its key begins with database and table, as JSON: ``["shop","orders",``.

    True for rows of other feeds than ``simple``, and for those without a table.
    """
    named = np.ones(rows.num_rows, np.bool_)
    wanted = pc.and_(
        pc.is_in(rows.column("feed"), array_of(sorted(simple), pa.string())),
        pc.is_valid(rows.column("table")),
    )
    if pc.any(wanted).as_py():
        tables = pc.binary_join(rows.column("table"), scalar_of(_SEPARATOR))
        for at in _groups(pc.if_else(wanted, tables, scalar_of(None))):
            named[at] = _begin(rows, at)
    return arrow_flags(named)


class OtherKeys:
    """Tables with rows whose keys do not begin as captured rows' do, found batch by batch. ``found``: those so far."""

    def __init__(self) -> None:
        self.found: set[KeyedTable] = set()

    def look(self, batch: Any) -> None:
        """Look at the rows of a batch (feed, incarnation, key, table, control): not at control entries."""
        rows = batch.filter(pc.and_(pc.is_null(batch.column("control")), pc.is_valid(batch.column("table"))))
        if not rows.num_rows:
            return
        tables = pc.binary_join(rows.column("table"), scalar_of(_SEPARATOR))
        whose = (rows.column(name) for name in ("feed", "incarnation"))
        for at in _groups(pc.binary_join_element_wise(*whose, tables, scalar_of(_SEPARATOR))):
            feed, incarnation = (rows.column(name)[int(at[0])].as_py() for name in ("feed", "incarnation"))
            one = KeyedTable(feed, incarnation, _table(rows, at))
            if one not in self.found and not _begin(rows, at).all():
                self.found.add(one)


def _groups(names: Any) -> Iterator[Ints]:
    """Yield the rows of each value that is not null."""
    encoded = names.dictionary_encode()
    filled = pc.fill_null(encoded.indices.cast(pa.int64()), scalar_of(-1, pa.int64()))
    places = numpy_ints(filled)
    for index in range(len(encoded.dictionary)):
        rows = np.flatnonzero(places == index)
        if len(rows):
            yield rows


def _table(rows: Any, at: Ints) -> tuple[str, ...]:
    return tuple(rows.column("table")[int(at[0])].as_py())


def _begin(rows: Any, at: Ints) -> Flags:
    """Tell of rows of one table whether their keys begin with its name."""
    opening = msgspec.json.encode(_table(rows, at)).decode()[:-1] + ","
    found = pc.fill_null(
        pc.starts_with(rows.column("key").take(arrow_ints(at)), opening), scalar_of(False, pa.bool_())
    )
    bits = np.unpackbits(np.frombuffer(found.buffers()[1], np.uint8), bitorder="little")
    return bits[found.offset : found.offset + len(found)].view(np.bool_)
