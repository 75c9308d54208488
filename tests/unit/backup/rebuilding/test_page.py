"""The page says what the outcome's document has, and nothing else of that kind."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from headrace.backup.rebuilding.feeds import Why
from headrace.backup.rebuilding.outcome import Ids, LeftOutEntries, Rebuilt, RebuiltFeed

PAGE = (Path(__file__).parents[4] / "docs" / "howto" / "rebuild-a-server.md").read_text()
SECTION = PAGE[PAGE.index("## The outcome as JSON") :]


@pytest.mark.parametrize("kind", [Rebuilt, RebuiltFeed, LeftOutEntries, Ids])
def test_every_member_is_on_the_page(kind: type[msgspec.Struct]) -> None:
    told = set(re.findall(r"`([a-z-]+)`", SECTION))
    missing = set(kind.__struct_encode_fields__) - told
    assert not missing


def test_every_reason_is_on_the_page() -> None:
    assert all(f"`{why}`" in SECTION for why in Why)
