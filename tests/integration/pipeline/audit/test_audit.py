"""The audit: equal at one moment while the source goes on, and every tampered row, table and column found by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from headrace.cli.app import main
from headrace.cli.pipeline_audit import lines_of
from headrace.errors import FeedRecreated, NothingPublished
from headrace.pipeline.audit.job import run_audit
from headrace.pipeline.audit.verdicts import Audit, TableAudit
from headrace.pipeline.connection import Endpoint
from headrace.pipeline.tables.batches import publish_again
from headrace.pipeline.tables.ledger import Ledger, read_published
from tests.integration.pipeline.bringing import Bring
from tests.integration.pipeline.source_tables import ID, SourceTables, column
from tests.servers import Feed

pytestmark = pytest.mark.usefixtures("several_tasks")


def audit(spark: SparkSession, to: str, server: str, entries_max: int = 1000) -> Audit:
    found = run_audit(spark, to, Endpoint(server, retry_s=20.0), entries_max=entries_max)
    assert not list(Path(to).glob("_headrace/audit-*"))
    return found


def verdict(found: Audit, *name: str) -> TableAudit:
    return next(one for one in found.tables if tuple(one.table) == name)


def publish_what_is_there(to: str) -> None:
    """Let the moment name the newest versions, as somebody might who writes to the tables."""
    moment = read_published(Path(to))
    assert moment is not None
    ledger = Ledger(Path(to), moment.feed, moment.incarnation)
    publish_again(ledger)
    ledger.close()


def fill(source: SourceTables) -> None:
    source.schema("accounts", ID, column("name", "string"), column("balance", "decimal(20,2)"))
    for number in range(1, 21):
        source.put("accounts", {"id": number, "name": f"n{number}", "balance": f"{number}.50"})
    source.object("put", "settings", {"a": 1})
    source.commit()


def test_a_feed_that_begins_far_above_one_is_folded_from_there(
    spark: SparkSession, bring: Bring, feed: Feed, to: str
) -> None:
    first = 10**9
    entry = {"change-feed-id": feed.name, "key": "k", "changes": {"n": 1}, "sequence-id": first}
    assert feed.post(entry).status_code == 200
    bring()
    # A thousand entries at once: a million folds of nothing would not end.
    found = audit(spark, to, feed.server.url)
    assert (found.equal, found.sequence_id) == (True, first)


def test_tables_are_equal_to_the_feed_at_their_moment(
    spark: SparkSession, source: SourceTables, bring: Bring, feed: Feed, to: str
) -> None:
    with pytest.raises(NothingPublished):
        audit(spark, to, feed.server.url)
    fill(source)
    bring()
    source.schema("accounts", ID, column("label", "string", was="name"), column("balance", "decimal(20,2)"))
    source.patch("accounts", 2, {"label": "second"})
    source.delete("accounts", 3)
    source.put("accounts", {"id": 40, "label": None, "balance": "-0.01"})
    source.object("patch", "settings", {"b": 2})
    last = source.commit()
    bring()
    # What no moment names is nobody's: readers don't see it either.
    DeltaTable.forPath(spark, f"{to}/main.accounts").delete("id = 5")
    source.put("accounts", {"id": 41, "label": "later", "balance": "1.00"})
    source.commit()
    found = audit(spark, to, feed.server.url, entries_max=23)
    assert found.equal, found
    assert (found.feed, found.sequence_id) == (feed.name, last)
    assert [(table.table, table.feed.rows if table.feed else None) for table in found.tables] == [
        ([], 1),
        (["main", "accounts"], 20),
    ]
    assert all(table.feed == table.published for table in found.tables)


@pytest.mark.usefixtures("shared_spark")
def test_the_command_names_what_differs(
    spark: SparkSession, source: SourceTables, bring: Bring, to: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(source)
    bring()
    accounts = DeltaTable.forPath(spark, f"{to}/main.accounts")
    accounts.update("id = 7", {"balance": "7.51"})
    accounts.delete("id = 9")
    publish_what_is_there(to)
    words = [
        "pipeline",
        "audit",
        "--to",
        to,
        "--server",
        source.feed.server.url,
        "--scratch",
        str(Path(to).parent),
    ]
    assert main([*words, "--json"]) == 1
    found = msgspec.json.decode(capsys.readouterr().out, type=Audit)
    assert not found.equal
    assert verdict(found).equal
    table = verdict(found, "main", "accounts")
    assert (table.equal, table.reason) == (False, "")
    assert [(one.key, one.rows_in_feed, one.rows_in_table) for one in table.differences] == [
        ('["main", "accounts", 7]', 1, 1),
        ('["main", "accounts", 9]', 1, 0),
    ]
    assert lines_of(found)[2:] == [
        "  main.accounts: DIFFERS",
        f"    feed: 20 rows, checksum {table.feed.checksum if table.feed else ''}",
        f"    published: 19 rows, checksum {table.published.checksum if table.published else ''}",
        '    ["main", "accounts", 7]: another row',
        '    ["main", "accounts", 9]: only in the feed',
        "1 of 2 tables differ",
    ]


def test_tables_and_columns_that_are_not_the_same_are_told(
    spark: SparkSession, source: SourceTables, bring: Bring, feed: Feed, to: str
) -> None:
    fill(source)
    source.schema("orders", ID)
    source.put("orders", {"id": 1})
    source.commit()
    bring()
    spark.sql(f"ALTER TABLE delta.`{to}/main.accounts` ADD COLUMN extra INT")
    publish_what_is_there(to)
    path = Path(to) / "_headrace" / "published.json"
    moment = msgspec.json.decode(path.read_bytes())
    orders = next(one for one in moment["tables"] if one["table"] == ["main", "orders"])
    orders["table"] = ["main", "others"]
    path.write_bytes(msgspec.json.encode(moment))
    found = audit(spark, to, feed.server.url)
    assert verdict(found, "main", "accounts").reason == "its columns are others: extra int"
    assert verdict(found, "main", "orders").reason == "it is not published"
    assert verdict(found, "main", "others").reason == "the feed has no such table"
    path.write_bytes(msgspec.json.encode(moment | {"incarnation": "another"}))
    with pytest.raises(FeedRecreated, match="are of the incarnation another"):
        audit(spark, to, feed.server.url)
