"""Every generation of a snapshot's body is read exactly; today's is as the newest generation, and as its page says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import UNSET

from headrace.client.snapshot_body import SnapshotBody
from headrace.errors import SnapshotBroken
from tests.golden.make import kept
from tests.golden.snapshots import SNAPSHOT_ID, make_snapshot

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "snapshot.md"
BODIES = kept("snapshot.ndjson")
ROWS = {
    '["main","account",1]': (
        ["main", "account"],
        b'{"id":1,"owner":"Zo\xc3\xab \\"Z\\" \xe2\x82\xac","photo":"AP8=","rate":0.1,"paid":true,"opened":"2026-11-22",'
        b'"extra":"{\\"b\\": [1.10]}"}',
    ),
    '["main","account",2]': (
        ["main", "account"],
        b'{"id":2,"owner":"\\n\\t\\\\","photo":null,"rate":null,"paid":null,"opened":null,"extra":null}',
    ),
    "v1": (UNSET, b'{"state": "running",   "n": 1.50}'),
}
"""Key -> table, and ``changes`` byte for byte."""


@pytest.fixture(params=BODIES, ids=lambda path: path.parent.name)
def golden(request: pytest.FixtureRequest) -> bytes:
    """The body of one generation."""
    path: Path = request.param
    return path.read_bytes()


def test_body_is_read_exactly(golden: bytes) -> None:
    body = SnapshotBody()
    lines = body.take(golden)
    body.finish()
    header = body.header
    assert header is not None
    assert (header.snapshot_id, header.change_feed_id) == (SNAPSHOT_ID, "shop")
    assert (header.incarnation, header.sequence_id) == ("incarnation-1", 8)
    assert header.taken_at == "2023-11-14T22:13:20.000Z"
    assert {row.key: (row.table, bytes(row.changes)) for row in lines if not row.is_control} == ROWS
    schemas = [json.loads(bytes(line.changes)) for line in lines if line.is_control]
    assert [one["table"] for one in schemas] == ["account", "unused"]
    assert [column["type"] for column in schemas[0]["columns"]] == [
        "int64", "string", "binary", "float64", "boolean", "json", "json",
    ]  # fmt: skip


def test_no_part_of_a_body_passes_for_a_whole_one(golden: bytes) -> None:
    for size in range(len(golden)):
        body = SnapshotBody()
        body.take(golden[:size])
        with pytest.raises(SnapshotBroken):
            body.finish()


def test_today_is_written_as_the_newest_generation_was(tmp_path: Path) -> None:
    make_snapshot(tmp_path / "body")
    assert (tmp_path / "body").read_bytes() == BODIES[-1].read_bytes()


def test_lines_have_the_members_that_the_page_lists() -> None:
    listed = members_by_line(PAGE.read_text(encoding="utf-8"))
    first, *between, last = map(json.loads, BODIES[-1].read_bytes().splitlines())
    assert list(first) == listed["first"]
    assert list(last) == listed["last"] == ["end"]
    assert list(last["end"]) == ["rows", "crc32c"]
    kinds = {True: "of a table, before its first row", False: "of a row"}
    for line in between:
        of_query = "table" not in line and "control" not in line
        name = "of an object that the application's query gave" if of_query else kinds["control" in line]
        assert sorted(line) == sorted(listed[name])


def members_by_line(page: str) -> dict[str, list[str]]:
    """The page's table: kind of line -> the members named in its second column (not the values that stand after a colon)."""
    found: dict[str, list[str]] = {}
    kind = ""
    for row in re.findall(r"^\|(.*)\|$", page.partition("## An example")[0], re.MULTILINE):
        line, members, _ = row.split("|")
        kind = line.strip() or kind
        found.setdefault(kind, []).extend(re.findall(r"(?<!: )`([a-z0-9-]+)`", members))
    return found
