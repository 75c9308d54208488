"""Both output plugins write what they wrote in every release, and what docs/formats/pg-output.md shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.golden.pg_output import OPTIONS, lines_of

KEPT = Path(__file__).parent / "pg-output"
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "pg-output.md"
CASES = [(plugin, at) for plugin, given in OPTIONS.items() for at in range(len(given))]


@pytest.mark.parametrize(("plugin", "at"), CASES)
def test_the_lines_are_those_that_are_kept(plugin: str, at: int) -> None:
    kept = (KEPT / f"{plugin}-{at + 1}.jsonl").read_bytes()
    assert lines_of(plugin, OPTIONS[plugin][at]) == kept


def test_the_page_shows_them() -> None:
    shown = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    kept = ["headrace-1", "wal2json-1", "wal2json-2"]
    assert [block.encode() for block in shown] == [(KEPT / f"{name}.jsonl").read_bytes() for name in kept]
