"""The feed folded anew into tables of its own, from its first entry, stopping wherever something is to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import JournalCorrupt
from headrace.pipeline.session import session_apart
from headrace.pipeline.source.feed import FORMAT, register
from headrace.pipeline.tables.batches import Batches
from headrace.pipeline.tables.ledger import Ledger, PublishedTable
from headrace.pipeline.tables.schemas import TableName, TableSchema


class Fold:
    """Tables in an empty folder ``to``. Use as ``with``; not for several threads."""

    def __init__(
        self,
        spark: SparkSession,
        to: Path,
        feed: str,
        incarnation: str,
        *,
        source: Mapping[str, str],
        entries_max: int,
        first: int = 1,
        given: TableSchema | None = None,
    ) -> None:
        """``source``: options of ``format("headrace")``. ``entries_max``: entries that are folded at once. ``first``: where
        the feed began.

        ``given``: the columns that an operator gave to entries that name no table.
        """
        self.to = to
        self._beside = session_apart(spark)  # the settings of Delta writes stay in it
        self._source = dict(source)
        self._entries_max = entries_max
        self._ledger = Ledger(to, feed, incarnation)
        if given is not None:
            self._ledger.keep(given=given)
        self._batches = Batches(self._ledger, lambda done: None)
        self._done = first - 1
        self._number = 0

    def __enter__(self) -> Fold:
        self._spark = self._beside.__enter__()
        register(self._spark)
        return self

    def __exit__(self, *error: object) -> None:
        self._ledger.close()
        self._beside.__exit__(None, None, None)

    def tables_at(self, last: int) -> dict[TableName, PublishedTable]:
        """Go on to the entry ``last``, which must not be below what was asked for before, and return the tables there.

        Raises JournalCorrupt if no transaction ends there, and what the tables job raises.
        """
        while self._done < last:
            end = min(last, self._done + self._entries_max)
            ends = {"start": str(self._done + 1), "end": str(end)}
            entries: DataFrame = self._spark.read.format(FORMAT).options(**self._source, **ends).load()
            self._batches(entries, self._number)
            self._done, self._number = end, self._number + 1
        published = self._ledger.published
        if published is None or published.sequence_id != last:
            raise JournalCorrupt(
                f"the tables show the feed {self._ledger.feed} up to the entry {last}, which is no end of a transaction "
                "in it",
                hint="The published moment is none of this feed: was its folder edited, or an old copy of the server put "
                "back?",
            )
        return {tuple(one.table): one for one in published.tables}

    def keys(self) -> dict[TableName, tuple[str, ...]]:
        """Return by which columns the rows of captured tables are told apart, as far as the fold is now."""
        states = {one.table: one.state for one in self._ledger.tables}
        return {
            name: state.schema.handle_key
            for name, state in states.items()
            if state is not None and state.schema is not None
        }
