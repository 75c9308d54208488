"""The record of an accepted gap: what a release wrote is read, and the page's example is what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.archive.files.gaps import decode_gap, encode_gap, gap_file
from headrace.errors import FormatTooNew, SegmentCorrupt
from tests.golden.gaps import GAP

FORMATS = Path(__file__).parent / "formats"
GENERATIONS = sorted(path.parent.name for path in FORMATS.glob("*/gap.json"))
PAGE = Path(__file__).parents[2] / "docs" / "formats" / "gap.md"


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_record_that_a_release_wrote_is_read(generation: str) -> None:
    data = (FORMATS / generation / "gap.json").read_bytes()
    assert decode_gap(data, f"/backups/{gap_file(GAP)}") == GAP


def test_today_is_written_as_generation_1_was() -> None:
    assert encode_gap(GAP) == (FORMATS / "1" / "gap.json").read_bytes()


def test_the_pages_example_is_what_is_written() -> None:
    page = PAGE.read_text(encoding="utf-8")
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    assert encode_gap(GAP).decode() == example
    assert f"`{gap_file(GAP)}`" in page


def test_every_byte_of_a_record_counts() -> None:
    data = encode_gap(GAP)
    for place in range(len(data)):
        for bit in (1, 0x20):
            damaged = bytes([*data[:place], data[place] ^ bit, *data[place + 1 :]])
            with pytest.raises((SegmentCorrupt, FormatTooNew), match=re.escape(gap_file(GAP))):
                decode_gap(damaged, f"/backups/{gap_file(GAP)}")


def test_a_record_under_another_name_is_none() -> None:
    with pytest.raises(SegmentCorrupt, match="not what its name says"):
        decode_gap(encode_gap(GAP), f"/backups/{gap_file(GAP).replace('0004-', '0003-')}")
