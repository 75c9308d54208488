"""Every member of the documents that restores and drills print is explained in the guide."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.pipeline.drill.job import Difference, Report
from headrace.pipeline.restore.outcome import Outcome, RestoredHistory, RestoredTable

GUIDE = Path(__file__).parents[4] / "docs" / "howto" / "restore.md"


@pytest.mark.parametrize("kind", [Outcome, RestoredHistory, RestoredTable, Report, Difference])
def test_each_member_is_in_the_guide(kind: type[msgspec.Struct]) -> None:
    text = GUIDE.read_text().partition("\n## Restore\n")[2]
    missing = [one.encode_name for one in msgspec.structs.fields(kind) if f"`{one.encode_name}`" not in text]
    assert not missing
