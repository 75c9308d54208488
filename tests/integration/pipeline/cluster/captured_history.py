"""Captured feeds that jobs on a cluster read: many statements in few steps, and enough rows to die among them."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from headrace.pipeline.tables.reader import iter_rows
from headrace.simple.message import Ddl, MessageType
from tests.integration.pipeline.kafka.captured_feed import (
    CapturedFeed,
    History,
    append,
    row_entry,
    schema_entry,
    watermark,
)
from tests.scale import SEED
from tests.servers import Feed
from tests.simple_tables import column, insert, table
from tests.simple_topic import Rows, Tables

STEPS = 8
BULK_STEPS = 14
BULK = "bulk"
BULK_ROWS = 6_000
BULK_ROW_BYTES = 2_000
"""With so many of these a write takes long enough to be met."""


class Statements(History):
    """A history whose ALTER says what it does: tables follow the statement, not the schema alone."""

    def ddl(self) -> None:
        done = len(self.events)
        super().ddl()
        last = self.events[-1]
        if len(self.events) > done and isinstance(last, Ddl) and last.type is MessageType.ALTER:
            assert last.table_schema is not None
            added = last.table_schema.columns[-1].name
            sql = f"ALTER TABLE `shop`.`{last.table_schema.table}` ADD COLUMN `{added}` INT NOT NULL"
            self.events[-1] = msgspec.structs.replace(last, sql=sql)


def captured_history(feed: Feed) -> History:
    """A history of rows and statements in the feed, and a table with a column that Delta has nothing for."""
    chance = random.Random(174)  # every kind of statement in few steps
    history = Statements(chance)
    for _ in range(STEPS):
        history.step()
    CapturedFeed(feed, history, chance).write()
    history.commit_ts += 1
    odd = table(
        "shop.odd",
        "id",
        column("g", "geometry"),
        version=history.commit_ts,
        table_id=99,
        key=("id",),
    )
    row = insert(odd, history.commit_ts, id="1", g="x")
    append(feed, [schema_entry(odd), row_entry(row), watermark(history.commit_ts)])
    return history


def bulk_history(feed: Feed) -> Tables:
    """A table of many rows, and behind them a history of rows and statements; returns what all tables hold at the end."""
    bulk = table(f"shop.{BULK}", "id", column("name", "varchar"), version=1, table_id=99, key=("id",))
    images: Rows = {str(at): {"id": str(at), "name": "x" * BULK_ROW_BYTES} for at in range(BULK_ROWS)}
    rows = [row_entry(insert(bulk, 2 + at // 10, **image)) for at, image in enumerate(images.values())]
    chance = random.Random(SEED)
    history = History(chance)
    history.commit_ts = 2 + BULK_ROWS
    append(feed, [schema_entry(bulk), *rows, watermark(history.commit_ts)])
    for _ in range(BULK_STEPS):
        history.step()
    CapturedFeed(feed, history, chance).write()
    return history.tables | {BULK: images}


def rows_by_table(to: str) -> Tables:
    """What is published in a folder of tables, as a history tells it."""
    found: Tables = {}
    for name, row in iter_rows(to):
        image: dict[str, Any] = row
        found.setdefault(name[-1], {})[str(row["id"])] = {key: str(value) for key, value in image.items()}
    return found
