"""What Spark stored for a query of a release is read, and today's is written as its generation was."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.pipeline.source.offset import Asked, Offset, Place, from_json, to_json

FORMATS = Path(__file__).parent / "formats"
GENERATIONS = sorted(path.parent.name for path in FORMATS.glob("*/spark-offsets.json"))
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "spark-offset.md"
INCARNATION = "ecb4aeb2-1c53-4e81-9b51-2fba0d685531"
LSN = "0687f0b7e9dc0000.0000000001."
OFFSETS: list[Offset | Asked] = [
    Asked(("shop",), "oldest"),
    Offset({"shop": Place(incarnation=INCARNATION, sequence_id=4, lsn=f"{LSN}0000000004", began_after=0)}),
    Offset({"shop": Place(incarnation=INCARNATION, sequence_id=9, lsn=f"{LSN}0000000009")}),
]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_offsets_are_read(generation: str) -> None:
    documents = json.loads((FORMATS / generation / "spark-offsets.json").read_text())
    assert [from_json(document, ["shop"]) for document in documents] == OFFSETS


def test_today_is_written_as_generation_2_was() -> None:
    assert GENERATIONS == ["1", "2"]
    assert [to_json(offset) for offset in OFFSETS] == json.loads(
        (FORMATS / "2" / "spark-offsets.json").read_text()
    )


def test_the_pages_examples_are_what_is_written() -> None:
    examples = re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 2
    for example in map(json.loads, examples):
        assert to_json(from_json(example, list(example["feeds"]))) == example
