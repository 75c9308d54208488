"""Which entries are schemas, and of what: the rule of docs/formats/control-entries.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from headrace.entries.entry import Change, Op
from headrace.log.schemas.entries import NAME_CHARS_MAX, name_of

PAGE = Path(__file__).parents[4] / "docs" / "formats" / "control-entries.md"


def change(key: str | bytes, value: bytes = b"{}", **fields: Any) -> Change:
    data = key.encode() if isinstance(key, str) else key
    return Change(value, key=data, **({"control": "schema"} | fields))


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (change("\0schema/main/account/1"), ("main", "account", 1)),
        (change("\0schema/shop/order lines/459832175616000000"), ("shop", "order lines", 459832175616000000)),
        (change("\0schema/é/ü/0"), ("é", "ü", 0)),
        (change("\0schema/a/b/c/7"), ("a", "b/c", 7)),
        (change("\0schema/a/b/c/7", table=("a/b", "c")), ("a/b", "c", 7)),
        (change("\0schema/a/b/c/7", table=("other", "table")), ("a", "b/c", 7)),
        (change("\0schema/a/b/c/7", b'{"database":"a/b","table":"c","version":7}'), ("a/b", "c", 7)),
        (change("\0schema/a/b/c/7", b'{"database":"x","table":"c"}'), ("a", "b/c", 7)),
        (change("\0schema/a/b/c/7", b"\xff"), ("a", "b/c", 7)),
        (change(f"\0schema/{'d' * NAME_CHARS_MAX}/t/{(1 << 63) - 1}"), ("d" * NAME_CHARS_MAX, "t", (1 << 63) - 1)),
    ],
)  # fmt: skip
def test_key_names_the_schema(entry: Change, name: tuple[str, str, int]) -> None:
    assert name_of(entry) == name


@pytest.mark.parametrize(
    "entry",
    [
        change("\0ddl/main/account/1"),
        change("schema/main/account/1"),
        change("\0schema/main/1"),
        change("\0schema//account/1"),
        change("\0schema/main//1"),
        change("\0schema/main/account/"),
        change("\0schema/main/account/01"),
        change("\0schema/main/account/-1"),
        change("\0schema/main/account/1x"),
        change("\0schema/main/account/\u0661"),
        change(f"\0schema/main/account/{1 << 63}"),
        change(f"\0schema/{'d' * (NAME_CHARS_MAX + 1)}/t/1"),
        change("\0schema/main/a\0b/1"),
        change(b"\0schema/main/\xff/1"),
        change("\0schema/main/account/1", op=Op.DELETE),
        Change(b"{}"),
    ],
)
def test_what_does_not_follow_the_rule_is_no_schema(entry: Change) -> None:
    assert name_of(entry) is None


def test_the_example_on_the_page_is_a_schema() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    posted = json.loads(block)
    entry = change(
        posted["key"], op=Op(posted["op"]), control=posted["control"], table=tuple(posted["table"])
    )
    assert name_of(entry) == ("main", "account", 1)
