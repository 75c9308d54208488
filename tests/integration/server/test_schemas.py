"""The schemas of a feed's tables over HTTP, by hand and by the client; on files and on PostgreSQL."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headrace.client.http import FeedClient
from headrace.errors import FeedNotFound, SchemaNotFound
from headrace.simple import json_codec
from headrace.simple.assembler import Assembler
from headrace.simple.delivery import SchemaNeeded, Transaction
from headrace.simple.message import Bootstrap, Watermark
from tests.servers import Feed, changes, code_of
from tests.simple_tables import insert, table

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "consume-simple.md"


def schema(names: list[str], version: int, **members: Any) -> dict[str, Any]:
    """A schema entry as it is posted."""
    key = f"\0schema/{'/'.join(names)}/{version}"
    return {"control": "schema", "key": key, "table": names, "changes": {"version": version, **members}}


def listed(feed: Feed, **query: int) -> list[tuple[str, str, int, int]]:
    """What the list of schemas says."""
    answer = feed.server.http.get(f"{feed.path}/schemas", params=query)
    assert answer.status_code == 200, answer.text
    document = answer.json()
    assert document["change-feed-id"] == feed.name
    assert document["incarnation"] == feed.server.http.get(feed.path).json()["incarnation"]
    return [
        (one["database"], one["table"], one["version"], one["sequence-id"]) for one in document["schemas"]
    ]


def test_newest_of_each_table_in_pages(feed: Feed) -> None:
    assert listed(feed) == []
    posted = [schema(["d", name], version) for name, version in (("a", 1), ("b", 1), ("a", 2), ("c", 7))]
    assert feed.post(*posted, {"changes": changes(1)}).status_code == 200
    whole = [("d", "b", 1, 2), ("d", "a", 2, 3), ("d", "c", 7, 4)]
    assert listed(feed) == whole
    assert listed(feed, limit=2) == whole[:2]
    assert listed(feed, limit=2, after=3) == whole[2:]
    assert listed(feed, after=4) == []
    assert feed.post(schema(["d", "b"], 2)).status_code == 200
    assert listed(feed, after=4) == [("d", "b", 2, 6)], "what is durable when it is asked for"


def test_every_version_is_answered_as_it_was_posted(feed: Feed) -> None:
    for version in (1, 2):
        assert feed.post(schema(["d", "t"], version, note="é <&> 1.50")).status_code == 200
    for version in (1, 2):
        answer = feed.server.http.get(f"{feed.path}/schemas/d/t/{version}")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        (entry,) = feed.entries(version, version)
        assert answer.json() == entry["changes"]


def test_names_hold_any_characters(feed: Feed) -> None:
    names = [["a/b", "c"], ["a", "b/c"], ["a b", "%2F"], ["日本", "ü?#&+"]]
    for version, pair in enumerate(names, 1):
        assert feed.post(schema(pair, version)).status_code == 200
    for version, (database, name) in enumerate(names, 1):
        path = f"{feed.path}/schemas/{quote(database, safe='')}/{quote(name, safe='')}/{version}"
        assert feed.server.http.get(path).json() == {"version": version}


@pytest.mark.parametrize(
    "path", ["d/t/2", "d/T/1", "D/t/1", "d/t/01x", "d/t/-1", "d/t/9223372036854775808", "d%00/t/1", "t/d/1"]
)
def test_what_is_not_there_is_not_found(feed: Feed, path: str) -> None:
    assert feed.post(schema(["d", "t"], 1)).status_code == 200
    answer = feed.server.http.get(f"{feed.path}/schemas/{path}")
    assert (answer.status_code, code_of(answer)) == (404, "schema-not-found")


def test_unknown_feeds_and_bad_queries_are_refused(feed: Feed) -> None:
    for path in ("schemas", "schemas/d/t/1"):
        answer = feed.server.http.get(f"/feeds/none/{path}")
        assert (answer.status_code, code_of(answer)) == (404, "feed-not-found")
    for query in ("limit=0", "limit=1001", "after=-1", "after=x", "beyond=1"):
        answer = feed.server.http.get(f"{feed.path}/schemas?{query}")
        assert (answer.status_code, code_of(answer)) == (400, "invalid-request")


async def test_the_client_reads_all_pages(feed: Feed) -> None:
    tables = [schema(["d", f"t{number}"], number) for number in range(1, 1102)]
    for at in range(0, len(tables), 500):
        assert feed.post(*tables[at : at + 500]).status_code == 200
    async with FeedClient(feed.server.url) as client:
        found = await client.schemas(feed.name)
        assert [(one.table, one.version) for one in found] == [(f"t{n}", n) for n in range(1, 1102)]
        assert await client.schema(feed.name, "d", "t7", 7) == b'{"version":7}'
        with pytest.raises(SchemaNotFound):
            await client.schema(feed.name, "d", "t7", 8)
        with pytest.raises(FeedNotFound):
            await client.schemas("none")


async def test_a_consumer_from_the_middle_asks_for_the_schema_that_rows_wait_for(feed: Feed) -> None:
    """As docs/howto/consume-simple.md shows it."""
    orders = table("shop.orders", "id", "amount", key=("id",), version=459)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[1]
    names: dict[str, Any] = {"json_codec": json_codec}
    exec(code, names)  # the page's own code
    async with FeedClient(feed.server.url) as client:
        bootstrap = json_codec.encode(Bootstrap(9, orders))
        body = (
            b'{"agent-id":"agent-1","control":"schema","key":"\\u0000schema/shop/orders/459","changes":'
            + bootstrap
            + b"}"
        )
        assert feed.post_raw(body).status_code == 200
        assembler = Assembler(1)
        row = insert(orders, 500, id="1", amount="5")
        (needed,) = assembler.take(0, row, size=1)
        assert isinstance(needed, SchemaNeeded)
        assert [
            one for one in assembler.take(0, Watermark(600, 9), size=1) if isinstance(one, Transaction)
        ] == []
        schema_of_rows = await names["fetch"](client, feed.name, needed)
        assert schema_of_rows == orders
        (transaction,) = [one for one in assembler.supply(schema_of_rows) if isinstance(one, Transaction)]
        assert transaction.rows[0].message == row
